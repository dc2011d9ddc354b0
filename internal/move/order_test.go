// SPDX-License-Identifier: Apache-2.0

package move

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var noon = time.Date(2031, 5, 7, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-d)) }

// runningPod was created two hours ago, and is Ready for one, on a node of its own.
func runningPod(name string, change ...func(*corev1.Pod)) corev1.Pod {
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), CreationTimestamp: ago(2 * time.Hour), Annotations: map[string]string{},
			Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "1"},
		},
		Spec: corev1.PodSpec{NodeName: "node-of-" + name},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(time.Hour)},
		}},
	}
	for _, c := range change {
		c(&pod)
	}
	return pod
}

func unready(p *corev1.Pod)    { p.Status.Conditions[0].Status = corev1.ConditionFalse }
func pending(p *corev1.Pod)    { p.Status.Phase = corev1.PodPending }
func unassigned(p *corev1.Pod) { p.Spec.NodeName = "" }
func ending(p *corev1.Pod)     { p.DeletionTimestamp = ptr.To(ago(0)) }
func failed(p *corev1.Pod)     { p.Status.Phase = corev1.PodFailed }

func ofNoDeployment(p *corev1.Pod) { p.Labels = nil }

func cost(value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[corev1.PodDeletionCost] = value }
}

func on(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

func readyFor(d time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime = ago(d) }
}

func createdBefore(d time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.CreationTimestamp = ago(d) }
}

func restarted(times int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: times}}
	}
}

func sidecarRestarted(times int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "proxy", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}, {Name: "init"}}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "proxy", RestartCount: times}, {Name: "init", RestartCount: 100 - times}}
	}
}

// Each rule decides against all that come after it. The pod that is to go is always b, and its UID is the larger one.
func TestDeletionOrder(t *testing.T) {
	worse := []func(*corev1.Pod){readyFor(time.Second), restarted(9), createdBefore(time.Second)} // what comes last in the order
	for name, test := range map[string]struct {
		a, b   []func(*corev1.Pod)
		others []corev1.Pod
		want   string
	}{
		"one without a node goes before one that is pending": {a: append([]func(*corev1.Pod){pending, unready}, worse...), b: []func(*corev1.Pod){unassigned, pending, unready}, want: "b a"},
		"a pending one before one that is not Ready":         {a: append([]func(*corev1.Pod){unready, cost("-5")}, worse...), b: []func(*corev1.Pod){pending, unready}, want: "b a"},
		"one that is not Ready before a cheaper one":         {a: append([]func(*corev1.Pod){cost(LowestCost)}, worse...), b: []func(*corev1.Pod){unready, cost(HighestCost)}, want: "b a"},
		"a cheaper one before one with neighbours":           {a: append([]func(*corev1.Pod){on("x")}, worse...), b: []func(*corev1.Pod){cost("-1")}, others: []corev1.Pod{runningPod("c", on("x"), cost("7"))}, want: "b a c"},
		"nor is one with a plus or a zero":                   {a: []func(*corev1.Pod){cost("+7"), createdBefore(time.Hour)}, b: []func(*corev1.Pod){cost("07"), readyFor(time.Minute)}, want: "b a"},
		"what is no cost is none":                            {a: []func(*corev1.Pod){cost("cheap")}, b: []func(*corev1.Pod){cost("-1")}, want: "b a"},
		"one with neighbours before one Ready for less":      {a: worse, b: []func(*corev1.Pod){on("x")}, others: []corev1.Pod{runningPod("c", on("x"), cost("7"))}, want: "b a c"},
		"a ReplicaSet alone knows no neighbours":             {a: []func(*corev1.Pod){ofNoDeployment, on("x")}, b: []func(*corev1.Pod){ofNoDeployment, readyFor(time.Minute)}, others: []corev1.Pod{runningPod("c", ofNoDeployment, on("x"), cost("7"))}, want: "b a c"},
		"one Ready for less before one restarted more":       {a: []func(*corev1.Pod){readyFor(time.Hour), restarted(9)}, b: []func(*corev1.Pod){readyFor(20 * time.Minute)}, want: "b a"},
		"times within one power of two are equal, and the UID decides, not restarts": {
			a: []func(*corev1.Pod){readyFor(100 * time.Minute)}, b: []func(*corev1.Pod){readyFor(90 * time.Minute), restarted(9)}, want: "a b",
		},
		"one restarted more before a younger one":        {a: []func(*corev1.Pod){createdBefore(time.Hour)}, b: []func(*corev1.Pod){restarted(1)}, want: "b a"},
		"sidecars count where the others are equal":      {a: []func(*corev1.Pod){sidecarRestarted(1)}, b: []func(*corev1.Pod){sidecarRestarted(2)}, want: "b a"},
		"a younger one, where all else is equal":         {b: []func(*corev1.Pod){createdBefore(time.Hour)}, want: "b a"},
		"what ends or has ended does not count":          {a: []func(*corev1.Pod){ending}, others: []corev1.Pod{runningPod("c", failed)}, want: "b"},
		"neighbours that end are none":                   {a: []func(*corev1.Pod){on("x")}, b: []func(*corev1.Pod){createdBefore(time.Hour)}, others: []corev1.Pod{runningPod("c", on("x"), ending)}, want: "b a"},
		"the copy stays and the original goes":           {a: []func(*corev1.Pod){cost(HighestCost), readyFor(time.Second)}, b: []func(*corev1.Pod){cost(LowestCost)}, want: "b a"},
		"without a broken sibling, which goes before it": {a: []func(*corev1.Pod){unready}, b: []func(*corev1.Pod){cost(LowestCost)}, want: "a b"},
	} {
		t.Run(name, func(t *testing.T) {
			pods := append([]corev1.Pod{runningPod("a", test.a...), runningPod("b", test.b...)}, test.others...)
			var got []string
			for _, pod := range DeletionOrder(pods, noon) {
				got = append(got, pod.Name)
			}
			if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}
