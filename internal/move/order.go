// SPDX-License-Identifier: Apache-2.0

package move

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The costs that a move gives its pods: the controller deletes the original rather than any other pod, and the copy last.
const (
	LowestCost  = "-2147483648"
	HighestCost = "2147483647"
)

// DeletionOrder returns the active ones of a ReplicaSet's pods in the order in which it deletes them when it has too many. It
// is that of Kubernetes 1.36 and 1.37, whose source is Less of ActivePodsWithRanks in pkg/controller/controller_utils.go, and
// getPodsToDelete in pkg/controller/replicaset/replica_set.go. There only pods of a Deployment have neighbours on their node, and
// those of its other ReplicaSets are among them. A ReplicationController keeps the order of a ReplicaSet alone.
func DeletionOrder(pods []corev1.Pod, now time.Time) []*corev1.Pod {
	var order []*corev1.Pod
	neighbours := map[string]int{} // node → active pods of a Deployment
	for i := range pods {
		if !isActive(&pods[i]) {
			continue
		}
		order = append(order, &pods[i])
		if pods[i].Labels[appsv1.DefaultDeploymentUniqueLabelKey] != "" {
			neighbours[pods[i].Spec.NodeName]++
		}
	}
	slices.SortStableFunc(order, func(a, b *corev1.Pod) int {
		return cmp.Or(
			falseFirst(a.Spec.NodeName != "", b.Spec.NodeName != ""),
			cmp.Compare(phaseRank(a), phaseRank(b)),
			falseFirst(isReady(a), isReady(b)),
			cmp.Compare(deletionCost(a), deletionCost(b)),
			cmp.Compare(neighbours[b.Spec.NodeName], neighbours[a.Spec.NodeName]),
			youngestFirst(readySince(a), readySince(b), a, b, now),
			cmp.Compare(restarts(b, false), restarts(a, false)),
			cmp.Compare(restarts(b, true), restarts(a, true)),
			youngestFirst(a.CreationTimestamp, b.CreationTimestamp, a, b, now),
		)
	})
	return order
}

// isActive says whether a controller counts the pod.
func isActive(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

func phaseRank(pod *corev1.Pod) int {
	switch pod.Status.Phase {
	case corev1.PodPending:
		return 0
	case corev1.PodUnknown:
		return 1
	default:
		return 2
	}
}

func isReady(pod *corev1.Pod) bool {
	since := readySince(pod)
	return !since.IsZero()
}

// readySince is zero where the pod is not Ready.
func readySince(pod *corev1.Pod) metav1.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime
		}
	}
	return metav1.Time{}
}

// deletionCost is 0 where the annotation is missing or no such number, as for the controller, for which +7 and 07 are none.
func deletionCost(pod *corev1.Pod) int32 {
	text := pod.Annotations[corev1.PodDeletionCost]
	cost, err := strconv.ParseInt(text, 10, 32)
	if err != nil || text[0] == '+' || text[0] == '0' {
		return 0
	}
	return int32(cost)
}

// youngestFirst compares times as a controller does: by the power of two of how long ago they are, in nanoseconds. Among pods of
// one such power the UID decides, not the time.
func youngestFirst(since, than metav1.Time, a, b *corev1.Pod, now time.Time) int {
	if since.Equal(&than) {
		return 0
	}
	return cmp.Or(cmp.Compare(power(since, now), power(than, now)), cmp.Compare(a.UID, b.UID))
}

func power(since metav1.Time, now time.Time) int64 {
	if since.IsZero() {
		return math.MinInt64
	}
	if ago := now.Sub(since.Time); ago > 0 {
		return int64(math.Log2(float64(ago)))
	}
	return -1
}

// restarts are those of the container that was restarted most often, among sidecars or among the others.
func restarts(pod *corev1.Pod, ofSidecars bool) int32 {
	statuses := pod.Status.ContainerStatuses
	if ofSidecars {
		statuses = slices.DeleteFunc(slices.Clone(pod.Status.InitContainerStatuses), func(s corev1.ContainerStatus) bool {
			return !slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
				return c.Name == s.Name && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
			})
		})
	}
	var most int32
	for i := range statuses {
		most = max(most, statuses[i].RestartCount)
	}
	return most
}
