// SPDX-License-Identifier: Apache-2.0

package market

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// evictedAtOnce is how many pods are evicted in one look. The rest follow in the next.
const evictedAtOnce = 50

// isReplaced reports whether the peer is cut off for longer than the user wants to wait for it.
func (s *scene) isReplaced(peer string) bool {
	since, cut := s.cutOff[peer]
	asked := s.app.Spec.Placement
	return cut && asked != nil && asked.ReplaceAfter != nil && s.now.Sub(since) >= asked.ReplaceAfter.Duration
}

// untilReplaced is how soon the first of the components that are cut off is to be placed elsewhere.
func (s *scene) untilReplaced(status *v1alpha1.ApplicationStatus) time.Duration {
	soon := livenessInterval
	if asked := s.app.Spec.Placement; asked != nil && asked.ReplaceAfter != nil {
		for _, c := range status.Components {
			if c.LostSince != nil {
				soon = min(soon, max(time.Second, c.LostSince.Add(asked.ReplaceAfter.Duration).Sub(s.now)))
			}
		}
	}
	return soon
}

// evictLost evicts pods of components from clusters that are cut off for too long, once the components have their room elsewhere. Their
// owners then make others, which go there. Those at the peer end when it is back: until then they run on, as any pod does whose cluster
// is cut off.
func (a *applications) evictLost(ctx context.Context, seen *scene, status *v1alpha1.ApplicationStatus) error {
	if status.Phase != v1alpha1.ApplicationPlaced || len(seen.cutOff) == 0 {
		return nil
	}
	evicted := 0
	for _, pod := range seen.pods {
		if !pod.DeletionTimestamp.IsZero() || !seen.isReplaced(peerOf(pod)) {
			continue
		}
		if err := a.evict(ctx, seen.app, pod); err != nil {
			return err
		}
		if evicted++; evicted == evictedAtOnce {
			break
		}
	}
	return nil
}

// evict evicts the pod. What a PodDisruptionBudget keeps is told, and tried again at the next look.
func (a *applications) evict(ctx context.Context, app *v1alpha1.Application, pod *corev1.Pod) error {
	eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}}
	err := a.Client.SubResource("eviction").Create(ctx, pod.DeepCopy(), eviction)
	switch {
	case apierrors.IsTooManyRequests(err):
		a.Events.Eventf(app, pod, corev1.EventTypeWarning, v1alpha1.ReasonEvictionBlocked, "Evict",
			"Pod %s is at a cluster that is cut off, and cannot be replaced: %v", pod.Name, err)
		return nil
	case client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err):
		return fmt.Errorf("evict pod %s: %w", client.ObjectKeyFromObject(pod), err)
	case err == nil:
		a.Events.Eventf(app, pod, corev1.EventTypeNormal, v1alpha1.ReasonClusterLost, "Evict", "Evicted pod %s from %s, which is cut off", pod.Name, peerOf(pod))
	}
	return nil
}
