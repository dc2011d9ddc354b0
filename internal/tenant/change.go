// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/fault"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
)

// refusal says why a pod is not made or not changed, and when to try again: never if that is 0.
type refusal struct {
	reason  string
	message string
	again   time.Duration
}

// refused is a refusal for good.
func refused(reason string, err error) *refusal {
	return &refusal{reason: reason, message: err.Error()}
}

// update carries over what Kubernetes allows to change in a running pod, as far as the policies and the limits of the peer
// let it. Whatever they say, the pod stays.
func (r *shadowPodReconciler) update(ctx context.Context, seen *observation, next *decision) error {
	peer, err := r.readPeer(ctx, seen.peer)
	if err != nil {
		return err
	}
	changed, err := r.change(ctx, seen, peer)
	if err != nil {
		return err
	}
	debugged, err := r.debug(ctx, seen, peer)
	if err != nil {
		return err
	}
	next.changed(seen, v1alpha1.ConditionUpdated, changed)
	next.changed(seen, v1alpha1.ConditionDebug, debugged)
	if (changed == nil || changed.again == 0) && (debugged == nil || debugged.again == 0) {
		r.noteOf(seen.shadow).carried = carried{seen.pod.UID, seen.shadow.Generation}
	}
	return nil
}

// changed puts on record whether a change was carried over.
func (d *decision) changed(s *observation, kind string, left *refusal) {
	if left == nil {
		meta.RemoveStatusCondition(&d.status.Conditions, kind)
		return
	}
	d.since(s.now, s, kind, left.reason, left.message)
	if left.again == 0 {
		d.status.ObservedGeneration = s.shadow.Generation
		return
	}
	d.status.ObservedGeneration = s.shadow.Status.ObservedGeneration
	d.again = sooner(d.again, left.again)
}

// change carries over what home has changed of images, labels, annotations and resources. What others have changed of the
// running pod stays.
func (r *shadowPodReconciler) change(ctx context.Context, seen *observation, peer *v1alpha1.Peer) (*refusal, error) {
	want, err := build(seen, peer)
	if err != nil {
		return refused(v1alpha1.ReasonPodInvalid, err), nil
	}
	before, now := offload.NotedAsked(&seen.pod.ObjectMeta), offload.NotedAsked(&want.ObjectMeta)
	if maps.Equal(before, now) {
		return nil, nil
	}
	if left := r.ask(ctx, seen, peer, want, "the change"); left != nil {
		return left, nil
	}
	unsized, err := r.resize(ctx, seen, peer, before, want)
	if err != nil {
		return nil, err
	}
	if unsized != nil {
		offload.NoteAsked(&want.ObjectMeta, now.WithAmountsOf(before))
	}
	left, err := r.patch(ctx, seen, before, want)
	return cmp.Or(left, unsized), err
}

// patch carries over images, labels and annotations, with what was asked for.
func (r *shadowPodReconciler) patch(ctx context.Context, seen *observation, before offload.Asked, want *corev1.Pod) (*refusal, error) {
	pod := offload.Changed(seen.pod, before, want)
	if equality.Semantic.DeepEqual(seen.pod, pod) {
		return nil, nil
	}
	err := r.client.Patch(ctx, pod, client.StrategicMergeFrom(seen.pod))
	fault.Point(fault.PodUpdated)
	return r.refusalOf(ctx, err)
}

// resize carries over the resources, if the peer's limits have room for them.
func (r *shadowPodReconciler) resize(
	ctx context.Context, seen *observation, peer *v1alpha1.Peer, before offload.Asked, want *corev1.Pod,
) (*refusal, error) {
	pod := offload.Resized(seen.pod, before, want)
	if equality.Semantic.DeepEqual(seen.pod.Spec, pod.Spec) {
		return nil, nil
	}
	who := claimantOf(seen.shadow, seen.peer)
	short := r.ledger.change(who, exchange.Count(pod), limitsOf(peer).Resources)
	if short != nil {
		return &refusal{short.reason, short.keeps(), quotaRetryAtMost}, nil
	}
	err := r.client.SubResource("resize").Patch(ctx, pod, client.StrategicMergeFrom(seen.pod))
	if err != nil {
		r.ledger.see(who, exchange.Count(seen.pod))
	}
	return r.refusalOf(ctx, err)
}

// refusalOf tells what the API server does not take from what went wrong otherwise. That the pod went is neither.
func (r *shadowPodReconciler) refusalOf(ctx context.Context, err error) (*refusal, error) {
	if reason, message := quotaRefusal(err); reason != "" {
		return &refusal{reason, message, quotaRetryAtMost}, nil
	}
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		ctrl.LoggerFrom(ctx).Info("Keeping the pod as it is", "reason", err.Error())
		return refused(v1alpha1.ReasonPodRefused, err), nil
	}
	if local.IgnoreStale(err) != nil {
		return nil, fmt.Errorf("update the pod: %w", err)
	}
	return nil, nil
}

const debugForbidden = "The provider does not let this cluster debug its pods: its administrator can allow it by " +
	"spec.allowDebug of the Peer"

// debug adds the ephemeral containers that the pod does not have yet. They are never changed and never taken off.
func (r *shadowPodReconciler) debug(ctx context.Context, seen *observation, peer *v1alpha1.Peer) (*refusal, error) {
	wanted, err := offload.Debugging(seen.shadow, rulesOf(seen, peer))
	if err != nil {
		return refused(v1alpha1.ReasonPodInvalid, err), nil
	}
	pod := seen.pod.DeepCopy()
	for i := range wanted {
		if !slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool {
			return c.Name == wanted[i].Name
		}) {
			pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, wanted[i])
		}
	}
	if len(pod.Spec.EphemeralContainers) == len(seen.pod.Spec.EphemeralContainers) {
		return nil, nil
	}
	if !peer.Spec.AllowDebug {
		return &refusal{reason: v1alpha1.ReasonDebugForbidden, message: debugForbidden}, nil
	}
	err = r.client.SubResource("ephemeralcontainers").Patch(ctx, pod, client.StrategicMergeFrom(seen.pod))
	return r.refusalOf(ctx, err)
}
