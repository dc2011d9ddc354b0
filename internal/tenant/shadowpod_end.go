// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/fault"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
)

// end deletes the pod with the grace that home asked for, and lets the ShadowPod go when the pod is gone and home knows how
// it ended, if it asked for that. It returns when to look again.
func (r *shadowPodReconciler) end(ctx context.Context, shadow *v1alpha1.ShadowPod) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(shadow, v1alpha1.FinalizerShadowPod) {
		return 0, nil
	}
	pod, err := getPod(ctx, r.client, shadow)
	if err == nil && pod == nil {
		pod, err = getPod(ctx, r.live, shadow)
	}
	if err != nil {
		return 0, err
	}
	if pod != nil && madeFor(shadow, pod) {
		return 0, r.endPod(ctx, shadow, pod)
	}
	if wait, err := r.untilHeard(ctx, shadow); err != nil || wait > 0 {
		r.ledger.leave(client.ObjectKeyFromObject(shadow)) // it needs no pod any more
		return wait, err
	}
	fault.Point(fault.BeforeRelease)
	return 0, local.IgnoreStale(release(ctx, r.client, shadow, v1alpha1.FinalizerShadowPod))
}

func (r *shadowPodReconciler) endPod(ctx context.Context, shadow *v1alpha1.ShadowPod, pod *corev1.Pod) error {
	if graceLeft(pod, shadow.Spec.DeletionGracePeriodSeconds) {
		return r.delete(ctx, pod, shadow.Spec.DeletionGracePeriodSeconds)
	}
	told, err := r.tellEnd(ctx, shadow, pod)
	if err != nil || !told {
		return err
	}
	return r.release(ctx, pod)
}

// endAwaited says whether home is still to learn how the pod ended: it asks for that, or somebody takes away the twin that it
// wants, and it does not say that it knows.
func (r *shadowPodReconciler) endAwaited(ctx context.Context, shadow *v1alpha1.ShadowPod) (bool, error) {
	if asked := shadow.Annotations[v1alpha1.AnnotationReportEnd]; asked != "" {
		return asked == "true", nil
	}
	ns := &corev1.Namespace{}
	err := r.client.Get(ctx, client.ObjectKey{Name: shadow.Namespace}, ns, client.UnsafeDisableDeepCopy)
	if err != nil || ns.DeletionTimestamp.IsZero() {
		return false, client.IgnoreNotFound(err)
	}
	twin, ok := twinIn(ns)
	if !ok {
		return false, nil
	}
	return needed(ctx, r.client, twin)
}

// untilHeard is how long the record of an end still waits for home to have read it: were it gone before, home could only guess.
func (r *shadowPodReconciler) untilHeard(ctx context.Context, shadow *v1alpha1.ShadowPod) (time.Duration, error) {
	if !offload.Terminal(shadow.Status.Phase) {
		return 0, nil
	}
	awaited, err := r.endAwaited(ctx, shadow)
	if err != nil || !awaited {
		return 0, err
	}
	since := interruptedAt(&shadow.Status)
	if deleted := shadow.DeletionTimestamp.Time; deleted.After(since) {
		since = deleted
	}
	return left(endKept, r.config.Clock.Now().Sub(since)), nil
}

// tellEnd records how the pod ended, if somebody at home waits for that. It says whether nothing is left to be told.
func (r *shadowPodReconciler) tellEnd(ctx context.Context, shadow *v1alpha1.ShadowPod, pod *corev1.Pod) (bool, error) {
	if offload.Terminal(shadow.Status.Phase) {
		return true, nil
	}
	awaited, err := r.endAwaited(ctx, shadow)
	if err != nil || !awaited {
		return err == nil, err
	}
	if !offload.Terminal(pod.Status.Phase) {
		return settled(pod), nil
	}
	if shadow.Annotations[v1alpha1.AnnotationReportEnd] == "" && !endedByItself(pod) {
		return true, nil // it ended with its namespace, of which home knows
	}
	seen := &observation{shadow: shadow, pod: pod, now: r.config.Clock.Now()}
	next := decision{status: *shadow.Status.DeepCopy()}
	next.tell(seen, offload.Export(pod))
	_, err = r.record(ctx, seen, &next)
	return false, err // what was recorded brings us back
}

// release lets go of a pod whose end is on record, or that nobody waits for.
func (r *shadowPodReconciler) release(ctx context.Context, pod *corev1.Pod) error {
	if !held(pod) {
		return nil
	}
	return local.IgnoreStale(release(ctx, r.client, pod, v1alpha1.FinalizerRemotePod))
}

// releaseOrphan lets go of a pod whose record went without it: Kubernetes deletes what that owned.
func (r *shadowPodReconciler) releaseOrphan(ctx context.Context, key types.NamespacedName) error {
	pod, err := getPod(ctx, r.client, &v1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
	if err != nil || pod == nil || !held(pod) {
		return err
	}
	// The cache of records may be behind that of pods.
	if err := r.live.Get(ctx, key, &v1alpha1.ShadowPod{}); !apierrors.IsNotFound(err) {
		return err
	}
	return r.release(ctx, pod)
}

// delete deletes the pod, with its own grace unless another is named.
func (r *shadowPodReconciler) delete(ctx context.Context, pod *corev1.Pod, grace *int64) error {
	options := &client.DeleteOptions{
		Preconditions:      &metav1.Preconditions{UID: &pod.UID},
		GracePeriodSeconds: grace,
	}
	if err := local.IgnoreStale(r.client.Delete(ctx, pod, options)); err != nil {
		return fmt.Errorf("delete the pod: %w", err)
	}
	fault.Point(fault.PodDeleted)
	ctrl.LoggerFrom(ctx).Info("Deleting pod", "podUID", pod.UID)
	return nil
}

// graceLeft says whether deleting the pod with this grace would end it sooner than it ends by itself.
func graceLeft(pod *corev1.Pod, grace *int64) bool {
	if pod.DeletionTimestamp.IsZero() {
		return true
	}
	now := pod.DeletionGracePeriodSeconds
	return grace != nil && now != nil && *grace < *now
}
