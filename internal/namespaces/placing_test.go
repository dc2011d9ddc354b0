// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

var (
	bremen  = offerer{name: "bremen", cpu: "8", perHour: "0.10", away: 40 * time.Millisecond, labels: map[string]string{"region": "south"}}
	hamburg = offerer{name: "hamburg", cpu: "8", perHour: "0.20", away: 5 * time.Millisecond}
	kiel    = offerer{name: "kiel", cpu: "2", perHour: "0.05", away: 90 * time.Millisecond}
)

// newMarketWorld is a world with three providers and namespace shop, whose pods may leave.
func newMarketWorld(t *testing.T, strategy v1alpha1.OffloadingStrategy, spec *v1alpha1.Placement) *world {
	t.Helper()
	w := newWorld(t, namespace("shop", nil), offloadingBy("shop", strategy, spec))
	for _, p := range []offerer{bremen, hamburg, kiel} {
		w.update(p.objects()...)
	}
	return w
}

func TestPlacementFollowsWhatTheUserAsksFor(t *testing.T) {
	for name, test := range map[string]struct {
		spec          v1alpha1.Placement
		best          string
		prefersRemote bool
		excluded      map[string]bool
		only          []string
	}{
		"the cheapest": {
			spec: v1alpha1.Placement{Prefer: v1alpha1.PreferPrice}, best: "hanse-kiel", prefersRemote: true,
		},
		"the nearest": {
			spec: v1alpha1.Placement{Prefer: v1alpha1.PreferLatency}, best: "hanse-hamburg", prefersRemote: true,
		},
		"a highest price": {
			spec: v1alpha1.Placement{MaxPrice: &v1alpha1.Price{Amount: resource.MustParse("0.1"), Currency: "EUR"}, Prefer: v1alpha1.PreferLatency},
			best: "hanse-bremen", prefersRemote: true, excluded: map[string]bool{"hanse-hamburg": true},
		},
		"a longest way": {
			spec: v1alpha1.Placement{MaxLatency: &metav1.Duration{Duration: 50 * time.Millisecond}, Prefer: v1alpha1.PreferPrice},
			best: "hanse-bremen", prefersRemote: true, excluded: map[string]bool{"hanse-kiel": true},
		},
		"not there": {
			spec: v1alpha1.Placement{Exclude: []string{"kiel", "bremen"}, Prefer: v1alpha1.PreferPrice},
			best: "hanse-hamburg", prefersRemote: true, excluded: map[string]bool{"hanse-kiel": true, "hanse-bremen": true},
		},
		"only the cheapest with room for a large pod": {
			spec: v1alpha1.Placement{
				Prefer: v1alpha1.PreferPrice, Strict: true, Request: map[corev1.ResourceName]resource.Quantity{"cpu": resource.MustParse("4")},
			},
			best: "hanse-kiel", prefersRemote: true, only: []string{"hanse-bremen"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newMarketWorld(t, v1alpha1.StrategyRemote, &test.spec)
			w.settleAll()
			got := w.offloading("shop").Status.Placement
			if diff := cmp.Diff(test.only, got.Only); diff != "" || got.PrefersRemote != test.prefersRemote {
				t.Errorf("placement %+v, only (-want +got):\n%s", got, diff)
			}
			for _, node := range got.Nodes {
				if (node.Excluded != "") != test.excluded[node.Name] {
					t.Errorf("node %s is excluded because of %q", node.Name, node.Excluded)
				}
				if (node.Weight == 100) != (node.Name == test.best) {
					t.Errorf("node %s has weight %d, and %s should be the best", node.Name, node.Weight, test.best)
				}
			}
			w.expectPlaced("shop", metav1.ConditionTrue, v1alpha1.ReasonReady)
		})
	}
}

