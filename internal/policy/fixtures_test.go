// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) // a Friday

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func request() corev1.ResourceList { return list("cpu", "1500m", "memory", "1Gi") }

func wish(prefer v1alpha1.PlacementPreference) *v1alpha1.Placement {
	return &v1alpha1.Placement{Prefer: prefer}
}

func peer() *v1alpha1.Peer {
	return &v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: "turin", Labels: map[string]string{"tier": "gold"}},
		Spec:       v1alpha1.PeerSpec{ClusterID: "turin-1", Roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider}},
		Status: v1alpha1.PeerStatus{
			Conditions:    []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}},
			RoundTripTime: &metav1.Duration{Duration: 12500 * time.Microsecond},
			Bandwidth:     resource.NewQuantity(12e6, resource.DecimalSI), Throughput: resource.NewQuantity(1000, resource.DecimalSI),
			LossPercent: ptr.To[int32](3),
		},
	}
}

func offer() *v1alpha1.AdvertisementSpec {
	return &v1alpha1.AdvertisementSpec{
		ClusterID: "turin-1", Sequence: 7,
		Timestamp: metav1.NewTime(now), TimeToLive: metav1.NewTime(now.Add(30 * time.Minute)),
		Availability: list("cpu", "12500m", "memory", "64Gi", "pods", "110", "ephemeral-storage", "0", "nvidia.com/gpu", "2"),
		LargestPod:   list("cpu", "4", "memory", "16Gi", "pods", "1"),
		Prices: &v1alpha1.Prices{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{
			"cpu": resource.MustParse("0.031"), "nvidia.com/gpu": resource.MustParse("2"),
		}},
		Labels:        map[string]v1alpha1.Text{"topology.kubernetes.io/region": "eu-south"},
		Flags:         map[string]v1alpha1.Text{"aggregatable": "false"},
		Extensions:    map[string]v1alpha1.Extension{"example.com/green": "{}"},
		Architectures: []string{"amd64"}, KubernetesVersion: "v1.37.1",
		Images: []v1alpha1.Image{{Names: []string{"docker.io/library/nginx:1"}, SizeBytes: 70_000_000}},
	}
}

// rows are offers of peers p0, p1 and so on, each dearer and further away than the one before.
func rows(n int) []TableRow {
	table := make([]TableRow, n)
	for i := range table {
		ad := offer()
		ad.Prices.PerHour["cpu"] = resource.MustParse(fmt.Sprintf("0.%04d", i+1))
		table[i] = TableRow{
			Peer: fmt.Sprintf("p%d", i), Open: true, Offer: ad, RoundTrip: time.Duration(i+1) * time.Millisecond,
		}
	}
	return table
}

func compile(t testing.TB, question Question, sources ...string) *Set {
	t.Helper()
	set, err := Compile(question, modules(question, sources...))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// modules are cm/0.rego, cm/1.rego and so on, each with its package in the first line.
func modules(question Question, sources ...string) []Module {
	list := []Module{}
	for i, source := range sources {
		list = append(list, Module{
			Name:   fmt.Sprintf("cm/%d.rego", i),
			Source: fmt.Sprintf("package hanse.%s\n%s", question, source),
		})
	}
	return list
}
