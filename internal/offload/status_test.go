// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"encoding/json"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

var (
	noon = metav1.NewTime(time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC).Local())
	one  = metav1.NewTime(noon.Add(time.Hour))
	// after is when home looks.
	after = metav1.NewTime(noon.Add(2 * time.Hour))
)

// here is how this cluster sees 10.244.0.0/16 and fd01::/48 of the peer.
func here(theirs netip.Addr) (netip.Addr, bool) {
	bytes := theirs.AsSlice()
	switch {
	case netip.MustParsePrefix("10.244.0.0/16").Contains(theirs):
		bytes[1] = 99
	case netip.MustParsePrefix("fd01::/48").Contains(theirs):
		bytes[1] = 2
	default:
		return netip.Addr{}, false
	}
	return netip.AddrFromSlice(bytes)
}

func condition(kind corev1.PodConditionType, status corev1.ConditionStatus) corev1.PodCondition {
	return corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: noon}
}

// remotePod is a running pod at the provider.
func remotePod() *corev1.Pod {
	yes := true
	return &corev1.Pod{
		Spec: corev1.PodSpec{NodeName: "secret-node-7"},
		Status: corev1.PodStatus{
			Phase:              corev1.PodRunning,
			ObservedGeneration: 4,
			NominatedNodeName:  "secret-node-7",
			HostIP:             "192.0.2.7",
			HostIPs:            []corev1.HostIP{{IP: "192.0.2.7"}, {IP: "2001:db8::7"}},
			PodIP:              "10.244.3.4",
			PodIPs:             []corev1.PodIP{{IP: "10.244.3.4"}},
			StartTime:          &noon,
			QOSClass:           corev1.PodQOSBurstable,
			Conditions: []corev1.PodCondition{
				condition(corev1.PodReadyToStartContainers, corev1.ConditionTrue),
				condition(corev1.PodInitialized, corev1.ConditionTrue),
				condition(corev1.ContainersReady, corev1.ConditionTrue),
				condition(corev1.PodReady, corev1.ConditionTrue),
				condition(corev1.PodScheduled, corev1.ConditionTrue),
				condition("example.com/theirs", corev1.ConditionTrue),
			},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "c", Image: "i", ImageID: "sha256:1", ContainerID: "containerd://1", Ready: true, Started: &yes, RestartCount: 1,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: noon}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					ExitCode: 3, Reason: "Error", Message: "bye", StartedAt: noon, FinishedAt: noon, ContainerID: "containerd://0",
				}},
			}},
			InitContainerStatuses: []corev1.ContainerStatus{{
				Name: "init", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
					Reason: "ErrImagePull", Message: "pull on secret-node-7 (192.0.2.7)",
				}},
			}},
		},
	}
}

func recorded(t *testing.T, status corev1.PodStatus) *v1alpha1.ShadowPod {
	t.Helper()
	raw, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	shadow := shadowOf(`{}`)
	shadow.Generation, shadow.Annotations = 3, map[string]string{v1alpha1.AnnotationHomeRevision: "1-c0ffee"}
	shadow.Status = v1alpha1.ShadowPodStatus{
		ObservedGeneration: 3, Phase: string(status.Phase), PodUID: "remote-uid", Pod: &runtime.RawExtension{Raw: raw},
	}
	return shadow
}

func boundHome() *corev1.Pod {
	home := homePod()
	home.Spec.ReadinessGates = nil
	home.Spec.InitContainers = []corev1.Container{{Name: "init"}}
	home.Status = corev1.PodStatus{
		Phase: corev1.PodPending, QOSClass: corev1.PodQOSBestEffort, HostIP: "198.51.100.1",
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: one},
			{Type: "example.com/gate", Status: corev1.ConditionFalse, LastTransitionTime: one},
		},
	}
	return home
}

func TestExportShowsNothingOfTheNode(t *testing.T) {
	raw, err := json.Marshal(Export(remotePod()))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"secret-node-7", "192.0.2.7", "2001:db8::7", "example.com/theirs"} {
		if strings.Contains(string(raw), secret) {
			t.Errorf("%s is in %s", secret, raw)
		}
	}
}

