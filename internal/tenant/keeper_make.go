package tenant

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

// make creates the pod if the peer may have it. What the API server answers is part of the record.
func (k *keeper) make(ctx context.Context, seen *scene, next *decision) error {
	pod, err := k.admit(ctx, seen, next)
	if err != nil || pod == nil {
		return err
	}
	if err := k.hold(ctx, seen.shadow); err != nil {
		return err
	}
	err = k.client.Create(ctx, pod)
	switch {
	case err == nil:
		k.ledger.see(claimantOf(seen.shadow, seen.peer), demandOf(pod))
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

// update carries over what Kubernetes allows to change in a running pod, images, labels and annotations, as far as the
// policies let it. Whatever they say, the pod stays.
func (k *keeper) update(ctx context.Context, seen *scene, next *decision) error {
	peer, err := k.readPeer(ctx, seen.peer)
	if err != nil {
		return err
	}
	want, err := build(seen, peer)
	if err != nil {
		k.keepAsIs(ctx, seen, next, err.Error())
		return nil
	}
	if _, differs := carriedOver(seen.pod, want); !differs {
		return nil
	}
	answer, err := k.ask(ctx, seen, peer, want)
	switch {
	case err != nil:
		ctrl.LoggerFrom(ctx).Info("The policies gave no answer", "cause", err.Error())
		next.postpone(seen)
		return nil
	case answer.Outcome != policy.Allow:
		k.keepAsIs(ctx, seen, next, answer.Reason)
		return nil
	}
	patchPod(want, answer.Pod)
	pod, differs := carriedOver(seen.pod, want)
	if !differs {
		return nil
	}
	err = k.client.Patch(ctx, pod, client.StrategicMergeFrom(seen.pod))
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		k.keepAsIs(ctx, seen, next, err.Error())
		return nil
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("update the pod: %w", err)
	}
	return nil
}

// keepAsIs notes that a change at home is not carried over, for good.
func (k *keeper) keepAsIs(ctx context.Context, seen *scene, next *decision, reason string) {
	next.status.ObservedGeneration = seen.shadow.Generation
	ctrl.LoggerFrom(ctx).Info("Keeping the pod as it is", "reason", reason)
}

// carriedOver returns the pod with what is carried over, and whether that is another one.
func carriedOver(have, want *corev1.Pod) (*corev1.Pod, bool) {
	pod := have.DeepCopy()
	carryOver(pod, want)
	return pod, !equality.Semantic.DeepEqual(have, pod)
}

func carryOver(pod, want *corev1.Pod) {
	pod.Labels = mergedEntries(pod.Labels, want.Labels)
	pod.Annotations = mergedEntries(pod.Annotations, want.Annotations)
	carryImages(pod.Spec.InitContainers, want.Spec.InitContainers)
	carryImages(pod.Spec.Containers, want.Spec.Containers)
}

// mergedEntries keeps what others in the provider's cluster have added.
func mergedEntries(have, want map[string]string) map[string]string {
	if len(want) == 0 {
		return have
	}
	out := maps.Clone(have)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, want)
	return out
}

func carryImages(have, want []corev1.Container) {
	for i := range have {
		for j := range want {
			if have[i].Name == want[j].Name && want[j].Image != "" {
				have[i].Image = want[j].Image
			}
		}
	}
}

// ignoreStale drops errors that say that the object changed or went meanwhile: its event brings us back.
func ignoreStale(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