func TestPlacementFollowsThePolicyForANamespace(t *testing.T) {
	w := newMarketWorld(t, v1alpha1.StrategyLocalAndRemote, nil)
	w.update(namespace("bank", map[string]string{"residency": "strict"}), offloadingBy("bank", v1alpha1.StrategyRemote, nil))
	w.policies.replace(`package hanse.placement
exclude[row.peer] := "bank data stays near" if {
	some row in input.table
	row.roundTripSeconds > 0.01
	input.namespace.labels.residency == "strict"
}
score[row.peer] := row.availability.cpu if some row in input.table
strict if input.namespace.labels.residency == "strict"`)
	w.settleAll()

	if diff := cmp.Diff([]string{"hanse-hamburg"}, w.offloading("bank").Status.Placement.Only); diff != "" {
		t.Errorf("strict namespace: %s", diff)
	}
	shop := w.offloading("shop").Status.Placement
	if shop.Strict || shop.PrefersRemote {
		t.Errorf("placement of the other namespace: %+v", shop)
	}
	got := w.weights("shop")
	if got["hanse-bremen"] != 100 || got["hanse-hamburg"] != 100 || got["hanse-kiel"] >= 100 {
		t.Errorf("weights %v: the large ones should be the best", got)
	}

	w.policies.replace(`package hanse.placement
exclude["hamburg"] := "closed today"`)
	w.clock.Step(time.Second)
	w.settleAll()
	if _, found := w.weights("shop")["hanse-hamburg"]; found {
		t.Error("a new policy is not followed")
	}
}

func TestAPolicyThatSaysNo(t *testing.T) {
	w := newMarketWorld(t, v1alpha1.StrategyRemote, nil)
	w.policies.replace(`package hanse.placement
deny contains "this team has no budget"`)
	w.settleAll()
	if got := w.offloading("shop").Status.Placement; !got.Strict || len(got.Only) > 0 {
		t.Errorf("placement %+v", got)
	}
	w.expectPlaced("shop", metav1.ConditionFalse, v1alpha1.ReasonRefusedByPolicy)
	w.expectMessage("shop", "this team has no budget")
}

