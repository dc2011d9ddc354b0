package agentless

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

// fieldOwner is the field manager of the condition that this package keeps on Peers.
const fieldOwner = "hanse-agentless"

// annotationAccepted marks with "true" a copy of an advertisement whose spec was accepted.
const annotationAccepted = v1alpha1.AnnotationAccepted

// report writes what is not yet as it must be: the advertisement, the answer to it, and the condition of the Peer.
func (o *Offerer) report(ctx context.Context, f facts, next outcome) error {
	ad, err := o.store(ctx, f, next)
	if err == nil {
		err = o.answer(ctx, ad, f, next)
	}
	return errors.Join(err, o.reportOnPeer(ctx, f, next))
}

// store makes the advertisement, or changes or deletes it if it must, and returns it as it now is; nil if there is none.
func (o *Offerer) store(ctx context.Context, f facts, next outcome) (*v1alpha1.Advertisement, error) {
	if next.spec == nil {
		if f.held == nil {
			return nil, nil
		}
		return nil, client.IgnoreNotFound(o.client.Delete(ctx, f.held))
	}
	ad := &v1alpha1.Advertisement{}
	if f.held != nil {
		ad = f.held.DeepCopy()
	}
	key := adKey(f.peer)
	ad.Namespace, ad.Name = key.Namespace, key.Name
	ad.Spec = *next.spec.DeepCopy()
	metav1.SetMetaDataLabel(&ad.ObjectMeta, v1alpha1.LabelPeer, f.peer.Name)
	metav1.SetMetaDataLabel(&ad.ObjectMeta, v1alpha1.LabelClusterID, f.peer.Spec.ClusterID)
	metav1.SetMetaDataAnnotation(&ad.ObjectMeta, exchange.AnnotationReceived, ad.Spec.Timestamp.UTC().Format(time.RFC3339))
	metav1.SetMetaDataAnnotation(&ad.ObjectMeta, annotationAccepted, "true")
	if err := controllerutil.SetOwnerReference(f.peer, ad, o.client.Scheme()); err != nil {
		return nil, fmt.Errorf("make Peer %s own its Advertisement: %w", f.peer.Name, err)
	}
	if f.held == nil {
		if err := o.client.Create(ctx, ad); err != nil {
			return nil, fmt.Errorf("create Advertisement %s: %w", key, err)
		}
		return ad, nil
	}
	if equality.Semantic.DeepEqual(f.held, ad) {
		return ad, nil
	}
	if err := o.client.Update(ctx, ad); err != nil {
		return nil, fmt.Errorf("update Advertisement %s: %w", key, err)
	}
	return ad, nil
}

// answer writes into the status what a receiver of the advertisement would.
func (o *Offerer) answer(ctx context.Context, ad *v1alpha1.Advertisement, f facts, next outcome) error {
	if ad == nil {
		return nil
	}
	status := ad.Status.DeepCopy()
	// How often the peer was looked at is worth no write of its own.
	ack := &v1alpha1.Acknowledgement{State: next.state, Reason: next.accepted.Reason, Message: next.accepted.Message}
	if known := status.Acknowledgement; known != nil {
		ack.Sequence = known.Sequence
	}
	ready := next.accepted
	ready.Type = v1alpha1.ConditionReady
	for _, c := range []metav1.Condition{next.accepted, ready} {
		c.LastTransitionTime = metav1.NewTime(f.now)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	status.Acknowledgement = ack
	if equality.Semantic.DeepEqual(ad.Status, *status) {
		return nil
	}
	ack.Sequence, status.ObservedGeneration = ad.Spec.Sequence, ad.Generation
	answered := ad.DeepCopy()
	answered.Status = *status
	if err := o.client.Status().Update(ctx, answered); err != nil {
		return fmt.Errorf("answer Advertisement %s: %w", client.ObjectKeyFromObject(ad), err)
	}
	return nil
}

// reportOnPeer applies our one condition on the Peer.
func (o *Offerer) reportOnPeer(ctx context.Context, f facts, next outcome) error {
	want := next.advertised
	want.ObservedGeneration, want.LastTransitionTime = f.peer.Generation, metav1.NewTime(f.now)
	if known := meta.FindStatusCondition(f.peer.Status.Conditions, want.Type); known != nil {
		if known.Status == want.Status {
			want.LastTransitionTime = known.LastTransitionTime
		}
		if equality.Semantic.DeepEqual(*known, want) {
			return nil
		}
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&want)
	if err != nil {
		return fmt.Errorf("encode condition %s: %w", want.Type, err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{maps.Clone(content)}}}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Peer"))
	object.SetName(f.peer.Name)
	err = o.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(fieldOwner), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("report on Peer %s: %w", f.peer.Name, err)
	}
	return nil
}
