// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/bench/advertisements"
	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/overlay"
	"github.com/hanse-dev/hanse/internal/reflection"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// table is what a consumer of so many providers has in its cache.
func table(count int) []v1alpha1.Advertisement {
	ads := make([]v1alpha1.Advertisement, count)
	for n := range ads {
		ads[n] = *advertisements.Offer(fmt.Sprintf("p%05d", n), now)
		ads[n].Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue}}
	}
	return ads
}

func BenchmarkNewTable(b *testing.B) {
	for _, count := range []int{10, 1_000, 10_000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			ads := table(count)
			b.ReportAllocs()
			for b.Loop() {
				if rows := exchange.NewTable(ads, now).Rows; len(rows) != count {
					b.Fatalf("%d rows, want %d", len(rows), count)
				}
			}
		})
	}
}

func BenchmarkMatch(b *testing.B) {
	const count = 10_000
	built := exchange.NewTable(table(count), now)
	request := lab.Pod("home", "one").Spec.Containers[0].Resources.Requests
	b.ReportAllocs()
	for b.Loop() {
		matches := built.Match(exchange.Query{Request: request})
		if len(matches) != count || !matches[count-1].Fits {
			b.Fatalf("not all of %d rows fit", count)
		}
	}
}

func BenchmarkJudge(b *testing.B) {
	ad := &advertisements.Offer("p1", now).Spec
	b.ReportAllocs()
	for b.Loop() {
		if verdict := exchange.Judge(ad, exchange.DefaultBounds(), "p1", ad, now); !verdict.Accepted {
			b.Fatal(verdict)
		}
	}
}

// home is the pod of a burst as it is when it has been bound.
func home() *corev1.Pod {
	pod := lab.Pod("home", "one")
	pod.UID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
	pod.Spec.NodeName = "hanse-provider"
	pod.Spec.Tolerations = []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists}}
	pod.Status = corev1.PodStatus{
		Phase:      corev1.PodPending,
		Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
	}
	return pod
}

func shadow(b *testing.B, pod *corev1.Pod) *v1alpha1.ShadowPod {
	b.Helper()
	template, err := offload.Outbound(pod, "10.0.0.1")
	if err != nil {
		b.Fatal(err)
	}
	raw, err := json.Marshal(template)
	if err != nil {
		b.Fatal(err)
	}
	return &v1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "home-consumer-123456", Name: pod.Name, UID: "1"},
		Spec:       v1alpha1.ShadowPodSpec{HomeUID: pod.UID, Pod: string(raw)},
	}
}

func BenchmarkOutbound(b *testing.B) {
	pod := home()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := offload.Outbound(pod, "10.0.0.1"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	record := shadow(b, home())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := offload.Build(record, offload.Rules{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkInbound(b *testing.B) {
	pod := home()
	record := shadow(b, pod)
	remote := running(pod)
	raw, err := json.Marshal(offload.Export(remote))
	if err != nil {
		b.Fatal(err)
	}
	record.Status = v1alpha1.ShadowPodStatus{Phase: string(corev1.PodRunning), PodUID: remote.UID, Pod: &runtime.RawExtension{Raw: raw}}
	mappings := overlay.Mappings([]v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: "10.200.0.0/16"}})
	addresses := func(theirs netip.Addr) (netip.Addr, bool) { return overlay.Seen(mappings, theirs) }
	b.ReportAllocs()
	for b.Loop() {
		status, err := offload.Inbound(pod, record, addresses, remote.Status.StartTime.Time)
		if err != nil || status.PodIP != "10.200.3.4" {
			b.Fatalf("status %v, %v", status, err)
		}
	}
}

// running is the pod as its provider has it when it is Ready.
func running(pod *corev1.Pod) *corev1.Pod {
	remote := pod.DeepCopy()
	remote.UID = "remote"
	at := metav1.NewTime(now)
	remote.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.244.3.4", PodIPs: []corev1.PodIP{{IP: "10.244.3.4"}}, StartTime: &at,
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "main", Ready: true, Started: ptr.To(true), Image: pod.Spec.Containers[0].Image, ContainerID: "containerd://1",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
		}},
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		remote.Status.Conditions = append(remote.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: at})
	}
	return remote
}

func BenchmarkServices(b *testing.B) {
	const count = 1_000
	services, slices := make([]corev1.Service, count), make([]discoveryv1.EndpointSlice, count)
	for n := range count {
		meta := metav1.ObjectMeta{Namespace: "home", Name: fmt.Sprintf("s-%d", n), UID: "7c9e6679-7425-40de-944b-e07fc1f90ae7"}
		services[n] = corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": meta.Name}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
		}}
		meta.Labels = map[string]string{discoveryv1.LabelServiceName: meta.Name}
		slices[n] = discoveryv1.EndpointSlice{ObjectMeta: meta, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.7"}}}}
	}
	for _, only := range []reflection.Kind{reflection.Service, reflection.EndpointSlice} {
		view := reflection.View{Node: "hanse-provider", Reach: reflection.ReachAll, Only: only, Seen: func(home netip.Addr) (netip.Addr, bool) { return home, true }}
		b.Run(string(only), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if copies := reflection.Services(services, slices, view); len(copies.Parts) != count {
					b.Fatalf("%d Services go, want %d", len(copies.Parts), count)
				}
			}
		})
	}
}
