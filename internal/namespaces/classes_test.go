// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/policy"
)

func class(name string, spec v1alpha1.Placement) v1alpha1.PlacementClass {
	return v1alpha1.PlacementClass{Name: name, PodLabels: map[string]v1alpha1.LabelValue{"tier": v1alpha1.LabelValue(name)}, Placement: spec}
}

// newClassWorld is a market whose namespace shop wants the cheapest and no other, and has these classes.
func newClassWorld(t *testing.T, classes ...v1alpha1.PlacementClass) *world {
	t.Helper()
	w := newMarketWorld(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferPrice, Strict: true})
	w.setClasses(classes...)
	return w
}

func (w *world) setClasses(classes ...v1alpha1.PlacementClass) {
	w.t.Helper()
	offloading := w.offloading("shop")
	offloading.Spec.Placement.Classes = classes
	w.update(offloading)
}

// expectOnly compares where the pods of the namespace and of each of its classes may run.
func (w *world) expectOnly(want ...string) {
	w.t.Helper()
	decided := w.offloading("shop").Status.Placement
	got := []string{": " + strings.Join(decided.Only, " ")}
	for _, class := range decided.Classes {
		got = append(got, class.Name+": "+strings.Join(class.Only, " "))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("only (-want +got):\n%s", diff)
	}
}

func TestEachClassIsPlacedByItsOwnSpec(t *testing.T) {
	w := newClassWorld(t,
		class("gold", v1alpha1.Placement{Prefer: v1alpha1.PreferLatency}),
		class("iron", v1alpha1.Placement{Exclude: []string{"kiel"}}),
		class("large", v1alpha1.Placement{Request: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}}),
	)
	w.settleAll()
	w.expectOnly(": hanse-kiel", "gold: hanse-hamburg", "iron: hanse-bremen", "large: hanse-bremen")
	w.expectPlaced("shop", metav1.ConditionTrue, v1alpha1.ReasonReady)
	if w.policies.asked != 4 || w.writes != 1 {
		t.Errorf("asked %d times and written %d times, want once about each and once", w.policies.asked, w.writes)
	}

	w.lookAgain()
	if w.writes != 1 {
		t.Error("nothing has changed, and it is written again")
	}
	w.setClasses(class("iron", v1alpha1.Placement{Exclude: []string{"kiel", "bremen"}}))
	w.lookAgain()
	w.expectOnly(": hanse-kiel", "iron: hanse-hamburg")
	w.setClasses()
	w.lookAgain()
	w.expectOnly(": hanse-kiel")
}

func TestPoliciesKnowTheClass(t *testing.T) {
	w := newClassWorld(t, class("gold", v1alpha1.Placement{Exclude: []string{"ulm"}}), class("iron", v1alpha1.Placement{}))
	w.policies.replace(`package hanse.placement
exclude["kiel"] := "not for gold" if input.class == "gold"
exclude["bremen"] := "the spec of the class" if "ulm" in input.wish.exclude
exclude["kiel"] := "not for the namespace itself" if not input.class
deny contains "iron stays here" if input.class == "iron"`)
	w.settleAll()
	w.expectOnly(": hanse-bremen", "gold: hanse-hamburg", "iron: ")
	if iron := w.offloading("shop").Status.Placement.Classes[1]; !iron.Strict {
		t.Errorf("what is refused may run anywhere: %+v", iron)
	}
	w.expectPlaced("shop", metav1.ConditionFalse, v1alpha1.ReasonRefusedByPolicy)
	w.expectMessage("shop", `Class "iron": The policy keeps the pods`)
	w.expectMessage("shop", "iron stays here")
}

func TestAClassThatNoClusterFits(t *testing.T) {
	w := newClassWorld(t, class("huge", v1alpha1.Placement{Request: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000")}}))
	w.settleAll()
	w.expectOnly(": hanse-kiel", "huge: ")
	w.expectPlaced("shop", metav1.ConditionFalse, v1alpha1.ReasonNoClusterFits)
	w.expectMessage("shop", `Class "huge": No cluster has room`)
}

func TestAPolicyThatFailsLeavesTheClassesToo(t *testing.T) {
	w := newClassWorld(t, class("gold", v1alpha1.Placement{Prefer: v1alpha1.PreferLatency}))
	w.settleAll()
	w.policies.err = fmt.Errorf("ask: %w", policy.ErrTooSlow)
	w.lookAgain()
	w.expectOnly(": hanse-kiel", "gold: hanse-hamburg")
	w.expectPlaced("shop", metav1.ConditionFalse, v1alpha1.ReasonPolicyFailed)
}

func TestWhatAClassTakesOver(t *testing.T) {
	large, small := corev1.ResourceList{"cpu": resource.MustParse("4")}, corev1.ResourceList{"cpu": resource.MustParse("1")}
	dear := &v1alpha1.Price{Amount: resource.MustParse("2"), Currency: "EUR"}
	cheap := &v1alpha1.Price{Amount: resource.MustParse("1"), Currency: "USD"}
	far, near := &metav1.Duration{Duration: time.Second}, &metav1.Duration{Duration: time.Millisecond}
	narrow, wide := ptr.To(resource.MustParse("1M")), ptr.To(resource.MustParse("1G"))
	namespace := v1alpha1.Placement{
		Prefer: v1alpha1.PreferPrice, Request: small, MaxPrice: cheap, MaxLatency: near, MinBandwidth: narrow, Exclude: []string{"bremen"}, Strict: true,
	}
	all := v1alpha1.Placement{
		Prefer: v1alpha1.PreferLatency, Request: large, MaxPrice: dear, MaxLatency: far, MinBandwidth: wide, Exclude: []string{"hamburg"},
	}
	for name, test := range map[string]struct{ class, namespace, want v1alpha1.Placement }{
		"all, if it says nothing":   {namespace: namespace, want: namespace},
		"nothing, where nothing is": {class: all, want: all},
		"what forbids, if it says the rest": {class: all, namespace: namespace, want: v1alpha1.Placement{
			Prefer: v1alpha1.PreferLatency, Request: large, MaxPrice: dear, MaxLatency: far, MinBandwidth: wide,
			Exclude: []string{"bremen", "hamburg"}, Strict: true,
		}},
		"nothing more, if it is strict itself": {class: v1alpha1.Placement{Strict: true}, want: v1alpha1.Placement{Strict: true}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, offload.Inherit(test.class, test.namespace)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
