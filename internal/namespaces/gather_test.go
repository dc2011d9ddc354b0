// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

func TestWhatIsAskedAboutANamespaceCanBeGathered(t *testing.T) {
	w := newMarketWorld(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferPrice})
	w.settleAll()
	writes := w.writes
	known, err := w.controller.Gather(t.Context(), policy.Placement, "shop")
	if err != nil {
		t.Fatal(err)
	}
	input, err := policy.NewInput(known)
	if err != nil {
		t.Fatal(err)
	}
	equal := cmp.Comparer(func(a, b ast.Value) bool { return ast.Compare(a, b) == 0 })
	if diff := cmp.Diff(w.policies.last, input, cmp.AllowUnexported(policy.Input{}), equal); diff != "" {
		t.Errorf("what is gathered is not what the policies were asked with:\n%s", diff)
	}
	if known.Wish.Prefer != v1alpha1.PreferPrice || known.Request.Cpu().IsZero() || w.policies.asked != 1 || w.writes != writes {
		t.Errorf("spec %+v, request %v, asked %d times", known.Wish, known.Request, w.policies.asked)
	}
}

func TestWhatIsAskedAboutAClassCanBeGathered(t *testing.T) {
	w := newClassWorld(t, class("gold", v1alpha1.Placement{Prefer: v1alpha1.PreferLatency}))
	known, err := w.controller.Gather(t.Context(), policy.Placement, "shop/gold")
	if err != nil || known.Class != "gold" || known.Wish.Prefer != v1alpha1.PreferLatency || !known.Wish.Strict {
		t.Errorf("class %q, spec %+v (%v)", known.Class, known.Wish, err)
	}
}

func TestWhatNobodyAsksAboutCannotBeGathered(t *testing.T) {
	w := newWorld(t, namespace("shop", nil), namespace("home", nil), namespace("here", nil), offloadingBy("here", v1alpha1.StrategyRemote, nil), offloadingBy("home", v1alpha1.StrategyLocal, nil))
	for name, want := range map[string]string{"nowhere": "no namespace nowhere", "shop": "not offloaded", "home": "stay in this cluster", "here/gold": "no class"} {
		if _, err := w.controller.Gather(t.Context(), policy.Placement, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", name, err, want)
		}
	}
}