func TestExportDoesNotCountNodes(t *testing.T) {
	pod := remotePod()
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/42 nodes are available",
	}}
	want := []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: safeMessages[corev1.PodReasonUnschedulable],
	}}
	if diff := cmp.Diff(want, Export(pod).Conditions); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestRoundTripLosesNothingThatKubectlShows(t *testing.T) {
	remote := remotePod()
	got, err := Inbound(boundHome(), recorded(t, Export(remote)), here, after.Time)
	if err != nil {
		t.Fatal(err)
	}
	at := func(c corev1.PodCondition) corev1.PodCondition {
		c.ObservedGeneration = 1
		return c
	}
	want := corev1.PodStatus{
		Phase: corev1.PodRunning, ObservedGeneration: 1, QOSClass: corev1.PodQOSBestEffort, HostIP: "198.51.100.1",
		PodIP: "10.99.3.4", PodIPs: []corev1.PodIP{{IP: "10.99.3.4"}}, StartTime: &noon,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: one},
			{Type: "example.com/gate", Status: corev1.ConditionFalse, LastTransitionTime: one},
			at(condition(corev1.PodReadyToStartContainers, corev1.ConditionTrue)),
			at(condition(corev1.PodInitialized, corev1.ConditionTrue)),
			at(condition(corev1.ContainersReady, corev1.ConditionTrue)),
			at(condition(corev1.PodReady, corev1.ConditionTrue)),
		},
		ContainerStatuses:     remote.Status.ContainerStatuses,
		InitContainerStatuses: remote.Status.InitContainerStatuses,
	}
	want.InitContainerStatuses[0].State.Waiting.Message = "pull on (node) ((node))"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	home := boundHome()
	home.Status = got
	again, err := Inbound(home, recorded(t, Export(remote)), here, after.Time)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("a second look changes the status:\n%s", diff)
	}
}

