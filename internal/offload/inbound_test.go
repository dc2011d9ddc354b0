// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestPodThatIsGivenUpFails(t *testing.T) {
	shadow := recorded(t, Export(remotePod()))
	shadow.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionUnrecoverable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPodRefused, Message: "no quota",
	}}
	got, err := Inbound(boundHome(), shadow, here, after.Time)
	if err != nil {
		t.Fatal(err)
	}
	reason, message, is := GivenUp(shadow)
	if ready := PodCondition(&got, corev1.PodReady).Status; !is || got.Phase != corev1.PodRunning || ready != corev1.ConditionFalse {
		t.Errorf("before it is failed: given up %t, phase %s, ready %s", is, got.Phase, ready)
	}
	GiveUp(&got, reason, message, after.Time)
	if got.Phase != corev1.PodFailed || got.Reason != "PodRefused" || got.Message != "no quota" {
		t.Errorf("got %s, %s, %s", got.Phase, got.Reason, got.Message)
	}
	if ended := got.ContainerStatuses[0].State.Terminated; ended == nil || !ended.FinishedAt.Equal(&after) {
		t.Errorf("its container ended %v", ended)
	}
	if c := PodCondition(&got, corev1.DisruptionTarget); !FailedByPlatform(&got) || !c.LastTransitionTime.Equal(&after) {
		t.Errorf("it looks as if its own containers had failed: %v", got.Conditions)
	}
}

func TestPodThatEndsThereUnaskedIsNotReady(t *testing.T) {
	shadow := recorded(t, Export(remotePod()))
	shadow.DeletionTimestamp = &one
	home := boundHome()
	home.Status.Conditions = append(home.Status.Conditions, condition(corev1.PodReady, corev1.ConditionTrue))
	got, err := Inbound(home, shadow, here, after.Time)
	if err != nil {
		t.Fatal(err)
	}
	ready := PodCondition(&got, corev1.PodReady)
	if got.Phase != corev1.PodRunning || ready.Status != corev1.ConditionFalse || !ready.LastTransitionTime.Equal(&after) {
		t.Errorf("phase %s, Ready %v", got.Phase, ready)
	}
	home.DeletionTimestamp = &one
	if got, _ := Inbound(home, shadow, here, after.Time); PodCondition(&got, corev1.PodReady).Status != corev1.ConditionTrue {
		t.Error("a pod that home deletes, and that ends as it should, is shown as interrupted")
	}
}

func TestGenerationIsObservedWhenTheProviderHasBroughtItAbout(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.ShadowPod)
		want   int64
	}{
		"what is done is claimed":                 {func(*v1alpha1.ShadowPod) {}, 4},
		"what was not carried out yet is not":     {func(s *v1alpha1.ShadowPod) { s.Annotations[v1alpha1.AnnotationHomeRevision] = "3-f" }, 3},
		"nor what the provider has not looked at": {func(s *v1alpha1.ShadowPod) { s.Generation = 9 }, 2},
		"nor what it has left out": {func(s *v1alpha1.ShadowPod) {
			s.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionUpdated, Status: metav1.ConditionFalse}}
		}, 2},
		"never more than there is":                          {func(s *v1alpha1.ShadowPod) { s.Annotations[v1alpha1.AnnotationHomeRevision] = "77-f" }, 4},
		"never less than before":                            {func(s *v1alpha1.ShadowPod) { s.Annotations[v1alpha1.AnnotationHomeRevision] = "-5" }, 2},
		"a record without a revision says nothing about it": {func(s *v1alpha1.ShadowPod) { s.Annotations = nil }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			home := boundHome()
			home.Generation, home.Status.ObservedGeneration = 4, 2
			shadow := recorded(t, Export(remotePod()))
			shadow.Annotations[v1alpha1.AnnotationHomeRevision] = "4-f"
			c.change(shadow)
			got, err := Inbound(home, shadow, here, after.Time)
			if err != nil {
				t.Fatal(err)
			}
			if ready := PodCondition(&got, corev1.PodReady); got.ObservedGeneration != c.want || ready.ObservedGeneration != c.want {
				t.Errorf("observed %d and %d, want %d", got.ObservedGeneration, ready.ObservedGeneration, c.want)
			}
		})
	}
}

