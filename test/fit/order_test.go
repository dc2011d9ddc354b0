// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller"
	"pgregory.net/rapid"

	"github.com/hanse-dev/hanse/internal/move"
)

// Which pod a ReplicaSet deletes we know as the controller itself does. Neighbours in the list are compared, and no others: what the
// controller compares by is no order among three, since the UID decides between some of them.
func TestDeletionOrderIsThatOfTheController(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Now()
		var pods []corev1.Pod
		ofDeployment := rapid.Bool().Draw(t, "ofDeployment")
		for i := range rapid.IntRange(2, 5).Draw(t, "pods") {
			pods = append(pods, drawPodOf(t, i, now))
			if ofDeployment {
				pods[i].Labels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "1"}
			}
		}
		order := move.DeletionOrder(pods, now)
		theirs := controller.ActivePodsWithRanks{Pods: order, Now: metav1.NewTime(now)}
		onNode := map[string]int{}
		for _, pod := range order {
			if pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != "" { // for a ReplicaSet alone the controller counts none
				onNode[pod.Spec.NodeName]++
			}
		}
		for _, pod := range order {
			theirs.Rank = append(theirs.Rank, onNode[pod.Spec.NodeName])
		}
		for i := 1; i < len(order); i++ {
			if theirs.Less(i, i-1) {
				t.Fatalf("the controller deletes %s before %s:\n%+v\n%+v", order[i].Name, order[i-1].Name, order[i], order[i-1])
			}
		}
		if active := controller.FilterActivePods(klog.Background(), pointers(pods)); len(active) != len(order) {
			t.Fatalf("the controller counts %d pods, and we %d", len(active), len(order))
		}
	})
}

func pointers(pods []corev1.Pod) (all []*corev1.Pod) {
	for i := range pods {
		all = append(all, &pods[i])
	}
	return all
}

// drawPodOf draws a pod from so few values that most rules find no difference between two of them.
func drawPodOf(t *rapid.T, i int, now time.Time) corev1.Pod {
	draw := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label) }
	ago := func(label string) metav1.Time {
		seconds, _ := strconv.Atoi(draw(label, "0", "1", "60", "3000", "3600", "5000", "100000"))
		return metav1.NewTime(now.Add(-time.Duration(seconds) * time.Second))
	}
	always := corev1.ContainerRestartPolicyAlways
	restarts := func(label string) int32 { return rapid.Int32Range(0, 2).Draw(t, label) }
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("pod-%d", i), UID: types.UID(draw("uid", "a", "b", "c", "d") + strconv.Itoa(i)), CreationTimestamp: ago("created"),
			Annotations: map[string]string{corev1.PodDeletionCost: draw("cost", "", "0", "-7", "7", "+7", "07", "cheap", move.LowestCost, move.HighestCost, "2147483648")},
		},
		Spec: corev1.PodSpec{
			NodeName:       draw("node", "", "x", "y"),
			InitContainers: []corev1.Container{{Name: "proxy", RestartPolicy: &always}, {Name: "init"}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodPhase(draw("phase", "Pending", "Running", "Running", "Running", "Unknown", "Failed", "Succeeded")),
			Conditions: []corev1.PodCondition{{
				Type: corev1.PodReady, Status: corev1.ConditionStatus(draw("ready", "True", "True", "False")), LastTransitionTime: ago("since"),
			}},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "main", RestartCount: restarts("restarts")}},
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "proxy", RestartCount: restarts("proxy")}, {Name: "init", RestartCount: restarts("init")}},
		},
	}
	if rapid.Bool().Draw(t, "ends") && i > 2 {
		pod.DeletionTimestamp = &pod.CreationTimestamp
	}
	return pod
}
