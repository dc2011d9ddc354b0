// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// shop is a user's namespace with the mark as it stands, "" for none.
func shop(mark string) *corev1.Namespace {
	labels := map[string]string{"team": "shop"}
	if mark != "" {
		labels[v1alpha1.LabelOffloads] = mark
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "shop", UID: "shop-uid", Labels: labels, Annotations: map[string]string{"note": "keep"},
	}}
}

func (w *world) mark(namespace string) *corev1.Namespace {
	w.t.Helper()
	w.mustReconcile(w.controller.spaces, reconcile.Request{NamespacedName: types.NamespacedName{Name: namespace}})
	got := &corev1.Namespace{}
	if err := w.home.Get(context.Background(), client.ObjectKey{Name: namespace}, got); err != nil {
		w.t.Fatal(err)
	}
	return got
}

func TestNamespacesThatPodsLeaveFromAreMarked(t *testing.T) {
	leaving := offloadingWith("shop", v1alpha1.StrategyRemote, nil)
	leaving.Finalizers = []string{"example.com/hold"}
	now := metav1.Now()
	leaving.DeletionTimestamp = &now
	for name, test := range map[string]struct {
		objects []client.Object
		want    bool
	}{
		"nothing leaves":                     {},
		"it is offloaded":                    {[]client.Object{offloadingWith("shop", v1alpha1.StrategyRemote, nil)}, true},
		"its pods stay at home":              {[]client.Object{offloadingWith("shop", v1alpha1.StrategyLocal, nil)}, true},
		"its offloading is about to go":      {[]client.Object{leaving}, true},
		"another namespace is offloaded":     {[]client.Object{offloadingWith("bank", v1alpha1.StrategyRemote, nil)}, false},
		"a pod is on a virtual node":         {[]client.Object{virtualNode("turin", nil), podOn("shop", "web", "hanse-turin")}, true},
		"a pod is on one that is gone":       {[]client.Object{podOn("shop", "web", "hanse-turin")}, true},
		"a pod is on a real node":            {[]client.Object{podOn("shop", "web", "worker")}, false},
		"a pod is on no node":                {[]client.Object{podOn("shop", "web", "")}, false},
		"a pod of another namespace is away": {[]client.Object{virtualNode("turin", nil), podOn("bank", "web", "hanse-turin")}, false},
		"a real node is called like ours": {[]client.Object{
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "hanse-city-1"}}, podOn("shop", "web", "hanse-city-1"),
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, before := range []string{"", "true", "false"} {
				w := newWorld(t, append(test.objects, shop(before))...)
				got := w.mark("shop")
				want := shop("")
				if test.want {
					want = shop("true")
				}
				if !maps.Equal(want.Labels, got.Labels) || !maps.Equal(want.Annotations, got.Annotations) {
					t.Errorf("marked %q before: labels (-want +got):\n%s", before, cmp.Diff(want.Labels, got.Labels))
				}
			}
		})
	}
}

func TestMarksAreNotWrittenAgain(t *testing.T) {
	for name, objects := range map[string][]client.Object{
		"marked":     {shop("true"), offloadingWith("shop", "", nil)},
		"not marked": {shop("")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, objects...)
			before := w.mark("shop").ResourceVersion
			if after := w.mark("shop").ResourceVersion; after != before {
				t.Errorf("written again: version %s, was %s", after, before)
			}
		})
	}
}

func TestANamespaceThatIsGoneIsNoError(t *testing.T) {
	w := newWorld(t, offloadingWith("shop", "", nil))
	w.mustReconcile(w.controller.spaces, reconcile.Request{NamespacedName: types.NamespacedName{Name: "shop"}})
}

// Only what can change a mark costs a look at a namespace.
func TestWhenANamespaceIsLookedAt(t *testing.T) {
	away, pending, atHome := podOn("shop", "web", "hanse-turin"), podOn("shop", "web", ""), podOn("shop", "web", "worker")
	for name, test := range map[string]struct{ got, want bool }{
		"a pod is bound to a virtual node": {leavesOrEnds.Update(updateOf(pending, away)), true},
		"a pod is bound to a real node":    {leavesOrEnds.Update(updateOf(pending, atHome)), false},
		"its status changes":               {leavesOrEnds.Update(updateOf(away, away)), false},
		"the mark is taken off":            {predicate.LabelChangedPredicate{}.Update(updateOf(shop("true"), shop(""))), true},
		"something else is changed":        {predicate.LabelChangedPredicate{}.Update(updateOf(shop("true"), shop("true"))), false},
	} {
		if test.got != test.want {
			t.Errorf("%s: let through %v, want %v", name, test.got, test.want)
		}
	}
}