func TestInboundDoubtsTheClaim(t *testing.T) {
	status := corev1.PodStatus{
		Phase: "Singing", PodIP: "127.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.1.1.1"}, {IP: "x"}, {IP: "10.244.0.9"}},
		HostIP: "10.9.9.9", NominatedNodeName: "n", QOSClass: "Best", Message: strings.Repeat("ä", 2000),
		Conditions: []corev1.PodCondition{
			condition(corev1.PodScheduled, corev1.ConditionFalse), condition("example.com/gate", corev1.ConditionTrue),
			condition(corev1.PodReady, "Perhaps"),
		},
		ContainerStatuses: []corev1.ContainerStatus{
			{Name: "stranger"}, {Name: "c", RestartCount: -5, ImageID: strings.Repeat("x", 5000)}, {Name: "c"},
		},
	}
	home := boundHome()
	got, err := Inbound(home, recorded(t, status), here, after.Time)
	if err != nil {
		t.Fatal(err)
	}
	want := *home.Status.DeepCopy()
	want.ObservedGeneration = 1
	want.PodIP, want.PodIPs = "10.99.0.9", []corev1.PodIP{{IP: "10.99.0.9"}}
	want.Message = strings.Repeat("ä", 512)
	want.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", ImageID: strings.Repeat("x", 1024)}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestInboundRefusesRecordsThatAreNone(t *testing.T) {
	other := recorded(t, corev1.PodStatus{})
	other.Spec.HomeUID = "other"
	broken := shadowOf(`{}`)
	broken.Status.Pod = &runtime.RawExtension{Raw: []byte(`{"phase":7}`)}
	huge := shadowOf(`{}`)
	huge.Status.Pod = &runtime.RawExtension{Raw: []byte(strings.Repeat(" ", v1alpha1.MaxShadowPodBytes) + "{}")}
	slow := shadowOf(`{}`)
	slow.Status.Pod = &runtime.RawExtension{Raw: []byte(`{"allocatedResources":{"cpu":"1e1000000000"}}`)}
	for name, shadow := range map[string]*v1alpha1.ShadowPod{"other": other, "broken": broken, "huge": huge, "slow": slow} {
		home := boundHome()
		got, err := Inbound(home, shadow, here, after.Time)
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		if diff := cmp.Diff(home.Status, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

func TestPhaseThatGoesHome(t *testing.T) {
	platform := corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
	for name, c := range map[string]struct {
		home        corev1.PodPhase
		deleting    bool
		status      corev1.PodStatus
		recordPhase corev1.PodPhase
		want        corev1.PodPhase
	}{
		"a completed pod has succeeded":                    {"Running", false, corev1.PodStatus{Phase: "Succeeded"}, "Succeeded", "Succeeded"},
		"a pod that failed by itself has failed":           {"Running", false, corev1.PodStatus{Phase: "Failed"}, "Failed", "Failed"},
		"an evicted pod goes on":                           {"Running", false, platform, "Failed", "Running"},
		"a phase that the record does not confirm is none": {"Running", false, corev1.PodStatus{Phase: "Failed"}, "Running", "Running"},
		"a pod that home deletes may end":                  {"Running", true, platform, "Failed", "Failed"},
		"an ended pod never lives again":                   {"Succeeded", false, corev1.PodStatus{Phase: "Running"}, "Running", "Succeeded"},
	} {
		t.Run(name, func(t *testing.T) {
			home := boundHome()
			home.Status.Phase = c.home
			if c.deleting {
				home.DeletionTimestamp = &noon
			}
			shadow := recorded(t, c.status)
			shadow.Status.Phase = string(c.recordPhase)
			got, err := Inbound(home, shadow, here, after.Time)
			if err != nil {
				t.Fatal(err)
			}
			if got.Phase != c.want {
				t.Errorf("got %s, want %s", got.Phase, c.want)
			}
		})
	}
}

func TestInterruptedPodIsOnlyNotReady(t *testing.T) {
	before := Export(remotePod())
	got, err := Inbound(boundHome(), recorded(t, Interrupted(&before, "Remade")), here, after.Time)
	if err != nil {
		t.Fatal(err)
	}
	ready := PodCondition(&got, corev1.PodReady)
	if got.Phase != corev1.PodRunning || ready.Status != corev1.ConditionFalse || ready.Reason != "Remade" {
		t.Errorf("got phase %s, condition %v", got.Phase, ready)
	}
	if got.ContainerStatuses[0].State.Running == nil {
		t.Error("the container's state changed")
	}
}

func TestRestartsNeverGoBack(t *testing.T) {
	shadow := recorded(t, Export(remotePod()))
	shadow.Status.Restarts = map[string]int32{"c": 4, "stranger": 9}
	got, err := Inbound(boundHome(), shadow, here, after.Time)
	if err != nil {
		t.Fatal(err)
	}
	if n := got.ContainerStatuses[0].RestartCount; n != 5 {
		t.Errorf("got %d restarts, want 5", n)
	}
	shadow.Status.Restarts["c"] = 1<<31 - 1
	got, err = Inbound(boundHome(), shadow, here, after.Time)
	if err != nil {
		t.Fatal(err)
	}
	if n := got.ContainerStatuses[0].RestartCount; n != 1<<31-1 {
		t.Errorf("got %d restarts, want the largest number", n)
	}
}

// The API server refuses a status in which a container that may not restart leaves its terminated state.
func TestContainerOfARemadePodKeepsItsEnd(t *testing.T) {
	ended := corev1.ContainerStatus{Name: "c", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 0, FinishedAt: noon},
	}}
	home := boundHome()
	home.Status.ContainerStatuses = []corev1.ContainerStatus{ended}
	for policy, stays := range map[corev1.RestartPolicy]bool{"Never": true, "OnFailure": true, "Always": false} {
		home.Spec.RestartPolicy = policy
		got, err := Inbound(home, recorded(t, Export(remotePod())), here, after.Time)
		if err != nil {
			t.Fatal(err)
		}
		if (got.ContainerStatuses[0].State.Terminated != nil) != stays {
			t.Errorf("%s: got state %v", policy, got.ContainerStatuses[0].State)
		}
	}
}

func TestReadinessGatesAreJudgedAtHome(t *testing.T) {
	home := boundHome()
	home.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	ready := func() *corev1.PodCondition {
		got, err := Inbound(home, recorded(t, Export(remotePod())), here, after.Time)
		if err != nil {
			t.Fatal(err)
		}
		return PodCondition(&got, corev1.PodReady)
	}
	if c := ready(); c.Status != corev1.ConditionFalse || c.Reason != "ReadinessGatesNotReady" {
		t.Errorf("closed gate: got %v", c)
	}
	home.Status.Conditions[1].Status = corev1.ConditionTrue
	if c := ready(); c.Status != corev1.ConditionTrue || !c.LastTransitionTime.Equal(&one) {
		t.Errorf("open gate: got %v", c)
	}
}

