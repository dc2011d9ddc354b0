package namespaces

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
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
	w.peers["turin"].answer("shop", twin("shop-lubeck-abcdef"))
	w.settle("shop")

	home, remote := w.homeWrites.Load(), w.peers["turin"].writes.Load()
	w.clock.Step(eventLife)
	w.settle("shop")
	if got := w.homeWrites.Load() - home; got != 0 {
		t.Errorf("%d writes at home, want none", got)
	}
	if got := w.peers["turin"].writes.Load() - remote; got != 0 {
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
			w.mustReconcile(w.controller.mapper, pair("shop", "turin"))
			if got := w.peers["turin"].names(); len(got) != 1 {
				t.Fatalf("mappings %v, want one", got)
			}

			test.change(t, w)
			w.mustReconcile(w.controller.mapper, pair("shop", "turin"))
			if diff := cmp.Diff(test.want, w.peers["turin"].names()); diff != "" {
				t.Errorf("mappings (-want +got):\n%s", diff)
			}
		})
	}
}

// Twins of a peer that we part from go in the order of the parting.
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
				w.mustReconcile(w.controller.mapper, pair("shop", "turin"))
			}
			if err := w.home.Delete(context.Background(), held); err != nil {
				t.Fatal(err)
			}
			w.mustReconcile(w.controller.mapper, pair("shop", "turin"))
			if diff := cmp.Diff(test.want, w.peers["turin"].names()); diff != "" {
				t.Errorf("mappings with the offloading (-want +got):\n%s", diff)
			}
			if err := w.home.Delete(context.Background(), offloading); err != nil {
				t.Fatal(err)
			}
			w.mustReconcile(w.controller.mapper, pair("shop", "turin"))
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
	w.controller.mapper.client = empty.home

	w.mustReconcile(w.controller.mapper, pair("shop", "turin"))
	if diff := cmp.Diff([]string{"shop"}, w.peers["turin"].names()); diff != "" {
		t.Errorf("mappings (-want +got):\n%s", diff)
	}
}

func TestNothingIsDecidedOverAnUnusableLink(t *testing.T) {
	for name, spoil := range map[string]func(*fakeRemote){
		"the mirror is not complete": func(r *fakeRemote) { r.synced = false },
		"the link is closed":         func(r *fakeRemote) { close(r.done) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, offloadingWith("shop", v1alpha1.StrategyRemote, nil), provider("turin"), virtualNode("turin", nil))
			w.connect("turin")
			spoil(w.peers["turin"])
			w.mustReconcile(w.controller.mapper, pair("shop", "turin"))
			if got := w.peers["turin"].writes.Load(); got != 0 {
				t.Errorf("%d writes, want none", got)
			}
		})
	}
}

func TestAnotherLinkIsFollowed(t *testing.T) {
	w := newWorld(t, offloadingWith("shop", v1alpha1.StrategyRemote, nil), provider("turin"), virtualNode("turin", nil))
	w.connect("turin")
	old := w.peers["turin"]
	close(old.done)
	w.connect("turin")
	w.settle("shop")

	if got := old.names(); len(got) != 0 {
		t.Errorf("the closed link was used: %v", got)
	}
	if diff := cmp.Diff([]string{"shop"}, w.peers["turin"].names()); diff != "" {
		t.Errorf("mappings (-want +got):\n%s", diff)
	}
}

func TestConnectorComplainsOnlyOfWhatIsNotExpected(t *testing.T) {
	broken := errors.New("broken")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "hanse-link", nil)
	for name, test := range map[string]struct {
		err, want error
		again     time.Duration
	}{
		"not joined yet":                   {err: fmt.Errorf("%w: no Secret", peers.ErrCredentialsMissing), again: 30 * time.Second},
		"a Secret that cannot be read":     {err: fmt.Errorf("%w: no token", peers.ErrCredentialsInvalid), again: 30 * time.Second},
		"rights that have not settled yet": {err: fmt.Errorf("read Secret: %w", forbidden), again: time.Second},
		"anything else":                    {err: broken, want: broken},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, provider("turin"))
			connector := w.controller.connector
			connector.connect = func(context.Context, *v1alpha1.Peer) (Remote, error) { return nil, test.err }
			result, err := connector.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "turin"}})
			if !errors.Is(err, test.want) || result.RequeueAfter != test.again {
				t.Errorf("looks again in %s, error %v, want %s, %v", result.RequeueAfter, err, test.again, test.want)
			}
			if _, connected := w.controller.remotes.get("turin"); connected {
				t.Error("it counts as connected")
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
	m, ctx := w.controller.mapper, context.Background()

	for name, test := range map[string]struct {
		got  []reconcile.Request
		want int
	}{
		"a virtual node: the namespaces":          {m.pairsOfNode(ctx, virtualNode("peer-01", nil)), 2},
		"a namespace: the peers":                  {m.pairsOfNamespace(ctx, offloadingWith("shop", "", nil)), 50},
		"a pod on a virtual node: one pair":       {pairOfPod(ctx, podOn("shop", "web", "hanse-peer-01")), 1},
		"a pod on a real node: none":              {pairOfPod(ctx, podOn("shop", "web", "worker")), 0},
		"a virtual node of an unknown peer: none": {m.pairsOfNode(ctx, virtualNode("riga", nil)), 0},
	} {
		if len(test.got) != test.want {
			t.Errorf("%s: %d requests, want %d", name, len(test.got), test.want)
		}
	}
}

func TestRequestsMadeBeforeTheStartAreKept(t *testing.T) {
	bell := &doorbell{}
	bell.ring(pair("shop", "turin"))
	w := newWorld(t)
	w.controller.mapper.queue.ring(pair("bank", "turin"))
	if err := bell.Start(context.Background(), w.controller.mapper.queue.queue); err != nil {
		t.Fatal(err)
	}
	if got := w.controller.mapper.queue.queue.Len(); got != 2 {
		t.Errorf("%d requests in the queue, want 2", got)
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
