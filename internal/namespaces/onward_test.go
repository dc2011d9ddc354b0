// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func twinFor(peer, name string) *corev1.Namespace {
	return namespaceWith(name, map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelManaged: "true", v1alpha1.LabelPeer: peer,
	})
}

func adFor(peer, id string, behind ...string) *v1alpha1.Advertisement {
	ad := &v1alpha1.Advertisement{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(peer), Name: id}}
	for _, cluster := range behind {
		ad.Spec.Nested = append(ad.Spec.Nested, v1alpha1.NestedOffer{ClusterID: cluster})
	}
	return ad
}

// passingOn makes a world whose cluster, genoa, passes offers on.
func passingOn(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := newWorld(t, objects...)
	w.controller.spaces.Aggregate, w.controller.spaces.ClusterID = true, "genoa"
	return w
}

func TestTwinsAreOffloadedToTheClustersThatTheirConsumerIsTold(t *testing.T) {
	for name, test := range map[string]struct {
		ad   *v1alpha1.Advertisement
		want []v1alpha1.LabelValue
	}{
		"clusters behind us": {adFor("turin", "genoa", "milan", "pisa"), []v1alpha1.LabelValue{"milan", "pisa"}},
		"none":               {adFor("turin", "genoa"), nil},
		"what turin offers":  {adFor("turin", "turin", "milan"), nil},
		"what others hear":   {adFor("parma", "genoa", "milan"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := passingOn(t, twinFor("turin", "shop-turin"), test.ad)
			w.look("shop-turin")
			_, kept := w.strategies()["shop-turin"]
			if kept != (test.want != nil) {
				t.Fatalf("kept: %v", kept)
			}
			if !kept {
				return
			}
			want := v1alpha1.NamespaceOffloadingSpec{
				Strategy: v1alpha1.StrategyLocalAndRemote,
				ClusterSelector: &v1alpha1.ClusterSelector{MatchExpressions: []v1alpha1.ClusterSelectorRequirement{{
					Key: v1alpha1.LabelClusterID, Operator: metav1.LabelSelectorOpIn, Values: test.want,
				}}},
			}
			if diff := cmp.Diff(want, w.offloading("shop-turin").Spec, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTwinsAreOffloadedNoLongerThanTheOfferSays(t *testing.T) {
	ad := adFor("turin", "genoa", "milan")
	w := passingOn(t, twinFor("turin", "shop-turin"), ad)
	w.look("shop-turin")
	ad.Spec.Nested[0].ClusterID = "pisa"
	w.change(ad)
	w.look("shop-turin")
	selected := w.offloading("shop-turin").Spec.ClusterSelector.MatchExpressions[0].Values
	if diff := cmp.Diff([]v1alpha1.LabelValue{"pisa"}, selected); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w.controller.spaces.Aggregate = false
	w.look("shop-turin")
	if left := w.strategies(); len(left) > 0 {
		t.Errorf("offloaded still: %v", left)
	}
}

func TestOurOfferWakesTheTwinsOfItsConsumer(t *testing.T) {
	w := passingOn(t, twinFor("turin", "shop-turin"), twinFor("turin", "bank-turin"), twinFor("parma", "shop-parma"), namespaceWith("shop", nil))
	got := w.controller.spaces.twinsOf(t.Context(), adFor("turin", "genoa", "milan"))
	want := []reconcile.Request{
		{NamespacedName: types.NamespacedName{Name: "bank-turin"}}, {NamespacedName: types.NamespacedName{Name: "shop-turin"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := w.controller.spaces.twinsOf(t.Context(), adFor("turin", "turin", "milan")); len(got) > 0 {
		t.Errorf("an offer to us wakes %v", got)
	}
	heartbeat, other := adFor("turin", "genoa", "milan"), adFor("turin", "genoa", "milan", "pisa")
	if hopsChanged.Update(event.UpdateEvent{ObjectOld: adFor("turin", "genoa", "milan"), ObjectNew: heartbeat}) {
		t.Error("a heartbeat wakes the twins")
	}
	if !hopsChanged.Update(event.UpdateEvent{ObjectOld: heartbeat, ObjectNew: other}) {
		t.Error("another cluster behind us does not wake the twins")
	}
}
