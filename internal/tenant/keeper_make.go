package tenant

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/fault"
)

// make creates the pod if the peer may have it. What the API server answers is part of the record.
func (k *keeper) make(ctx context.Context, seen *scene, next *decision) error {
	began := k.config.Clock.Now()
	pod, err := k.admit(ctx, seen, next)
	if err != nil || pod == nil {
		return err
	}
	if err := k.hold(ctx, seen.shadow); err != nil {
		return err
	}
	fault.Point(fault.BeforePod)
	err = k.create(ctx, seen.shadow, pod, began)
	switch {
	case err == nil:
		fault.Point(fault.PodCreated)
		k.carried.set(client.ObjectKeyFromObject(seen.shadow), carried{pod.UID, seen.shadow.Generation})
		k.wake(k.ledger.see(claimantOf(seen.shadow, seen.peer), demandOf(pod)))
		ctrl.LoggerFrom(ctx).Info("Created pod", "podUID", pod.UID)
		return nil
	case apierrors.IsAlreadyExists(err):
		return k.taken(ctx, seen, next)
	case apierrors.IsInvalid(err) || apierrors.IsForbidden(err):
		k.refused(seen, next, err)
		return nil
	default:
		return fmt.Errorf("create the pod: %w", err)
	}
}

// refused records why the API server does not take the pod. A quota counts late that a pod has ended, so its refusal
// costs the pod its room only when it lasts: else all that wait would try, one after the other.
func (k *keeper) refused(seen *scene, next *decision, err error) {
	lasting := true
	switch reason, message := quotaRefusal(err); {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		next.giveUp(seen, v1alpha1.ReasonNamespaceTerminating, "The twin namespace is being deleted")
	case apierrors.IsInvalid(err):
		next.giveUp(seen, v1alpha1.ReasonPodRefused, err.Error())
	case reason != "":
		lasting = next.retry(seen, reason, message, quotaRetryAtMost) >= refusedFor
		if lasting && reason == v1alpha1.ReasonLimitExceeded && seen.shadow.Status.PodUID != "" {
			next.giveUp(seen, reason, message)
		}
	default:
		next.refused(seen, err.Error())
	}
	if lasting {
		k.leave(client.ObjectKeyFromObject(seen.shadow))
	}
}

// hold puts the finalizer on where the API server's policy has not: without it the record could go before its pod.
func (k *keeper) hold(ctx context.Context, shadow *v1alpha1.ShadowPod) error {
	before := shadow.DeepCopy()
	if !controllerutil.AddFinalizer(shadow, v1alpha1.FinalizerShadowPod) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := k.client.Patch(ctx, shadow, patch); err != nil {
		return fmt.Errorf("add the finalizer: %w", err)
	}
	return nil
}

// taken looks at the pod that has the name. Our own is not in the cache yet, and will come.
func (k *keeper) taken(ctx context.Context, seen *scene, next *decision) error {
	pod, err := getPod(ctx, k.live, seen.shadow)
	if err != nil {
		return err
	}
	if pod == nil {
		next.again = retryAtLeast
		return nil
	}
	if !madeFor(seen.shadow, pod) {
		next.nameTaken(seen)
		k.leave(client.ObjectKeyFromObject(seen.shadow))
	}
	return nil
}

// ignoreStale drops errors that say that the object changed or went meanwhile: its event brings us back.
func ignoreStale(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
