// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers/peerstest"
	"github.com/hanse-dev/hanse/internal/testkit"
)

var south = map[string]v1alpha1.LabelValue{"region": "south"}

func TestOnlySelectedPeersAreAsked(t *testing.T) {
	w := newWorld(t, offloadingWith("shop", v1alpha1.StrategyRemote, south),
		provider("turin"), virtualNode("turin", map[string]string{"region": "south"}),
		provider("bergen"), virtualNode("bergen", map[string]string{"region": "north"}),
	)
	w.connect("turin", "bergen")
	w.settle("shop")

	got := map[string][]string{"turin": w.peers["turin"].names(), "bergen": w.peers["bergen"].names()}
	if diff := cmp.Diff(map[string][]string{"turin": {"shop"}, "bergen": nil}, got); diff != "" {
		t.Errorf("mappings (-want +got):\n%s", diff)
	}
}

func TestNothingIsWrittenWhenNothingChanged(t *testing.T) {
	w := newWorld(t, offloadingWith("shop", v1alpha1.StrategyRemote, nil), provider("turin"), virtualNode("turin", nil))
	w.connect("turin")
	w.settle("shop")
	w.peers["turin"].answer(t, "shop", twin("shop-lubeck-abcdef"))
	w.settle("shop")

	home, remote := w.allWrites, w.peers["turin"].written()
	w.clock.Step(eventLife)
	w.settle("shop")
	if got := w.allWrites - home; got != 0 {
		t.Errorf("%d writes at home, want none", got)
	}
	if got := w.peers["turin"].written(); got != 0 {
		t.Errorf("%d writes at the peer, want none", got)
	}
	if home == 0 || remote == 0 {
		t.Errorf("writes are not counted: %d at home, %d at the peer", home, remote)
	}
}

func TestTwinIsGivenUpWhenNothingNeedsIt(t *testing.T) {
	change := func(edit func(*v1alpha1.NamespaceOffloading)) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			o := w.offloading("shop")
			edit(o)
			if err := w.home.Update(context.Background(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(object client.Object) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			if err := w.home.Delete(context.Background(), object); err != nil {
				t.Fatal(err)
			}
		}
	}
	noOffloading := remove(offloadingWith("shop", "", nil))
	for name, test := range map[string]struct {
		pods   []client.Object
		change func(*testing.T, *world)
		want   []string
	}{
		"the offloading is deleted": {change: noOffloading, want: nil},
		"the peer is deleted":       {change: remove(provider("turin")), want: nil},
		"pods stay at home now":     {change: change(func(o *v1alpha1.NamespaceOffloading) { o.Spec.Strategy = v1alpha1.StrategyLocal }), want: nil},
		"another peer is selected now": {change: change(func(o *v1alpha1.NamespaceOffloading) {
			o.Spec.ClusterSelector = &v1alpha1.ClusterSelector{MatchLabels: south}
		}), want: nil},
		"the selector cannot be read": {change: change(func(o *v1alpha1.NamespaceOffloading) {
			o.Spec.ClusterSelector = &v1alpha1.ClusterSelector{MatchLabels: map[string]v1alpha1.LabelValue{"///": ""}}
		}), want: []string{"shop"}},
		"only the virtual node was deleted":        {change: remove(virtualNode("turin", nil)), want: []string{"shop"}},
		"a pod is still there":                     {change: noOffloading, pods: []client.Object{podOn("shop", "web", "hanse-turin")}, want: []string{"shop"}},
		"a pod of another namespace is there":      {change: noOffloading, pods: []client.Object{podOn("bank", "web", "hanse-turin")}, want: nil},
		"a pod of the namespace is on a real node": {change: noOffloading, pods: []client.Object{podOn("shop", "web", "worker")}, want: nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(test.pods, offloadingWith("shop", v1alpha1.StrategyRemote, nil),
				provider("turin"), virtualNode("turin", nil))...)
			w.connect("turin")
			w.mustReconcile(w.controller.mappings, pair("shop", "turin"))
			if got := w.peers["turin"].names(); len(got) != 1 {
				t.Fatalf("mappings %v, want one", got)
			}

			test.change(t, w)
			w.mustReconcile(w.controller.mappings, pair("shop", "turin"))
			if diff := cmp.Diff(test.want, w.peers["turin"].names()); diff != "" {
				t.Errorf("mappings (-want +got):\n%s", diff)
			}
		})
	}
}

