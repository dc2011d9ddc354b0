// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// liveReads counts what is read from the API server itself.
type liveReads struct {
	client.Reader
	count int
}

func (l *liveReads) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	l.count++
	return l.Reader.Get(ctx, key, o, opts...)
}

func (l *liveReads) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	l.count++
	return l.Reader.List(ctx, list, opts...)
}

// expect checks how much was read since the last look.
func (l *liveReads) expect(t *testing.T, when string, most int) {
	t.Helper()
	if l.count > most {
		t.Errorf("%s: %d live reads, want at most %d", when, l.count, most)
	}
	l.count = 0
}

// countingMapper returns a mapper whose live reads are counted.
func countingMapper(w *world) (*mappingReconciler, *liveReads) {
	live := &liveReads{Reader: w.Home.Server}
	return newMappingReconciler(w.config(), w.Home.Client, live), live
}

// expectRepair checks that a twin that is well is looked at again only for its repair.
func expectRepair(t *testing.T, again time.Duration) {
	t.Helper()
	if again < repairPeriod || again > repairPeriod*12/10 {
		t.Errorf("looks again in %s", again)
	}
}

func TestTwinThatStandsIsReadNoMore(t *testing.T) {
	w := newWorld(t, peer(), tenantNamespace(), mappingOf("shop"))
	m, live := countingMapper(w)
	w.Reconcile(m, "hanse-peer-lubeck", "shop")
	live.expect(t, "when it is made", 8) // the namespace, the peer's others, our Services' ranges, five guards
	for range 20 {
		w.Reconcile(m, "hanse-peer-lubeck", "shop")
	}
	w.expectMapping("shop", metav1.ConditionTrue, v1alpha1.ReasonTwinCreated)
	live.expect(t, "when nothing changes", 0)

	w.change(func(spec *v1alpha1.PeerSpec) { spec.Access = v1alpha1.AccessSuspended })
	w.Reconcile(m, "hanse-peer-lubeck", "shop")
	if live.count == 0 {
		t.Error("a change of the Peer is not carried into its twin")
	}
	live.expect(t, "when the Peer changes", 6)
	m.allMappings(t.Context(), &corev1.Node{})
	w.Reconcile(m, "hanse-peer-lubeck", "shop")
	if live.count == 0 {
		t.Error("new addresses of nodes are not carried into the twin")
	}
}

func TestGuardsOfATwinArePutRightAfterAWhile(t *testing.T) {
	w := newWorld(t, peer(), tenantNamespace(), mappingOf("shop"))
	m, _ := countingMapper(w)
	w.Reconcile(m, "hanse-peer-lubeck", "shop")
	binding := &rbacv1.RoleBinding{}
	w.Home.Find(binding, lubeck.name(), "hanse-peer-twin")
	w.Home.Remove(binding)
	again := w.Reconcile(m, "hanse-peer-lubeck", "shop").RequeueAfter
	expectRepair(t, again)
	w.Clock.Step(again)
	w.Reconcile(m, "hanse-peer-lubeck", "shop")
	if !w.Home.Find(binding, lubeck.name(), "hanse-peer-twin") {
		t.Error("the peer stays shut out")
	}
}

func TestOnlyTheQuotaIsReadUntilItCounts(t *testing.T) {
	w := newWorld(t, peer(), tenantNamespace(), mappingOf("shop"))
	w.uncounted = true
	m, live := countingMapper(w)
	w.Reconcile(m, "hanse-peer-lubeck", "shop")
	live.count = 0
	for range 10 {
		w.Reconcile(m, "hanse-peer-lubeck", "shop")
	}
	live.expect(t, "while it does not", 10)
	w.expectMapping("shop", metav1.ConditionFalse, v1alpha1.ReasonPending)
	w.count()
	w.Reconcile(m, "hanse-peer-lubeck", "shop")
	w.expectMapping("shop", metav1.ConditionTrue, v1alpha1.ReasonTwinCreated)
}

func TestManyTwinsAreLookedAtLessOften(t *testing.T) {
	g, now := &guarding{}, time.Now()
	for i := range 100_000 { // a thousand peers with a hundred each
		g.done(types.NamespacedName{Name: fmt.Sprint(i)}, guarded{}, now)
	}
	last := types.NamespacedName{Name: "last"}
	g.done(last, guarded{}, now)
	if due := g.due(last).Sub(now); due < 10_000*time.Second {
		t.Errorf("one of many is looked at after %s", due)
	}
	g.done(last, guarded{counted: true}, now.Add(time.Minute))
	if due := g.due(last).Sub(now); due > 12_100*time.Second {
		t.Errorf("that it was counted put the next look off to %s", due)
	}
}
