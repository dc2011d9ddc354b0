// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestTheTwinIsAskedForByName(t *testing.T) {
	for name, test := range map[string]struct {
		naming *v1alpha1.TwinNaming
		want   string
	}{
		"by default the provider makes it": {nil, ""},
		"which one can say too":            {&v1alpha1.TwinNaming{Naming: v1alpha1.TwinGenerated}, ""},
		"the same name":                    {&v1alpha1.TwinNaming{Naming: v1alpha1.TwinSameName}, "shop"},
		"one that was chosen":              {&v1alpha1.TwinNaming{Naming: v1alpha1.TwinChosen, Name: "store"}, "store"},
	} {
		t.Run(name, func(t *testing.T) {
			offloading := offloadingWith("shop", v1alpha1.StrategyRemote, nil)
			offloading.Spec.Twin = test.naming
			w := newWorld(t, offloading, provider("turin"), virtualNode("turin", nil))
			w.connect("turin")
			w.settle("shop")
			if got := w.mapping("turin", "shop").Spec.Twin; got != test.want {
				t.Errorf("asked for %q, want %q", got, test.want)
			}
		})
	}
}

func TestTheTwinIsRenamedOnlyWhenNoPodIsInIt(t *testing.T) {
	pod := podOn("shop", "web", "hanse-turin")
	w := newWorld(t, offloadingWith("shop", v1alpha1.StrategyRemote, nil), provider("turin"), virtualNode("turin", nil), pod)
	w.connect("turin")
	w.settle("shop")
	w.peers["turin"].answer(t, "shop", twin("shop-lubeck-abcdef"))
	w.called("shop", &v1alpha1.TwinNaming{Naming: v1alpha1.TwinSameName})
	w.settle("shop")

	if got := w.mapping("turin", "shop").Spec.Twin; got != "" {
		t.Fatalf("the twin is renamed to %q although a pod is in it", got)
	}
	standing := w.offloading("shop").Status.Clusters[0]
	if standing.State != statePending || standing.Twin != "shop-lubeck-abcdef" || standing.Message == "" {
		t.Errorf("the user is told %+v", standing)
	}

	if err := w.home.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the mirror wakes the mapper after the first
		w.mustReconcile(w.controller.mappings, pair("shop", "turin"))
	}
	if got := w.mapping("turin", "shop").Spec.Twin; got != "shop" {
		t.Errorf("asked for %q, want shop", got)
	}
}

func TestATwinThatWasRefusedIsRenamedAtOnce(t *testing.T) {
	offloading := offloadingWith("shop", v1alpha1.StrategyRemote, nil)
	offloading.Spec.Twin = &v1alpha1.TwinNaming{Naming: v1alpha1.TwinChosen, Name: "kitchen"}
	w := newWorld(t, offloading, provider("turin"), virtualNode("turin", nil), podOn("shop", "web", "hanse-turin"))
	w.connect("turin")
	w.settle("shop")
	w.peers["turin"].answer(t, "shop", refused(v1alpha1.ReasonTwinNameForbidden, "kitchen matches none of *-lubeck"))
	w.settle("shop")
	want := []v1alpha1.ClusterOffloading{{
		Peer: "turin", State: stateRefused, Message: "TwinNameForbidden: kitchen matches none of *-lubeck",
	}}
	if diff := cmp.Diff(want, w.offloading("shop").Status.Clusters); diff != "" {
		t.Errorf("clusters (-want +got):\n%s", diff)
	}

	w.called("shop", &v1alpha1.TwinNaming{Naming: v1alpha1.TwinChosen, Name: "shop-lubeck"})
	for range 2 {
		w.mustReconcile(w.controller.mappings, pair("shop", "turin"))
	}
	if got := w.mapping("turin", "shop").Spec.Twin; got != "shop-lubeck" {
		t.Errorf("asked for %q, want shop-lubeck", got)
	}
}

// A peer that has made the twin since we looked may have a pod in it already.
func TestATwinThatCameMeanwhileIsNotRenamed(t *testing.T) {
	w := newWorld(t, offloadingWith("shop", v1alpha1.StrategyRemote, nil), provider("turin"), virtualNode("turin", nil))
	w.connect("turin")
	w.settle("shop")
	seen := w.mapping("turin", "shop")
	w.peers["turin"].answer(t, "shop", twin("shop-lubeck-abcdef"))
	w.called("shop", &v1alpha1.TwinNaming{Naming: v1alpha1.TwinSameName})

	cached, err := w.controller.mappings.observe(t.Context(), w.home, "shop", "turin")
	if err == nil {
		err = w.controller.mappings.takeBack(t.Context(), w.peers["turin"].link, seen, cached)
	}
	if err == nil || client.IgnoreNotFound(err) == nil {
		t.Errorf("error %v, want a conflict", err)
	}
	if got := w.mapping("turin", "shop").Status.Twin; got != "shop-lubeck-abcdef" {
		t.Errorf("the twin is %q", got)
	}
}