// Twins of a peer that we part from go in the order of the parting.
// A peer may invent as many mappings as it likes: each costs several reads at home, so few workers are at it.
func TestMappingsThatNobodyAskedForAreTakenBackByFewWorkers(t *testing.T) {
	w := newWorld(t, provider("turin"), virtualNode("turin", nil))
	w.connect("turin")
	turin := w.peers["turin"]
	invented := &v1alpha1.NamespaceMapping{Spec: v1alpha1.NamespaceMappingSpec{HomeNamespace: "invented"}}
	invented.Namespace, invented.Name = tenantThere, "invented"
	if err := turin.Client.Create(t.Context(), invented); err != nil {
		t.Fatal(err)
	}
	look := func() time.Duration {
		request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "invented", Name: "turin"}}
		result, err := w.controller.mappings.Reconcile(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter
	}
	end := peerstest.FillAside(turin.link)
	if again := look(); again <= 0 || len(turin.names()) == 0 {
		t.Errorf("it is looked at again after %v, and there are %v", again, turin.names())
	}
	end()
	look()
	if got := turin.names(); len(got) > 0 {
		t.Errorf("there are %v", got)
	}
}

func TestMappingsOfAPeerThatIsLeftAreLeftAlone(t *testing.T) {
	for name, test := range map[string]struct {
		asked bool // before the Peer was deleted
		want  []string
	}{
		"one that is there stays":  {asked: true, want: []string{"shop"}},
		"one that is not stays so": {want: nil},
	} {
		t.Run(name, func(t *testing.T) {
			held := provider("turin")
			held.Finalizers = []string{v1alpha1.FinalizerPeer}
			offloading := offloadingWith("shop", v1alpha1.StrategyRemote, nil)
			w := newWorld(t, held, virtualNode("turin", nil), offloading)
			w.connect("turin")
			if test.asked {
				w.mustReconcile(w.controller.mappings, pair("shop", "turin"))
			}
			if err := w.home.Delete(context.Background(), held); err != nil {
				t.Fatal(err)
			}
			w.mustReconcile(w.controller.mappings, pair("shop", "turin"))
			if diff := cmp.Diff(test.want, w.peers["turin"].names()); diff != "" {
				t.Errorf("mappings with the offloading (-want +got):\n%s", diff)
			}
			if err := w.home.Delete(context.Background(), offloading); err != nil {
				t.Fatal(err)
			}
			w.mustReconcile(w.controller.mappings, pair("shop", "turin"))
			if diff := cmp.Diff(test.want, w.peers["turin"].names()); diff != "" {
				t.Errorf("mappings without it (-want +got):\n%s", diff)
			}
		})
	}
}

// A cache that has lost the offloading must not end the pods in the twin.
func TestTwinIsNotGivenUpOnTheWordOfACache(t *testing.T) {
	w := newWorld(t, offloadingWith("shop", v1alpha1.StrategyRemote, nil), provider("turin"), virtualNode("turin", nil))
	w.connect("turin")
	w.settle("shop")
	empty := newWorld(t)
	w.controller.mappings.Client = empty.home

	w.mustReconcile(w.controller.mappings, pair("shop", "turin"))
	if diff := cmp.Diff([]string{"shop"}, w.peers["turin"].names()); diff != "" {
		t.Errorf("mappings (-want +got):\n%s", diff)
	}
}