// claimedAt is a pod whose provider says that everything happened at that time.
func claimedAt(at metav1.Time) corev1.PodStatus {
	return corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &at,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: at}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "c", ContainerID: "two", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ContainerID: "one", StartedAt: at, FinishedAt: at,
			}},
		}},
	}
}

// times returns all times in the status.
func times(s *corev1.PodStatus) []metav1.Time {
	c := &s.ContainerStatuses[0]
	ready, ended := PodCondition(s, corev1.PodReady), c.LastTerminationState.Terminated
	return []metav1.Time{
		*s.StartTime, ready.LastTransitionTime, c.State.Running.StartedAt, ended.StartedAt, ended.FinishedAt,
	}
}

func TestTimesOfAProviderAreWithinTheLifeOfThePod(t *testing.T) {
	for name, c := range map[string]struct{ claimed, want metav1.Time }{
		"a time of the pod's life is believed":     {one, one},
		"one before it is when it was created":     {metav1.NewTime(noon.Add(-time.Hour)), noon},
		"one in the future is now":                 {metav1.NewTime(noon.Add(1000 * time.Hour)), after},
		"so is one of another millennium":          {metav1.NewTime(noon.AddDate(5000, 0, 0)), after},
		"and one at the beginning is the creation": {metav1.NewTime(time.Unix(0, 0)), noon},
	} {
		t.Run(name, func(t *testing.T) {
			home := boundHome()
			home.CreationTimestamp = noon
			shadow := recorded(t, claimedAt(c.claimed))
			got, err := Inbound(home, shadow, here, after.Time)
			if err != nil {
				t.Fatal(err)
			}
			for i, at := range times(&got) {
				if !at.Equal(&c.want) {
					t.Errorf("time %d is %s, want %s", i, at, c.want)
				}
			}
			home.Status = got
			again, err := Inbound(home, shadow, here, after.Add(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, again); diff != "" {
				t.Errorf("an hour later something moves (-before +after):\n%s", diff)
			}
		})
	}
}

func TestPodsShowAddressesOfTheFamiliesOfTheirHome(t *testing.T) {
	four, six := netip.MustParseAddr("10.244.0.7"), netip.MustParseAddr("fd00::7")
	for name, test := range map[string]struct {
		own         []netip.Addr
		shown, want string
	}{
		"nothing is known of home":            {nil, "100.64.0.1 fd68:616e::1", "100.64.0.1 fd68:616e::1"},
		"home has IPv6 alone":                 {[]netip.Addr{six}, "100.64.0.1 fd68:616e::1", "fd68:616e::1"},
		"home has IPv4 alone":                 {[]netip.Addr{four}, "fd68:616e::1 100.64.0.1", "100.64.0.1"},
		"home has both, IPv6 first":           {[]netip.Addr{six, four}, "100.64.0.1 fd68:616e::1", "fd68:616e::1 100.64.0.1"},
		"home has both, the peer one of them": {[]netip.Addr{four, six}, "fd68:616e::1", "fd68:616e::1"},
		"there is none in common":             {[]netip.Addr{four}, "fd68:616e::1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			status := corev1.PodStatus{}
			for _, ip := range strings.Fields(test.shown) {
				status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: ip})
			}
			status.PodIP = status.PodIPs[0].IP
			ShowFamilies(&status, test.own)
			var got []string
			for _, ip := range status.PodIPs {
				got = append(got, ip.IP)
			}
			first, _, _ := strings.Cut(test.want, " ")
			if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" || status.PodIP != first {
				t.Errorf("PodIP is %q (-want +got):\n%s", status.PodIP, diff)
			}
		})
	}
}