func TestAPolicyThatFailsLeavesWhatWasDecided(t *testing.T) {
	w := newMarketWorld(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferPrice})
	w.settleAll()
	before := w.offloading("shop").Status.Placement
	w.events()

	w.policies.err = fmt.Errorf("ask: %w", policy.ErrTooSlow)
	w.lookAgain()
	if diff := cmp.Diff(before, w.offloading("shop").Status.Placement); diff != "" {
		t.Errorf("the placement has changed: %s", diff)
	}
	w.expectPlaced("shop", metav1.ConditionFalse, v1alpha1.ReasonPolicyFailed)
	if got := w.events(); len(got) != 1 || !strings.HasPrefix(got[0], "Warning PolicyFailed The policy about placement was too slow") {
		t.Errorf("events %q", got)
	}
	writes := w.writes
	w.clock.Step(time.Minute)
	if after := w.reconcile(offloadingIn("shop")); after != askAgain {
		t.Errorf("is tried again after %s", after)
	}
	if w.writes != writes || len(w.events()) > 0 {
		t.Error("the same failure is told twice")
	}

	w.policies.replace()
	w.lookAgain()
	w.expectPlaced("shop", metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func TestAPolicyThatFailsBeforeAnythingWasDecided(t *testing.T) {
	w := newMarketWorld(t, v1alpha1.StrategyRemote, nil)
	w.policies.err = errors.New("no answer")
	w.settleAll()
	if got := w.offloading("shop").Status.Placement; len(got.Nodes) > 0 || got.Strict || got.Admission == nil {
		t.Errorf("placement %+v, want one by the strategy alone", got)
	}
	w.expectPlaced("shop", metav1.ConditionFalse, v1alpha1.ReasonPolicyFailed)
}

func TestWhenNoClusterFits(t *testing.T) {
	huge := map[corev1.ResourceName]resource.Quantity{"cpu": resource.MustParse("1000")}
	for name, test := range map[string]struct {
		strategy v1alpha1.OffloadingStrategy
		spec     v1alpha1.Placement
		selector *v1alpha1.ClusterSelector
		says     []string
	}{
		"strict, and the pod is too large": {
			strategy: v1alpha1.StrategyRemote, spec: v1alpha1.Placement{Strict: true, Request: huge},
			says: []string{"No cluster has room", "New pods wait", "as soon as a cluster takes them"},
		},
		"strict, and home is left": {
			strategy: v1alpha1.StrategyLocalAndRemote, spec: v1alpha1.Placement{Strict: true, Request: huge},
			says: []string{"No cluster has room", "stay in this cluster"},
		},
		"all are excluded": {
			strategy: v1alpha1.StrategyRemote, spec: v1alpha1.Placement{Exclude: []string{"bremen", "hamburg", "kiel"}},
			says: []string{"Every cluster is excluded"},
		},
		"the selector matches nothing": {
			strategy: v1alpha1.StrategyRemote,
			selector: &v1alpha1.ClusterSelector{MatchLabels: map[string]v1alpha1.LabelValue{"region": "north"}},
			says:     []string{"No provider that the cluster selector matches"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newMarketWorld(t, test.strategy, &test.spec)
			offloading := w.offloading("shop")
			offloading.Spec.ClusterSelector = test.selector
			w.update(offloading)
			w.settleAll()
			if got := w.offloading("shop").Status.Placement; got == nil || len(got.Only) > 0 || got.Strict != test.spec.Strict {
				t.Errorf("placement %+v", got)
			}
			w.expectPlaced("shop", metav1.ConditionFalse, v1alpha1.ReasonNoClusterFits)
			for _, part := range test.says {
				w.expectMessage("shop", part)
			}
		})
	}
}

func TestStrictLooksAtSelectedClustersThatTakePods(t *testing.T) {
	w := newMarketWorld(t, v1alpha1.StrategyLocalAndRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferPrice, Strict: true})
	w.settleAll()
	expectOnly := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, w.offloading("shop").Status.Placement.Only); diff != "" {
			t.Errorf("only (-want +got):\n%s", diff)
		}
	}
	expectOnly("hanse-kiel")
	w.expectMessage("shop", "New pods run on hanse-kiel, or in this cluster")

	node := kiel.node()
	node.Spec.Unschedulable = true // an administrator cordons it
	w.update(node)
	w.lookAgain()
	expectOnly("hanse-bremen")

	closed := bremen
	closed.closed = true
	w.update(closed.node())
	w.lookAgain()
	expectOnly("hanse-hamburg")

	for _, p := range []offerer{bremen, kiel} {
		w.update(p.node())
	}
	offloading := w.offloading("shop")
	offloading.Spec.ClusterSelector = &v1alpha1.ClusterSelector{MatchExpressions: []v1alpha1.ClusterSelectorRequirement{
		{Key: "region", Operator: metav1.LabelSelectorOpIn, Values: []v1alpha1.LabelValue{"south"}},
	}}
	w.update(offloading)
	w.lookAgain()
	expectOnly("hanse-bremen")
	if got := w.events(); len(got) != 4 {
		t.Errorf("events %q, want one for each change", got)
	}
}

func TestPodsThatStayNeedNoPlacement(t *testing.T) {
	w := newMarketWorld(t, v1alpha1.StrategyRemote, nil)
	w.settleAll()
	offloading := w.offloading("shop")
	offloading.Spec.Strategy = v1alpha1.StrategyLocal
	w.update(offloading)
	w.lookAgain()
	status := w.offloading("shop").Status
	if status.Placement != nil || meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionPlaced) != nil {
		t.Errorf("status %+v", status)
	}
	writes := w.writes
	w.lookAgain()
	if w.writes != writes {
		t.Error("nothing is written twice")
	}
}