func TestNothingIsDecidedOverAnUnusableLink(t *testing.T) {
	for name, spoil := range map[string]func(*world){
		"the mirror is not complete": func(w *world) {
			w.peers["turin"].Rejoin(tenantThere)
			w.peers["turin"].Silence()
			w.links.Link(provider("turin"))
		},
		"the link is closed": func(w *world) { w.links.Links.Close("turin") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, offloadingWith("shop", v1alpha1.StrategyRemote, nil), provider("turin"), virtualNode("turin", nil))
			w.connect("turin")
			spoil(w)
			w.mustReconcile(w.controller.mappings, pair("shop", "turin"))
			if got := w.peers["turin"].written(); got != 0 {
				t.Errorf("%d writes, want none", got)
			}
		})
	}
}

// The cost of an event must not grow with what it does not touch.
func TestAnEventAsksOnlyForWhatItTouches(t *testing.T) {
	objects := []client.Object{offloadingWith("shop", v1alpha1.StrategyRemote, nil), offloadingWith("bank", "", nil)}
	var names []string
	for i := range 50 {
		name := fmt.Sprintf("peer-%02d", i)
		names = append(names, name)
		objects = append(objects, provider(name))
	}
	w := newWorld(t, objects...)
	w.connect(names...)
	m, ctx := w.controller.mappings, t.Context()

	for name, test := range map[string]struct {
		got  []reconcile.Request
		want int
	}{
		"a virtual node: the namespaces":          {m.pairsOfPeer(ctx, virtualNode("peer-01", nil)), 2},
		"a namespace: the peers":                  {m.pairsOfNamespace(ctx, offloadingWith("shop", "", nil)), 50},
		"a pod on a virtual node: one pair":       {pairOfPod(ctx, podOn("shop", "web", "hanse-peer-01")), 1},
		"a pod on a real node: none":              {pairOfPod(ctx, podOn("shop", "web", "worker")), 0},
		"a virtual node of an unknown peer: none": {m.pairsOfPeer(ctx, virtualNode("riga", nil)), 0},
	} {
		if len(test.got) != test.want {
			t.Errorf("%s: %d requests, want %d", name, len(test.got), test.want)
		}
	}
}

func TestHeartbeatsOfNodesAreIgnored(t *testing.T) {
	before, after := virtualNode("turin", nil), virtualNode("turin", nil)
	after.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Now()}}
	if virtualNodeChanged.Update(updateOf(before, after)) {
		t.Error("a heartbeat is let through")
	}
	after.Labels["region"] = "south"
	if !virtualNodeChanged.Update(updateOf(before, after)) {
		t.Error("a new label is not let through")
	}
	delete(after.Labels, v1alpha1.LabelType)
	delete(before.Labels, v1alpha1.LabelType)
	if virtualNodeChanged.Update(updateOf(before, after)) {
		t.Error("a real node is let through")
	}
}

func (w *world) mapping(peer, namespace string) *v1alpha1.NamespaceMapping {
	w.t.Helper()
	return testkit.Get[v1alpha1.NamespaceMapping](w.peers[peer].cluster, tenantThere, namespace)
}

