// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestExportHidesTheAddressesOfTheProvider(t *testing.T) {
	const (
		lookup = "failed to pull image \"registry.example.com/a:1\": lookup registry.example.com on 10.96.0.10:53: no such host"
		hidden = "failed to pull image \"registry.example.com/a:1\": lookup registry.example.com on (address): no such host"
		own    = "cannot reach 10.96.0.10:53"
	)
	pod := remotePod()
	pod.Status.Message = lookup
	pod.Status.Conditions[0].Message = lookup
	ended := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, Message: message}}
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "waits", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: lookup}}},
		{Name: "knows", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Message: "it listens on 10.244.3.4:80"}}},
		{Name: "fails", State: ended("StartError", lookup), LastTerminationState: ended("Error", own)},
	}
	got := Export(pod)
	said := []string{
		got.Message, got.Conditions[1].Message, got.ContainerStatuses[0].State.Waiting.Message,
		got.ContainerStatuses[1].State.Waiting.Message, got.ContainerStatuses[2].State.Terminated.Message,
		got.ContainerStatuses[2].LastTerminationState.Terminated.Message,
	}
	if diff := cmp.Diff([]string{hidden, hidden, hidden, "it listens on 10.244.3.4:80", hidden, own}, said); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLieAboutRestartsDoesNotStay(t *testing.T) {
	home := boundHome()
	home.CreationTimestamp = noon
	shows := func(restarts, earlier, recreations int32) int32 {
		remote := remotePod()
		remote.Status.ContainerStatuses[0].RestartCount = restarts
		shadow := recorded(t, Export(remote))
		shadow.Status.Restarts, shadow.Status.Recreations = map[string]int32{"c": earlier}, recreations
		got, err := Inbound(home, shadow, here, after.Time)
		if err != nil {
			t.Fatal(err)
		}
		home.Status = got
		return got.ContainerStatuses[0].RestartCount
	}
	const most = 2*60*60 + restartsAtOnce // one for each second of its life
	if got := shows(math.MaxInt32, math.MaxInt32, 0); got != most {
		t.Errorf("got %d restarts, want %d", got, most)
	}
	if got := shows(3, 0, 0); got != 3 {
		t.Errorf("got %d restarts of the same container, want the 3 that its provider tells now", got)
	}
	home.Status.ContainerStatuses[0].ContainerID, home.Status.ContainerStatuses[0].RestartCount = "containerd://lie", math.MaxInt32
	if shows(3, 0, 0); shows(3, 0, 0) != 3 {
		t.Error("a lie about another container stays")
	}
	home.Status.ContainerStatuses[0].RestartCount = math.MaxInt32
	if got := shows(3, 0, 1); got != most {
		t.Errorf("got %d restarts of a pod that was made again, want %d", got, most)
	}
	home.CreationTimestamp = metav1.NewTime(after.Add(time.Hour))
	if got := shows(math.MaxInt32, 0, 0); got != restartsAtOnce {
		t.Errorf("got %d restarts of a pod from the future, want %d", got, restartsAtOnce)
	}
}
