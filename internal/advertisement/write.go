// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
)

// report writes what is not yet as it must be: the copy and both answers. It says whether the
// provider knows the answer: that it does not want to hear it is no error, which would put off the end of its offer.
func (r *Receiver) report(ctx context.Context, f facts, o outcome, now time.Time) (answered bool, err error) {
	held, err := r.storeCopy(ctx, f, o)
	if cannotBeStored(err) {
		f.unstorable = fmt.Errorf("this cluster cannot store the advertisement: %w", err)
		o = r.config.decide(f, now)
		held, err = r.storeCopy(ctx, f, o)
	}
	if err != nil {
		return false, err
	}
	if o.taken {
		accepted.Inc()
	}
	unanswered := r.answerProvider(ctx, f, o, now)
	if unanswered != nil {
		ctrl.LoggerFrom(ctx).Info("Cannot answer an advertisement", "cause", unanswered.Error())
	}
	return unanswered == nil, r.answerCopy(ctx, held, o, now)
}

func cannotBeStored(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// storeCopy makes the copy, or changes or deletes it if it must, and returns it as it now is; nil if there is none.
func (r *Receiver) storeCopy(ctx context.Context, f facts, o outcome) (*v1alpha1.Advertisement, error) {
	if o.spec == nil {
		return nil, r.deleteCopy(ctx, f.peer, f.copy)
	}
	held := &v1alpha1.Advertisement{}
	if f.copy != nil {
		held = f.copy.DeepCopy()
	}
	key := copyKey(f.peer)
	held.Namespace, held.Name = key.Namespace, key.Name
	metav1.SetMetaDataLabel(&held.ObjectMeta, v1alpha1.LabelPeer, f.peer.Name)
	metav1.SetMetaDataLabel(&held.ObjectMeta, v1alpha1.LabelClusterID, f.peer.Spec.ClusterID)
	held.Spec = *o.spec.DeepCopy()
	o.record.store(held)
	if o.lapsed {
		delete(held.Annotations, v1alpha1.AnnotationDecision)
	}
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

// answerCopy writes the answer into the status of the copy.
func (r *Receiver) answerCopy(ctx context.Context, held *v1alpha1.Advertisement, o outcome, now time.Time) error {
	if held == nil {
		return nil
	}
	status := answered(held.Status, held.Generation, o.verdict, o, now)
	if equality.Semantic.DeepEqual(held.Status, status) {
		return nil
	}
	before := held.Status.Acknowledgement
	held = held.DeepCopy()
	held.Status = status
	if err := r.client.Status().Update(ctx, held); err != nil {
		return fmt.Errorf("answer in the copy %s: %w", client.ObjectKeyFromObject(held), err)
	}
	if before == nil || before.State != o.verdict.state || before.Reason != o.verdict.reason {
		r.announce(held, o.verdict)
	}
	return nil
}

// announce tells users of the change of an answer.
func (r *Receiver) announce(regarding client.Object, v verdict) {
	kind := corev1.EventTypeNormal
	if v.state == v1alpha1.AcknowledgementRefused {
		kind = corev1.EventTypeWarning
	}
	r.recorder.Eventf(regarding, nil, kind, v.reason, "JudgeAdvertisement", "%s", v.event())
}

// answerProvider writes the answer into the status of the provider's object, which nobody else writes.
func (r *Receiver) answerProvider(ctx context.Context, f facts, o outcome, now time.Time) error {
	if f.raw == nil {
		return nil
	}
	current := providerStatus(f.raw)
	status := answered(current, f.raw.GetGeneration(), o.reply(), o, now)
	if equality.Semantic.DeepEqual(current, status) {
		return nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return fmt.Errorf("encode the answer to peer %q: %w", f.peer.Name, err)
	}
	before, after := withStatus(f.raw, f.raw.Object["status"]), withStatus(f.raw, content)
	// The version goes along so that a mirror that does not show our last answer yet does not make us answer twice.
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := f.link.Client().Status().Patch(ctx, after, patch); err != nil {
		return wrap(local.IgnoreStale(err), "answer the advertisement of peer %q", f.peer.Name)
	}
	said := o.reply()
	if said.state == v1alpha1.AcknowledgementRefused {
		refused.WithLabelValues(said.reason).Inc()
	}
	ctrl.LoggerFrom(ctx).Info("Answered an advertisement",
		"state", said.state, "reason", said.reason, "message", said.message, "sequence", o.sequence)
	return nil
}

// withStatus returns the object of that name and version, without all but the status.
func withStatus(raw *unstructured.Unstructured, status any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	object.SetGroupVersionKind(advertisementKind)
	object.SetNamespace(raw.GetNamespace())
	object.SetName(raw.GetName())
	object.SetResourceVersion(raw.GetResourceVersion())
	return object
}

// providerStatus reads the answer that stands at the peer. One that cannot be read is none: we write it anew.
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

// drop ends what there is for a peer that is no provider of ours, or not for long.
func (r *Receiver) drop(ctx context.Context, peer *v1alpha1.Peer) error {
	r.forget(peer.Name)
	if link, open := r.links.Get(peer.Name); open {
		link.UnfollowOne(advertisements, link.TenantNamespace(), peer.Spec.ClusterID)
	}
	held, err := r.held(ctx, peer)
	if err != nil {
		return err
	}
	return r.deleteCopy(ctx, peer, held)
}

// forget ends what is kept in memory for the peer.
func (r *Receiver) forget(peer string) {
	r.looks.forget(peer)
	r.intakes.forget(peer)
	r.known.forget(peer)
}

// deleteCopy deletes what we hold of the peer's advertisement, if we do.
func (r *Receiver) deleteCopy(ctx context.Context, peer *v1alpha1.Peer, held *v1alpha1.Advertisement) error {
	if held == nil {
		return nil
	}
	return wrap(client.IgnoreNotFound(r.client.Delete(ctx, held)), "delete the copy %s", copyKey(peer))
}

// wrap says what was attempted, of an error.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}