func TestPlatformFailures(t *testing.T) {
	disrupted := []corev1.PodCondition{condition(corev1.DisruptionTarget, corev1.ConditionTrue)}
	for name, c := range map[string]struct {
		status   corev1.PodStatus
		platform bool
		ended    bool
	}{
		"running":             {corev1.PodStatus{Phase: "Running"}, false, false},
		"succeeded":           {corev1.PodStatus{Phase: "Succeeded", Conditions: disrupted}, false, true},
		"own failure":         {corev1.PodStatus{Phase: "Failed"}, false, true},
		"deadline":            {corev1.PodStatus{Phase: "Failed", Reason: "DeadlineExceeded"}, false, true},
		"disrupted":           {corev1.PodStatus{Phase: "Failed", Conditions: disrupted}, true, false},
		"evicted":             {corev1.PodStatus{Phase: "Failed", Reason: "Evicted"}, true, false},
		"out of cpu":          {corev1.PodStatus{Phase: "Failed", Reason: "OutOfcpu"}, true, false},
		"node shutdown":       {corev1.PodStatus{Phase: "Failed", Reason: "NodeShutdown"}, true, false},
		"admission":           {corev1.PodStatus{Phase: "Failed", Reason: "UnexpectedAdmissionError"}, true, false},
		"node affinity":       {corev1.PodStatus{Phase: "Failed", Reason: "NodeAffinity"}, true, false},
		"disrupted but alive": {corev1.PodStatus{Phase: "Running", Conditions: disrupted}, false, false},
	} {
		if got := FailedByPlatform(&c.status); got != c.platform {
			t.Errorf("%s: FailedByPlatform is %t", name, got)
		}
		if got := Ended(&c.status); got != c.ended {
			t.Errorf("%s: Ended is %t", name, got)
		}
	}
}

func TestAddressesAreThoseOfThisCluster(t *testing.T) {
	for name, c := range map[string]struct {
		claimed []string
		m       AddressMap
		want    []corev1.PodIP
	}{
		"one of each family":    {[]string{"10.244.3.4", "fd01::4", "10.244.3.5", "fd01::5"}, here, []corev1.PodIP{{IP: "10.99.3.4"}, {IP: "fd02::4"}}},
		"what is in disguise":   {[]string{"::ffff:10.244.3.4"}, here, []corev1.PodIP{{IP: "10.99.3.4"}}},
		"what is of a link":     {[]string{"fd01::4%eth0"}, here, []corev1.PodIP{{IP: "fd02::4"}}},
		"what the peer has not": {[]string{"10.96.0.1", "nonsense", ""}, here, nil},
		"what nobody can see":   {[]string{"10.244.3.4"}, nil, nil},
	} {
		remote := &corev1.PodStatus{PodIP: c.claimed[0]}
		for _, ip := range c.claimed {
			remote.PodIPs = append(remote.PodIPs, corev1.PodIP{IP: ip})
		}
		var out corev1.PodStatus
		takeAddresses(&out, remote, c.m)
		if diff := cmp.Diff(c.want, out.PodIPs); diff != "" || len(c.want) > 0 && out.PodIP != c.want[0].IP {
			t.Errorf("%s: %q and (-want +got):\n%s", name, out.PodIP, diff)
		}
	}
}

func TestToBeMadeAgainIsARestart(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	pod := &corev1.PodStatus{
		InitContainerStatuses: []corev1.ContainerStatus{{Name: "init", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}},
		ContainerStatuses: []corev1.ContainerStatus{
			{Name: "runs", State: running, RestartCount: 2},
			{Name: "never ran"},
			{Name: "absurd", State: running, RestartCount: math.MaxInt32},
		},
		EphemeralContainerStatuses: []corev1.ContainerStatus{{Name: "debug", State: running}},
	}
	want := map[string]int32{"init": 1, "runs": 7, "absurd": math.MaxInt32}
	if diff := cmp.Diff(want, AddRestarts(map[string]int32{"runs": 4}, pod)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
