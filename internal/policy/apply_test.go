// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestOfferPatchApply(t *testing.T) {
	eur := func(cpu string) *v1alpha1.Prices {
		return &v1alpha1.Prices{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{"cpu": resource.MustParse(cpu)}}
	}
	for name, test := range map[string]struct {
		patch       OfferPatch
		change      func(want *v1alpha1.AdvertisementSpec)
		corrections []string
	}{
		"nothing":         {OfferPatch{}, func(*v1alpha1.AdvertisementSpec) {}, nil},
		"what is already": {OfferPatch{Availability: list("cpu", "12.5"), Labels: map[string]v1alpha1.Text{"topology.kubernetes.io/region": "eu-south"}}, func(*v1alpha1.AdvertisementSpec) {}, nil},
		"less than the largest pod": {
			OfferPatch{Availability: list("cpu", "2", "memory", "32Gi")},
			func(want *v1alpha1.AdvertisementSpec) {
				want.Availability["cpu"], want.Availability["memory"] = resource.MustParse("2"), resource.MustParse("32Gi")
				want.LargestPod["cpu"] = resource.MustParse("2")
			},
			[]string{"spec.availability[cpu]: 12500m → 2", "spec.availability[memory]: 64Gi → 32Gi", "spec.largestPod[cpu]: 4 → 2"},
		},
		"zero": {
			OfferPatch{Availability: list("nvidia.com/gpu", "0", "pods", "0", "amd.com/gpu", "0")},
			func(want *v1alpha1.AdvertisementSpec) {
				delete(want.Availability, "nvidia.com/gpu")
				want.Availability["pods"], want.LargestPod["pods"] = resource.MustParse("0"), resource.MustParse("0")
			},
			[]string{
				"spec.availability[nvidia.com/gpu]: 2 → none", "spec.availability[pods]: 110 → 0", "spec.largestPod[pods]: 1 → 0",
			},
		},
		"more": {
			OfferPatch{Availability: list("example.com/fpga", "1"), LargestPod: list("cpu", "100")},
			func(want *v1alpha1.AdvertisementSpec) {
				want.Availability["example.com/fpga"], want.LargestPod["cpu"] = resource.MustParse("1"), resource.MustParse("12.5")
			},
			[]string{
				"spec.availability[example.com/fpga]: none → 1", "spec.largestPod[cpu]: 4 → 12500m",
			},
		},
		"prices": {
			OfferPatch{Prices: eur("0.01")},
			func(want *v1alpha1.AdvertisementSpec) { want.Prices = eur("0.01") },
			[]string{"spec.prices.perHour[cpu]: 31m → 10m", "spec.prices.perHour[nvidia.com/gpu]: 2 → none"},
		},
		"free": {
			OfferPatch{Prices: &v1alpha1.Prices{}},
			func(want *v1alpha1.AdvertisementSpec) { want.Prices = nil },
			[]string{
				"spec.prices.currency: EUR → none", "spec.prices.perHour[cpu]: 31m → none", "spec.prices.perHour[nvidia.com/gpu]: 2 → none",
			},
		},
		"labels, flags and images": {
			OfferPatch{
				Labels: map[string]v1alpha1.Text{"topology.kubernetes.io/region": "", "tier": "b\n", "absent": ""},
				Flags:  map[string]v1alpha1.Text{"aggregatable": "true"}, HideImages: true,
			},
			func(want *v1alpha1.AdvertisementSpec) {
				want.Labels = map[string]v1alpha1.Text{"tier": "b\n"}
				want.Flags = map[string]v1alpha1.Text{"aggregatable": "true"}
				want.Images = nil
			},
			[]string{
				`spec.labels[tier]: none → "b "`, `spec.labels[topology.kubernetes.io/region]: "eu-south" → none`,
				`spec.flags[aggregatable]: "false" → "true"`, "spec.images: 1 → none",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			original := offer()
			got, want := *original, offer() // got shares its maps with the original, as a shallow copy does
			test.change(want)
			corrections := test.patch.Apply(&got)
			if diff := cmp.Diff(*want, got, byValue); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(test.corrections, corrections); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(offer(), original, byValue); diff != "" {
				t.Errorf("what it shares was changed: %s", diff)
			}
		})
	}
}

func TestCorrectionsAndMapsAreBounded(t *testing.T) {
	patch := OfferPatch{Labels: map[string]v1alpha1.Text{}, Flags: map[string]v1alpha1.Text{}, Availability: corev1.ResourceList{}}
	for i := range maxEntries {
		patch.Labels[fmt.Sprintf("l%d", i)] = v1alpha1.Text(strings.Repeat("x", 63))
		patch.Flags[strings.Repeat("ü", 150)+fmt.Sprint(i)] = v1alpha1.Text(strings.Repeat("ü", 100))
		patch.Availability[corev1.ResourceName(fmt.Sprintf("example.com/%d", i))] = resource.MustParse("1")
	}
	spec := offer()
	corrections := patch.Apply(spec)
	if len(spec.Labels) != maxEntries || len(spec.Flags) != maxEntries || len(spec.Availability) != maxEntries {
		t.Errorf("%d labels, %d flags, %d resources", len(spec.Labels), len(spec.Flags), len(spec.Availability))
	}
	if len(corrections) != maxCorrections || !strings.HasPrefix(corrections[maxCorrections-1], "and ") {
		t.Errorf("%d corrections, the last of them %q", len(corrections), corrections[len(corrections)-1])
	}
	for _, correction := range corrections {
		if len(correction) > maxCorrection {
			t.Errorf("%d bytes: %s", len(correction), correction)
		}
	}
}

func TestPodPatchApply(t *testing.T) {
	priority := int32(1000)
	shared := map[string]string{"app": "web", v1alpha1.LabelHomeUID: "uid"}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: shared, Annotations: map[string]string{"a": "b"}},
		Spec:       corev1.PodSpec{PriorityClassName: "high", Priority: &priority},
	}
	PodPatch{
		Labels:            map[string]string{"app": "guest", v1alpha1.LabelHomeUID: "another", "sub.hanse.dev/x": "y"},
		Annotations:       map[string]string{"c": "d", v1alpha1.AnnotationDecision: "Accept"},
		NodeSelector:      map[string]string{"pool": "guests"},
		PriorityClassName: "low", RuntimeClassName: "gvisor",
	}.Apply(pod)
	gvisor := "gvisor"
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{"app": "guest", v1alpha1.LabelHomeUID: "uid"},
			Annotations: map[string]string{"a": "b", "c": "d"},
		},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"pool": "guests"}, PriorityClassName: "low", RuntimeClassName: &gvisor,
		},
	}
	if diff := cmp.Diff(want, pod); diff != "" {
		t.Error(diff)
	}
	if shared["app"] != "web" {
		t.Error("what it shares was changed")
	}
	before := pod.DeepCopy()
	PodPatch{}.Apply(pod)
	if diff := cmp.Diff(before, pod); diff != "" {
		t.Error(diff)
	}
}