// called changes how the twins of a namespace are called.
func (w *world) called(namespace string, naming *v1alpha1.TwinNaming) {
	w.t.Helper()
	o := w.offloading(namespace)
	o.Spec.Twin = naming
	if err := w.home.Update(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

// With many pods each of which asks again when it goes.
func TestPodsThatTheCacheShowsCostNoLiveReads(t *testing.T) {
	const pods = 10
	objects := []client.Object{offloadingWith("shop", v1alpha1.StrategyRemote, nil), provider("turin"), virtualNode("turin", nil)}
	for i := range pods {
		objects = append(objects, podOn("shop", fmt.Sprint("web-", i), "hanse-turin"))
	}
	w := newWorld(t, objects...)
	w.connect("turin")
	w.settle("shop")
	w.peers["turin"].answer(t, "shop", twin("shop-lubeck-abcdef"))
	w.settle("shop")
	live, reads := testkit.NewCluster(t, w.clock, provider("turin"), virtualNode("turin", nil)), 0
	live.OnRead(func(testkit.Read) error { reads++; return nil })
	w.controller.mappings.Live = live.Client
	if err := w.home.Delete(t.Context(), w.offloading("shop")); err != nil {
		t.Fatal(err)
	}
	for _, pod := range objects[3:] {
		w.mustReconcile(w.controller.mappings, pair("shop", "turin"))
		w.cluster.Remove(pod)
	}
	if reads != 0 {
		t.Errorf("%d live reads while there are pods", reads)
	}
	w.mustReconcile(w.controller.mappings, pair("shop", "turin"))
	if left := w.peers["turin"].names(); len(left) != 0 || reads != 6 {
		t.Errorf("after %d live reads there are mappings %v", reads, left)
	}
}

// Credentials may be those of another Peer, which then needs the mappings that are found there.
func TestMappingsOfAPeerThatIsNotTheOneItNamesStay(t *testing.T) {
	peer := provider("turin")
	w := newWorld(t, offloadingWith("shop", v1alpha1.StrategyRemote, nil), peer, virtualNode("turin", nil))
	w.connect("turin")
	w.settle("shop")
	w.peers["turin"].answer(t, "shop", twin("shop-lubeck-abcdef"))
	w.settle("shop")
	meta.SetStatusCondition(&peer.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionAuthenticated, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonClusterIDTaken,
	})
	w.cluster.Put(peer)
	if err := w.home.Delete(t.Context(), w.offloading("shop")); err != nil {
		t.Fatal(err)
	}
	w.mustReconcile(w.controller.mappings, pair("shop", "turin"))
	if left := w.peers["turin"].names(); len(left) != 1 {
		t.Errorf("there are mappings %v", left)
	}
}

func TestClusterSelectorIsParsedOnceForAllPeers(t *testing.T) {
	w := newWorld(t, offloadingWith("shop", v1alpha1.StrategyRemote, south), provider("bergen"), virtualNode("bergen", nil))
	m := w.controller.mappings
	expect := func(want need) situation {
		t.Helper()
		seen, err := m.observe(t.Context(), w.home, "shop", "bergen")
		if err != nil || seen.need() != want {
			t.Fatalf("need %v, error %v", seen.need(), err)
		}
		return seen
	}
	seen := expect(notNeeded)
	allocations := testing.AllocsPerRun(100, func() {
		seen.placement, seen.invalid = m.placements.of("shop", seen.offloading)
		seen.need()
	})
	if allocations != 0 {
		t.Errorf("a decision about one more peer costs %g allocations", allocations)
	}
	changed := w.offloading("shop")
	changed.Spec.ClusterSelector = nil
	w.update(changed)
	expect(needed)
	w.cluster.Remove(changed)
	expect(notNeeded)
	if left := m.placements.byNamespace; len(left) != 0 {
		t.Errorf("of a namespace that is not offloaded any more %v is kept", left)
	}
}

// Where there is no Hanse, the administrator has chosen the namespace, and no name is asked for.
func TestClustersWithoutHanseHaveATwinAndAreNotAsked(t *testing.T) {
	offloading := offloadingWith("shop", v1alpha1.StrategyRemote, nil)
	offloading.Spec.Twin = &v1alpha1.TwinNaming{Naming: v1alpha1.TwinSameName}
	peer := provider("turin")
	peer.Spec.Mode, peer.Spec.Namespaces = v1alpha1.ModeAgentless, []string{"guests", "more"}
	w := newWorld(t, offloading, peer, virtualNode("turin", nil))
	w.connect("turin")
	w.settle("shop")
	if w.peers["turin"].written() > 0 {
		t.Errorf("it was asked for %v", w.peers["turin"].names())
	}
	got := w.offloading("shop").Status.Clusters
	if len(got) != 1 || got[0].State != stateReady || got[0].Twin != "guests" {
		t.Errorf("the user is told %+v", got)
	}

	offloading = w.offloading("shop")
	offloading.Spec.Strategy = v1alpha1.StrategyLocal
	w.update(offloading)
	w.settle("shop")
	if got := w.offloading("shop").Status.Clusters; w.peers["turin"].written() > 0 || len(got) > 0 {
		t.Errorf("after it is not wanted any more: %+v", got)
	}
}
