// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func warning(reason, message string, count int32, at time.Time) v1alpha1.RemoteEvent {
	return v1alpha1.RemoteEvent{
		Type: "Warning", Reason: reason, Message: message, Source: v1alpha1.SourceKubelet, Count: count,
		First: metav1.NewTime(at), Last: metav1.NewTime(at),
	}
}

func TestEventsNameNoNode(t *testing.T) {
	pod := &corev1.Pod{
		Spec: corev1.PodSpec{NodeName: "worker-1", Containers: []corev1.Container{{Name: "c", Image: "192.0.2.80:5000/shop:1"}}},
		Status: corev1.PodStatus{
			HostIP: "192.0.2.5", PodIP: "10.244.1.7", PodIPs: []corev1.PodIP{{IP: "10.244.1.7"}, {IP: "fd00:10::7"}},
		},
	}
	for says, want := range map[string]string{
		"on worker-1 at 192.0.2.5": "on (node) at (node)",
		`Get "http://10.244.1.7:8080/": dial tcp 10.244.1.7:8080: connect: connection refused`: `Get "http://10.244.1.7:8080/": dial tcp 10.244.1.7:8080: connect: connection refused`,
		"read tcp 10.244.1.1:40312->10.244.1.7:8080: reset":                                    "read tcp (address)->10.244.1.7:8080: reset",
		"lookup registry.example on 10.96.0.10:53: no such host":                               "lookup registry.example on (address): no such host",
		"pull 192.0.2.80:5000/shop:1":                                                          "pull 192.0.2.80:5000/shop:1",
		"dial tcp [fd00:10::7]:80 from [fd00:20::1]:4321":                                      "dial tcp [fd00:10::7]:80 from (address)",
		"from fe80::1 at 12:30:45":                                                             "from (address) at 12:30:45",
		"two\nlines\x1b[2J\xff":                                                                "two lines [2J",
		"127.0.0.1:80 refused":                                                                 "127.0.0.1:80 refused",
	} {
		if got := ExportEvent(pod, new(warning("Unhealthy", says, 1, noon.Time))).Message; got != want {
			t.Errorf("%q becomes %q, want %q", says, got, want)
		}
	}
	sandbox := ExportEvent(pod, new(warning("FailedCreatePodSandBox", "plugin bridge on eth7 failed", 1, noon.Time)))
	if strings.Contains(sandbox.Message, "eth7") {
		t.Errorf("tells %q", sandbox.Message)
	}
	if long := ExportEvent(pod, new(warning("Failed", strings.Repeat("x", 5000), 1, noon.Time))); len(long.Message) > maxEventText {
		t.Errorf("%d bytes", len(long.Message))
	}
}

func TestReadEvent(t *testing.T) {
	said := func(change func(*corev1.Event)) *corev1.Event {
		event := &corev1.Event{
			Type: "Warning", Reason: "Unhealthy", Message: "m", Source: corev1.EventSource{Component: "kubelet", Host: "worker-1"},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", FieldPath: "spec.containers{web}"},
			FirstTimestamp: noon, LastTimestamp: one, Count: 4,
		}
		if change != nil {
			change(event)
		}
		return event
	}
	got, ok := ReadEvent(said(nil))
	want := v1alpha1.RemoteEvent{
		Type: "Warning", Reason: "Unhealthy", Container: "web", Message: "m", Source: "Kubelet", Count: 4, First: noon, Last: one,
	}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("ok %v, -want +got:\n%s", ok, diff)
	}
	for name, change := range map[string]func(*corev1.Event){
		"names a node":         func(e *corev1.Event) { e.Type, e.Reason = "Normal", "Scheduled" },
		"counts nodes":         func(e *corev1.Event) { e.Reason = "FailedScheduling" },
		"another type":         func(e *corev1.Event) { e.Type = "Normal" },
		"another component":    func(e *corev1.Event) { e.Source.Component = "scheduler" },
		"only Hanse says this": func(e *corev1.Event) { e.Reason = eventMadeAgain },
	} {
		if _, ok := ReadEvent(said(change)); ok {
			t.Errorf("%s: is told", name)
		}
	}
}

func TestEventsOfOtherObjectsThanPods(t *testing.T) {
	for name, c := range map[string]struct {
		about, component, kind, reason string
		told                           bool
	}{
		"a volume is not made":          {"PersistentVolumeClaim", "rancher.io/local-path", "Warning", "ProvisioningFailed", true},
		"a node waits":                  {"PersistentVolumeClaim", "persistentvolume-controller", "Normal", "WaitForFirstConsumer", false},
		"a kubelet has grown it":        {"PersistentVolumeClaim", "kubelet", "Normal", "FileSystemResizeSuccessful", true},
		"no kubelet provisions":         {"PersistentVolumeClaim", "kubelet", "Warning", "ProvisioningFailed", false},
		"endpoints are not written":     {"Service", "endpoint-slice-controller", "Warning", "FailedToUpdateEndpointSlices", true},
		"a balancer of the provider's":  {"Service", "service-controller", "Normal", "EnsuringLoadBalancer", false},
		"any reason about other kinds":  {"Widget", "widgets", "Normal", "Assembled", true},
		"no reason in several words":    {"Widget", "widgets", "Normal", "Assembled on worker", false},
		"no type that Kubernetes lacks": {"Widget", "widgets", "Loud", "Assembled", false},
	} {
		event := &corev1.Event{
			Type: c.kind, Reason: c.reason, Source: corev1.EventSource{Component: c.component},
			InvolvedObject: corev1.ObjectReference{Kind: c.about},
		}
		if _, told := ReadEvent(event); told != c.told {
			t.Errorf("%s: told %v", name, told)
		}
	}
}

