// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestReasonsOfTheSchedulerAreToldWithoutNodes(t *testing.T) {
	for message, want := range map[string]string{
		"": "",
		"0/5 nodes are available: 5 Insufficient cpu.": "Insufficient cpu",
		"0/5 nodes are available: 1 node(s) had untolerated taint {team: secret-project}, 2 Insufficient memory, 2 Insufficient cpu. " +
			"preemption: 0/5 nodes are available: 5 No preemption victims found for incoming pod.": "Insufficient cpu; Insufficient memory; untolerated taint",
		"0/9 nodes are available: 2 Insufficient cpu, 2 Insufficient memory, 5 node(s) had untolerated taint(s). no new claims to deallocate": "Insufficient cpu; Insufficient memory; untolerated taint",
		"0/3 nodes are available: 3 Insufficient nvidia.com/gpu.":                                                                             "Insufficient nvidia.com/gpu",
		"0/3 nodes are available: 1 Too many pods, 2 node(s) were unschedulable.":                                                             "nodes that take no pods now; too many pods",
		"0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.":                                                       "node affinity or selector",
		"0/3 nodes are available: 3 node(s) didn't have free ports for the requested pod ports.":                                              "no free ports",
		"0/3 nodes are available: 3 node(s) exceed max volume count, 3 node(s) had no available volume zone.":                                 "volumes",
		"0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.":                                                          "volumes",
		"0/3 nodes are available: 3 node(s) didn't satisfy existing pods anti-affinity rules.":                                                "pod anti-affinity",
		"no nodes available to schedule pods":                                                                                                 "no nodes",
		"node worker-7.secret.example at 10.1.2.3 said no, for rack 12":                                                                       "",
		"1 Insufficient " + strings.Repeat("x", 500):                                                                                          "Insufficient " + strings.Repeat("x", 128),
	} {
		if got := reasonsOf(message); got != want {
			t.Errorf("%q:\ngot  %q\nwant %q", message, got, want)
		}
	}
	many := ""
	for _, letter := range "abcdefghijklmnopqrstuvwxyz" {
		many += "3 Insufficient example.com/" + string(letter) + ", "
	}
	if n := strings.Count(reasonsOf(many), "Insufficient"); n != mostResources {
		t.Errorf("%d resources are named", n)
	}
}

// unplaced is what the scheduler writes into a pod that it finds no node for.
func (s *stage) unplaced(message string) func(*corev1.PodStatus) {
	return func(status *corev1.PodStatus) {
		status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: message, LastTransitionTime: metav1.NewTime(s.Clock.Now()),
		}}
	}
}

// placed gives the pod a node.
func (s *stage) placed() {
	s.Helper()
	pod := s.pod()
	pod.Spec.NodeName = "worker-1"
	s.Home.Put(pod)
	s.becomes(s.running)
}

const shortOfCPU = "0/3 nodes are available: 3 Insufficient cpu."

func TestPodWithoutRoomIsToldOfWellBeforeItIsGivenUpAtHome(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	s.becomes(s.unplaced(shortOfCPU))
	if again := s.run(); again != noRoomDelay {
		t.Errorf("looks again in %s", again)
	}
	s.Home.ExpectWrites("create Pod web")
	s.Clock.Step(noRoomDelay)
	if again := s.run(); again != 0 { // its events tell
		t.Errorf("looks again in %s", again)
	}
	s.Home.ExpectWrites("update/status ShadowPod web")
	s.expectScheduled(v1alpha1.ReasonNoRoom, noRoom+": Insufficient cpu", testkit.Noon)

	// The scheduler tries again and again.
	s.Clock.Step(5 * time.Second)
	s.becomes(func(status *corev1.PodStatus) {
		status.Conditions[0].Message = "0/4 nodes are available: 4 Insufficient cpu."
	})
	s.run()
	s.Home.ExpectWrites()

	s.placed()
	s.run()
	s.Home.ExpectWrites("update/status ShadowPod web")
	testkit.ExpectCondition(s, s.shadow().Status.Conditions, v1alpha1.ConditionScheduled, metav1.ConditionTrue, "Scheduled")
}

func TestRoomThatIsFoundSoonIsNoNews(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	s.becomes(s.unplaced(shortOfCPU))
	s.run()
	s.placed()
	s.run()
	s.Home.ExpectWrites("create Pod web", "update/status ShadowPod web")
}

// The time of the condition is that from which home waits, so it must not be that of what stood against the pod before.
func TestWaitForRoomBeginsAnew(t *testing.T) {
	s := newStage(t, shadowPod())
	allow := s.Home.Refuse("create Pod", forbidden403())
	s.run()
	allow()
	s.Clock.Step(refusedFor / 2)
	s.run()
	s.becomes(s.unplaced(shortOfCPU))
	s.run()
	s.expectScheduled(v1alpha1.ReasonNoRoom, noRoom+": Insufficient cpu", testkit.Noon.Add(refusedFor/2))
}