func TestOwnOffersAndRefusedOnesDoNotCount(t *testing.T) {
	ours := offerer{name: "lubeck", cpu: "8"}.offer()
	ours.Name, ours.Spec.ClusterID = "c-home", "c-home"
	pending := offerer{name: "ulm", cpu: "8"}.offer()
	pending.Status = v1alpha1.AdvertisementStatus{Acknowledgement: &v1alpha1.Acknowledgement{
		State: v1alpha1.AcknowledgementPending, Reason: v1alpha1.ReasonPendingApproval,
	}}
	w := newMarketWorld(t, v1alpha1.StrategyRemote, nil)
	w.update(ours, offerer{name: "lubeck"}.node(), pending, offerer{name: "ulm"}.node())
	w.settleAll()
	for _, node := range w.offloading("shop").Status.Placement.Nodes {
		if node.Name == "hanse-lubeck" || node.Name == "hanse-ulm" {
			t.Errorf("%+v was decided about", node)
		}
	}
	if got := len(w.controller.offloadings.market.rows); got != 3 {
		t.Errorf("%d rows, want 3", got)
	}
}

// Pods would wait for ever where they find no namespace.
func TestAPeerThatRefusesTheNamespaceGetsNoPods(t *testing.T) {
	w := newMarketWorld(t, v1alpha1.StrategyRemote, nil)
	w.update(provider("bremen"))
	w.connect("bremen")
	w.settle("shop")
	w.peers["bremen"].answer(t, "shop", refused("NamespaceTaken", "a namespace of that name is another's"))
	w.clock.Step(interval)
	w.settle("shop")
	for _, node := range w.offloading("shop").Status.Placement.Nodes {
		if (node.Excluded != "") != (node.Name == "hanse-bremen") {
			t.Errorf("node %s is excluded because of %q", node.Name, node.Excluded)
		}
	}
	w.peers["bremen"].answer(t, "shop", twin("shop-lubeck"))
	w.clock.Step(interval)
	w.settle("shop")
	for _, node := range w.offloading("shop").Status.Placement.Nodes {
		if node.Excluded != "" {
			t.Errorf("node %s is excluded because of %q", node.Name, node.Excluded)
		}
	}
}

// What providers send on is asked about too, but only whether it must not be.
func TestPoliciesExcludeClustersBehindProviders(t *testing.T) {
	const inTheSouth = `package hanse.placement
		exclude[row.peer] := "data stays in the south" if {
			some row in input.table
			row.labels.region != "south"
		}
		score[row.peer] := 1 if some row in input.table
		strict := true`
	for name, test := range map[string]struct {
		policy string
		want   []string
	}{
		"none":              {"package hanse.placement\nscore[row.peer] := 1 if some row in input.table", nil},
		"one by its region": {inTheSouth, []string{"oslo"}},
		"all":               {"package hanse.placement\ndeny contains \"data stays here\"", []string{"oslo", "pisa"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newMarketWorld(t, v1alpha1.StrategyRemote, nil)
			for _, from := range []offerer{bremen, hamburg} {
				from.labels = map[string]string{"region": "south"}
				ad := from.offer()
				ad.Spec.Labels = map[string]v1alpha1.Text{"region": "south"}
				ad.Spec.Nested = []v1alpha1.NestedOffer{
					{ClusterID: "oslo", Labels: map[string]v1alpha1.Text{"region": "north"}},
					{ClusterID: "pisa", Labels: map[string]v1alpha1.Text{"region": "south"}},
				}
				w.update(ad)
			}
			w.policies.replace(test.policy)
			w.settleAll()
			decided := w.offloading("shop").Status.Placement
			if diff := cmp.Diff(test.want, decided.ExcludedBehind); diff != "" {
				t.Errorf("excluded (-want +got):\n%s", diff)
			}
			if w.policies.asked != 2 {
				t.Errorf("the policies were asked %d times, want once about providers and once about what is behind them", w.policies.asked)
			}
		})
	}
}
