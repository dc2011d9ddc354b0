package tenant

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// How long the pods of a twin that goes may take to end. A peer chooses the grace of its pods, and must not stay for years
// by that.
const (
	partingGrace = 30 * time.Second
	removalGrace = time.Hour
)

// hurry ends those pods of a twin that would take longer than so long to end. The others end with the namespace.
func hurry(ctx context.Context, c client.Client, namespace string, atMost time.Duration) error {
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the pods in namespace %s: %w", namespace, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if graceOf(pod) <= atMost {
			continue
		}
		err := c.Delete(ctx, pod.DeepCopy(), &client.DeleteOptions{
			Preconditions:      &metav1.Preconditions{UID: &pod.UID},
			GracePeriodSeconds: ptr.To(int64(atMost / time.Second)),
		})
		// In a namespace that is going, our right to do this may have gone first.
		if ignoreStale(err) != nil && !apierrors.IsForbidden(err) {
			return fmt.Errorf("end pod %s/%s: %w", namespace, pod.Name, err)
		}
	}
	return nil
}

// graceOf returns how long the pod may take to end.
func graceOf(pod *corev1.Pod) time.Duration {
	grace := ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	if pod.DeletionGracePeriodSeconds != nil {
		grace = *pod.DeletionGracePeriodSeconds
	}
	// More seconds than a Duration can hold are many.
	return time.Duration(min(grace, int64(24*time.Hour/time.Second))) * time.Second
}
