package advertisement

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// fieldOwner is the field manager of the condition that this package keeps on Peers.
const fieldOwner = "hanse-advertisement"

// storeCopy makes the copy, or changes it if it must, and returns it as it now is; nil if there is none.
func (r *Receiver) storeCopy(ctx context.Context, f facts, o outcome) (*v1alpha1.Advertisement, error) {
	if o.spec == nil {
		return nil, nil
	}
	held := &v1alpha1.Advertisement{}
	if f.copy != nil {
		held = f.copy.DeepCopy()
	}
	key := copyKey(f.peer)
	held.Namespace, held.Name = key.Namespace, key.Name
	held.Labels = labelled(held.Labels, f.peer)
	held.Spec = *o.spec.DeepCopy()
	o.record.store(held)
	if err := controllerutil.SetOwnerReference(f.peer, held, r.client.Scheme()); err != nil {
		return nil, fmt.Errorf("make peer %q own the copy of its advertisement: %w", f.peer.Name, err)
	}
	if f.copy == nil {
		return held, wrap(r.client.Create(ctx, held), "create the copy %s", key)
	}
	if equality.Semantic.DeepEqual(f.copy, held) {
		return held, nil
	}
	return held, wrap(r.client.Update(ctx, held), "update the copy %s", key)
}

func labelled(labels map[string]string, peer *v1alpha1.Peer) map[string]string {
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1alpha1.LabelPeer] = peer.Name
	labels[v1alpha1.LabelClusterID] = peer.Spec.ClusterID
	return labels
}

// answerCopy writes the answer into the status of the copy.
func (r *Receiver) answerCopy(ctx context.Context, held *v1alpha1.Advertisement, o outcome, now time.Time) error {
	if held == nil {
		return nil
	}
	status := answered(held.Status, held.Generation, o, now)
	if equality.Semantic.DeepEqual(held.Status, status) {
		return nil
	}
	held = held.DeepCopy()
	held.Status = status
	return wrap(r.client.Status().Update(ctx, held), "answer in the copy %s", client.ObjectKeyFromObject(held))
}

// answerProvider writes the answer into the status of the provider's object, which nobody else writes.
func (r *Receiver) answerProvider(ctx context.Context, f facts, o outcome, now time.Time) error {
	if f.raw == nil {
		return nil
	}
	current := providerStatus(f.raw)
	status := answered(current, f.raw.GetGeneration(), o, now)
	if equality.Semantic.DeepEqual(current, status) {
		return nil
	}
	// The version goes along so that a mirror that does not show our last answer yet does not make us answer twice.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": f.raw.GetResourceVersion()},
		"status":   status,
	})
	if err != nil {
		return fmt.Errorf("encode the answer to peer %q: %w", f.peer.Name, err)
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(advertisementKind)
	object.SetNamespace(f.raw.GetNamespace())
	object.SetName(f.raw.GetName())
	err = f.link.Client().Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) {
		return nil // withdrawn meanwhile, which the mirror will show
	}
	if err != nil {
		return fmt.Errorf("answer the advertisement of peer %q: %w", f.peer.Name, err)
	}
	if !o.verdict.Accepted {
		refused.WithLabelValues(o.verdict.Reason).Inc()
		ctrl.LoggerFrom(ctx).Info("Refused an advertisement", "reason", o.verdict.Reason, "message", o.verdict.Message)
	}
	return nil
}

// providerStatus reads the answer that stands over there. One that cannot be read is none: we write it anew.
func providerStatus(raw *unstructured.Unstructured) v1alpha1.AdvertisementStatus {
	status := v1alpha1.AdvertisementStatus{}
	content, found, err := unstructured.NestedMap(raw.Object, "status")
	if err != nil || !found {
		return status
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &status); err != nil {
		return v1alpha1.AdvertisementStatus{}
	}
	return status
}

// reportOnPeer applies our one condition on the Peer, with all its fields, since it is ours alone.
func (r *Receiver) reportOnPeer(ctx context.Context, peer *v1alpha1.Peer, want metav1.Condition, now time.Time) error {
	want.LastTransitionTime = metav1.NewTime(now)
	said := meta.FindStatusCondition(peer.Status.Conditions, want.Type)
	if saysCondition(said, want) && said.ObservedGeneration == want.ObservedGeneration {
		return nil
	}
	if said != nil && said.Status == want.Status {
		want.LastTransitionTime = said.LastTransitionTime
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&want)
	if err != nil {
		return fmt.Errorf("encode condition %s: %w", want.Type, err)
	}
	return r.applyOnPeer(ctx, peer, content)
}

// forget ends what the receiver keeps for a peer that is no provider of ours, or not for long.
func (r *Receiver) forget(ctx context.Context, peer *v1alpha1.Peer) error {
	r.watches.stop(peer.Name)
	if err := r.deleteCopy(ctx, peer); err != nil {
		return err
	}
	if !peer.DeletionTimestamp.IsZero() || meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionAdvertised) == nil {
		return nil
	}
	return r.applyOnPeer(ctx, peer)
}

// deleteCopy deletes what we hold of the peer's advertisement. A peer without an id has none, and what has our own id is
// our own offer.
func (r *Receiver) deleteCopy(ctx context.Context, peer *v1alpha1.Peer) error {
	if id := peer.Spec.ClusterID; id == "" || id == r.config.ClusterID {
		return nil
	}
	held := &v1alpha1.Advertisement{}
	err := r.client.Get(ctx, copyKey(peer), held)
	if err == nil {
		err = r.client.Delete(ctx, held)
	}
	return wrap(client.IgnoreNotFound(err), "delete the copy %s", copyKey(peer))
}

// applyOnPeer makes the conditions the only ones that we own on the Peer.
func (r *Receiver) applyOnPeer(ctx context.Context, peer *v1alpha1.Peer, conditions ...any) error {
	if conditions == nil {
		conditions = []any{}
	}
	object := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": conditions}}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Peer"))
	object.SetName(peer.Name)
	err := r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(fieldOwner), client.ForceOwnership)
	return wrap(err, "report on peer %q", peer.Name)
}

// wrap says what was attempted, of an error.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}