func TestEventsOfOtherObjectsNameNoNode(t *testing.T) {
	nodes := map[string]bool{"worker-1": true, "worker-2.example.com": true}
	failed := v1alpha1.RemoteEvent{Type: "Warning", Reason: "ProvisioningFailed", Source: v1alpha1.SourceKubernetes}
	for says, want := range map[string]string{
		"no room on worker-1: 3 GiB left":               "no room on (node): 3 GiB left",
		"worker-1.local, Worker-2.example.com, worker-": "(node), (node), worker-",
		"worker-10 is none; dial tcp 10.0.0.3:443":      "worker-10 is none; dial tcp (address)",
	} {
		failed.Message = says
		if got := ExportEventOf("PersistentVolumeClaim", &failed, nodes).Message; got != want {
			t.Errorf("%q becomes %q, want %q", says, got, want)
		}
	}
	made := v1alpha1.RemoteEvent{Type: "Normal", Reason: "ProvisioningSucceeded", Source: v1alpha1.SourceKubernetes, Message: "made pvc-9"}
	if got := ExportEventOf("PersistentVolumeClaim", &made, nil).Message; strings.Contains(got, "pvc-9") {
		t.Errorf("names the volume: %q", got)
	}
}

func TestAddEvent(t *testing.T) {
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	var told []v1alpha1.RemoteEvent
	add := func(e v1alpha1.RemoteEvent) { told = AddEvent(told, e) }
	add(warning("Unhealthy", "a", 1, at(0)))
	add(warning("BackOff", "b", 3, at(1)))
	add(warning("Unhealthy", "a", 5, at(2)))
	add(warning("Unhealthy", "a", 4, at(1))) // seen again
	repeated := warning("Unhealthy", "a", 5, at(2))
	repeated.First = noon
	if diff := cmp.Diff([]v1alpha1.RemoteEvent{warning("BackOff", "b", 3, at(1)), repeated}, told); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	add(warning("Unhealthy", "a", 1, at(3))) // another kubelet process begins to count anew
	if got := told[1].Count; got != 6 {
		t.Errorf("count %d", got)
	}
	told[1].Count = math.MaxInt32
	add(warning("Unhealthy", "a", 1, at(4)))
	if got := told[1].Count; got < 1 {
		t.Errorf("count %d", got)
	}
}

func TestEventsAreFewAndHearingThemAgainChangesNothing(t *testing.T) {
	var all, told []v1alpha1.RemoteEvent
	for i := range 40 {
		all = append(all, warning([]string{"Failed", "BackOff", "Unhealthy", "FailedMount", "Evicted"}[i%5], fmt.Sprint("m", i), 1, noon.Add(time.Duration(i)*time.Second)))
	}
	for _, e := range all {
		told = AddEvent(told, e)
	}
	if len(told) != v1alpha1.MaxRemoteEvents || told[len(told)-1].Message != "m39" {
		t.Errorf("%d events: %v", len(told), told)
	}
	again := told
	for _, e := range all {
		again = AddEvent(again, e)
	}
	if diff := cmp.Diff(told, again); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestInboundEventsOfOtherObjectsAreClaims(t *testing.T) {
	home := &corev1.Service{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: noon}}
	said := func(reason string) v1alpha1.RemoteEvent {
		e := warning(reason, "m\x1b", 0, noon.Add(-time.Hour))
		e.Source, e.Container = v1alpha1.SourceKubernetes, "c"
		return e
	}
	want := said("FailedToUpdateEndpointSlices")
	want.Message, want.Count, want.First, want.Last, want.Container = "m ", 1, noon, noon, ""
	told := []v1alpha1.RemoteEvent{said("Invented"), said("FailedToUpdateEndpointSlices"), said("FailedToUpdateEndpointSlices")}
	if diff := cmp.Diff([]v1alpha1.RemoteEvent{want}, InboundEventsOf("Service", home, told, one.Time)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if many := InboundEventsOf("Widget", home, slices.Repeat(told, 100), one.Time); len(many) > v1alpha1.MaxRemoteEvents {
		t.Errorf("%d events", len(many))
	}
}

func TestInboundEventsAreClaims(t *testing.T) {
	home := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "home-uid", CreationTimestamp: noon},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}},
	}
	shadow := &v1alpha1.ShadowPod{Spec: v1alpha1.ShadowPodSpec{HomeUID: "home-uid"}}
	early, late := noon.Add(-time.Hour), noon.Add(100*time.Hour)
	invented := warning("Unhealthy", "probe\x1b[31m", 0, early)
	invented.Last, invented.Container = metav1.NewTime(late), "stranger"
	started := v1alpha1.RemoteEvent{
		Type: "Normal", Reason: "Started", Container: "c", Source: v1alpha1.SourceKubelet, Count: 1, First: one, Last: one,
	}
	shadow.Status.Events = []v1alpha1.RemoteEvent{
		started, invented, invented, warning("Invented", "", 1, noon.Time), warning("Started", "", 1, noon.Time), {},
	}
	now := one.Time
	want := []v1alpha1.RemoteEvent{warning("Unhealthy", "probe [31m", 1, noon.Time), started}
	want[0].Last = metav1.NewTime(now)
	if diff := cmp.Diff(want, InboundEvents(home, shadow, now)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for range 100 {
		shadow.Status.Events = append(shadow.Status.Events, started)
	}
	if got := InboundEvents(home, shadow, now); len(got) > v1alpha1.MaxRemoteEvents {
		t.Errorf("%d events", len(got))
	}
	shadow.Spec.HomeUID = "other"
	if got := InboundEvents(home, shadow, now); got != nil {
		t.Errorf("takes %v of another pod", got)
	}
}
