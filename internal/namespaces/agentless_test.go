package namespaces

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestClustersWithoutHanseHaveATwinAndAreNotAsked(t *testing.T) {
	offloading := offloadingWith("shop", v1alpha1.StrategyRemote, nil)
	offloading.Spec.Twin = &v1alpha1.TwinNaming{Naming: v1alpha1.TwinSameName}
	peer := provider("turin")
	peer.Spec.Mode, peer.Spec.Namespaces = v1alpha1.ModeAgentless, []string{"guests", "more"}
	w := newWorld(t, offloading, peer, virtualNode("turin", nil))
	nobody := newFakeRemote(t, "turin")
	w.peers["turin"] = nobody
	w.controller.connector.connect = func(context.Context, *v1alpha1.Peer) (Remote, error) {
		return agentless{Remote: nobody, twin: twinThere(peer)}, nil
	}
	w.mustReconcile(w.controller.connector, reconcile.Request{NamespacedName: types.NamespacedName{Name: "turin"}})
	w.settle("shop")
	if nobody.writes.Load() > 0 {
		t.Errorf("it was asked for %v", nobody.names())
	}
	got := w.offloading("shop").Status.Clusters
	if len(got) != 1 || got[0].State != stateReady || got[0].Twin != "guests" {
		t.Errorf("the user is told %+v", got)
	}

	offloading = w.offloading("shop")
	offloading.Spec.Strategy = v1alpha1.StrategyLocal
	if err := w.home.Update(t.Context(), offloading); err != nil {
		t.Fatal(err)
	}
	w.settle("shop")
	if got := w.offloading("shop").Status.Clusters; nobody.writes.Load() > 0 || len(got) > 0 {
		t.Errorf("after it is not wanted any more: %+v", got)
	}
}
