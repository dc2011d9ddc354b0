// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

var batch = map[string]string{"team": "batch"}

func namespaceWith(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// keep looks at the namespace, with a default for the team.
func (w *world) keep(namespace string, strategy v1alpha1.OffloadingStrategy) {
	w.t.Helper()
	w.controller.spaces.Default = &Default{
		Selector: labels.SelectorFromSet(batch), Spec: v1alpha1.NamespaceOffloadingSpec{Strategy: strategy},
	}
	w.look(namespace)
}

func (w *world) look(namespace string) {
	w.t.Helper()
	w.mustReconcile(w.controller.spaces, reconcile.Request{NamespacedName: types.NamespacedName{Name: namespace}})
}

func (w *world) change(object client.Object) {
	w.t.Helper()
	if err := w.home.Update(context.Background(), object); err != nil {
		w.t.Fatal(err)
	}
}

// strategies are those of the offloadings that there are, by namespace.
func (w *world) strategies() map[string]v1alpha1.OffloadingStrategy {
	w.t.Helper()
	list := &v1alpha1.NamespaceOffloadingList{}
	if err := w.home.List(context.Background(), list); err != nil {
		w.t.Fatal(err)
	}
	found := map[string]v1alpha1.OffloadingStrategy{}
	for i := range list.Items {
		found[list.Items[i].Namespace] = list.Items[i].Spec.Strategy
	}
	return found
}

func TestWhichNamespacesAreOffloadedByDefault(t *testing.T) {
	twin := map[string]string{"team": "batch", v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelManaged: "true"}
	for name, test := range map[string]struct {
		namespace *corev1.Namespace
		want      bool
	}{
		"one that matches":               {namespaceWith("shop", batch), true},
		"one that does not":              {namespaceWith("shop", nil), false},
		"the system's":                   {namespaceWith("kube-system", batch), false},
		"the default one":                {namespaceWith("default", batch), false},
		"Hanse's own, whatever its name": {namespaceWith("elsewhere", batch), false},
		"that of a peer":                 {namespaceWith("hanse-peer-turin", batch), false},
		"the twin of a peer's":           {namespaceWith("shop", twin), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.namespace)
			w.controller.spaces.Namespace = "elsewhere"
			w.keep(test.namespace.Name, v1alpha1.StrategyRemote)
			got, kept := w.strategies()[test.namespace.Name]
			if kept != test.want || kept && got != v1alpha1.StrategyRemote {
				t.Errorf("kept %v with strategy %q, want %v", kept, got, test.want)
			}
		})
	}
}

func TestTheUsersOwnIsNotTouched(t *testing.T) {
	w := newWorld(t, namespaceWith("shop", batch), offloadingWith("shop", v1alpha1.StrategyLocal, nil))
	w.keep("shop", v1alpha1.StrategyRemote)
	if got := w.strategies()["shop"]; got != v1alpha1.StrategyLocal {
		t.Errorf("strategy %s, want the user's", got)
	}
	w.controller.spaces.Default = nil
	w.look("shop")
	if got := w.strategies()["shop"]; got != v1alpha1.StrategyLocal {
		t.Errorf("strategy %q after the setting went, want the user's", got)
	}
}

func TestAKeptOneIsPutBackUntilItIsTheUsers(t *testing.T) {
	w := newWorld(t, namespaceWith("shop", batch))
	w.keep("shop", v1alpha1.StrategyRemote)
	edited := w.offloading("shop")
	edited.Spec.Strategy = v1alpha1.StrategyLocal
	edited.Spec.Placement = &v1alpha1.NamespacePlacement{Placement: v1alpha1.Placement{Strict: true}}
	w.change(edited)
	w.look("shop")
	want := v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote}
	if diff := cmp.Diff(want, w.offloading("shop").Spec, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}

	edited = w.offloading("shop")
	edited.Annotations = nil
	edited.Spec.Strategy = v1alpha1.StrategyLocal
	w.change(edited)
	w.look("shop")
	if got := w.strategies()["shop"]; got != v1alpha1.StrategyLocal {
		t.Errorf("strategy %s, want the user's", got)
	}
}

// The user may have taken the annotation off since we looked.
func TestWhatBecameTheUsersMeanwhileIsLeftAlone(t *testing.T) {
	w := newWorld(t, namespaceWith("shop", batch))
	w.keep("shop", v1alpha1.StrategyRemote)
	seen := w.offloading("shop")
	own := seen.DeepCopy()
	own.Annotations = nil
	own.Spec.Strategy = v1alpha1.StrategyLocal
	w.change(own)
	if err := w.controller.spaces.replace(t.Context(), seen, &w.controller.spaces.Default.Spec); err == nil {
		t.Error("it was put back")
	}
	w.controller.spaces.Default = nil
	if err := w.controller.spaces.keep(t.Context(), namespaceWith("shop", batch), seen); err == nil {
		t.Error("it was deleted")
	}
	if got := w.strategies()["shop"]; got != v1alpha1.StrategyLocal {
		t.Errorf("strategy %q, want the user's", got)
	}
}

func TestAKeptOneGoesWithItsCause(t *testing.T) {
	for name, change := range map[string]func(*world){
		"the namespace matches no longer": func(w *world) { w.change(namespaceWith("shop", nil)) },
		"the setting is gone":             func(w *world) { w.controller.spaces.Default = nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, namespaceWith("shop", batch))
			w.keep("shop", v1alpha1.StrategyRemote)
			change(w)
			w.look("shop")
			if got := w.strategies(); len(got) != 0 {
				t.Errorf("there still are %v", got)
			}
		})
	}
}

func TestNothingIsWrittenWhileAKeptOneIsAsItShouldBe(t *testing.T) {
	w := newWorld(t, namespaceWith("shop", batch))
	w.keep("shop", "")
	stored := w.offloading("shop")
	stored.Spec = defaulted(stored.Spec) // as the API server does
	w.change(stored)
	before := w.offloading("shop").ResourceVersion
	w.look("shop")
	if got := w.offloading("shop").ResourceVersion; got != before {
		t.Error("it was written although nothing has changed")
	}
}
