// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestWaitingInVainShowsWhyThePodsDoNotRun(t *testing.T) {
	testkit.WithTimeout(t, func(ctx context.Context, t *testing.T) {
		deployment, pod := crashing()
		m := mustRender(t, options())
		err := newCluster(t, deployment, pod).WaitAvailable(ctx, m)
		if err == nil || !strings.Contains(err.Error(), "ended last with code 1: the id of this cluster is lubeck") {
			t.Errorf("got %v", err)
		}
	})
}

func TestTroubles(t *testing.T) {
	now := time.Now()
	waits := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	ended := func(ago time.Duration) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 2, Reason: "OOMKilled", FinishedAt: metav1.NewTime(now.Add(-ago)),
		}}
	}
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	for name, test := range map[string]struct {
		status corev1.ContainerStatus
		want   string
	}{
		"starts":                       {corev1.ContainerStatus{State: waits("ContainerCreating", "")}, ""},
		"has no image":                 {corev1.ContainerStatus{State: waits("ErrImagePull", "no such image")}, "ErrImagePull: no such image"},
		"ended":                        {corev1.ContainerStatus{State: ended(0)}, "code 2: OOMKilled"},
		"runs, and is not ready yet":   {corev1.ContainerStatus{State: runs}, ""},
		"runs again for a moment":      {corev1.ContainerStatus{State: runs, LastTerminationState: ended(time.Minute), RestartCount: 1}, "code 2"},
		"is ready for a moment":        {corev1.ContainerStatus{State: runs, Ready: true, LastTerminationState: ended(time.Minute), RestartCount: 4}, "4 times"},
		"was restarted once":           {corev1.ContainerStatus{State: runs, Ready: true, LastTerminationState: ended(time.Minute), RestartCount: 1}, ""},
		"was restarted long ago":       {corev1.ContainerStatus{State: runs, Ready: true, LastTerminationState: ended(time.Hour), RestartCount: 9}, ""},
		"is ready, and has never died": {corev1.ContainerStatus{State: runs, Ready: true, RestartCount: 0}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			deployment, pod := crashing()
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{test.status}
			got := strings.Join(Troubles(deployment, []corev1.Pod{*pod}, now.Add(-10*time.Minute)), "; ")
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	deployment, pod := crashing()
	pod.Status = corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no room"},
	}}
	deployment.Status.Conditions = []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: "quota"},
	}
	other := pod.DeepCopy()
	other.Labels = nil
	got := strings.Join(Troubles(deployment, []corev1.Pod{*pod, *other}, now), "; ")
	if want := "FailedCreate: quota; pod hanse-manager-new: Unschedulable: no room"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
