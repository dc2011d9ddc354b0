// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/peers/peerstest"
	"github.com/hanse-dev/hanse/internal/testkit"
)

const (
	ourMappings = "NamespaceMapping in " + tenant
	shopRecords = "ShadowPod in " + twinName
)

func (w *world) expectFollowed(want ...string) {
	w.Helper()
	if diff := cmp.Diff(want, w.turin.Follows()); diff != "" {
		w.Errorf("followed at the peer (-want +got):\n%s", diff)
	}
}

// sources starts what calls the pod controller for changes at peers, and returns its queue.
func (w *world) sources() priorityqueue.PriorityQueue[request] {
	w.Helper()
	queue := priorityqueue.New[request]("pod")
	w.Cleanup(queue.ShutDown)
	events := podEvents{reader: w.Home.Client, links: w.links}
	for _, s := range []source.TypedSource[request]{
		peers.LinkChanges(w.links, events.linkChanged),
		peers.Changes(w.links, peers.Mappings, events.mappingChanged),
		peers.Changes(w.links, records, events.recordChanged),
	} {
		if err := s.Start(w.Context(), queue); err != nil {
			w.Fatal(err)
		}
	}
	return queue
}

func TestRecordsAreFollowedWhereThereArePods(t *testing.T) {
	invented := mapping()
	invented.Name, invented.Status.Twin = "invented", "invented-twin"
	w := newWorld(t, peer(), advertisement(), offloading(), podCalled("web-1"))
	w.put(w.Away, mapping())
	w.put(w.Away, invented)
	w.reconcileNode()
	w.expectFollowed(ourMappings)
	w.reconcilePod("web-1")
	w.reconcilePod("web-1")
	w.expectFollowed(ourMappings, shopRecords)
}

func TestRecordsThatHomeHasForgottenAreLookedFor(t *testing.T) {
	w := newWorld(t, peer(), advertisement(), offloading())
	queue := w.sources()
	w.put(w.Away, mapping())
	w.put(w.Away, shadowOf(podCalled("web-1")))
	w.reconcileNode()
	w.expectFollowed(ourMappings, shopRecords)
	if req, _ := queue.Get(); req.Name != "web-1" {
		t.Errorf("looked at %v", req)
	}
}

func TestTwinsWithoutAnythingOfOursAreNotFollowed(t *testing.T) {
	w := newWorld(t, peer(), advertisement(), offloading())
	w.sources()
	w.put(w.Away, mapping())
	w.reconcileNode()
	w.expectFollowed(ourMappings)
}

func TestTwinIsFollowedForAWhileAfterItsLastPod(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.reconcilePod("web-1")
	w.remove(w.Home, podCalled("web-1"))
	w.reconcileNode()
	w.Clock.Step(2 * unfollowAfter)
	w.reconcileNode()
	w.expectFollowed(ourMappings, shopRecords) // of the pod that is gone there is still a record

	w.reconcilePod("web-1")
	w.forgetRemote("web-1")
	w.reconcileNode()
	w.expectFollowed(ourMappings, shopRecords)
	w.Clock.Step(unfollowAfter)
	w.reconcileNode()
	w.expectFollowed(ourMappings)
}

func TestNewCredentialsFollowEverythingAgain(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	before := w.link()
	w.reconcileNode()
	if w.link() != before {
		t.Error("the same credentials made another link")
	}
	w.turin.Rejoin(tenant)
	w.reconcileNode()
	w.reconcilePod("web-1")
	if w.link() == before {
		t.Error("the link is that of the old credentials")
	}
	w.expectFollowed(ourMappings, shopRecords)
	w.turin.RemoveCredentials()
	w.reconcileNode()
	if w.link() != nil {
		t.Error("there is a link without credentials")
	}
}

func TestLinkStaysAsLongAsThereArePodsToEnd(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	current := testkit.Get[v1alpha1.Peer](w.Home, "", turin)
	current.Spec.Roles = []v1alpha1.PeerRole{v1alpha1.RoleConsumer}
	w.put(w.Home, current)
	w.reconcileNode()
	if w.link() == nil {
		t.Error("the link of a node with pods is gone")
	}
	w.remove(w.Home, podCalled("web-1"))
	w.reconcileNode()
	w.reconcileNode()
	if w.link() != nil {
		t.Error("the link is still there")
	}
}

func TestNodeWithoutItsPeerGoesAtOnce(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.remove(w.Home, peer())
	w.reconcileNode()
	if diff := cmp.Diff([]string{"home delete Node " + turinNode}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if w.link() != nil {
		t.Error("the link is still there")
	}
}

func TestNewPodIsNotQueuedBehindThoseThatRun(t *testing.T) {
	var objects []client.Object
	for i := range 300 {
		pod := running()
		pod.Name = fmt.Sprintf("web-%d", i)
		pod.UID = types.UID(pod.Name)
		objects = append(objects, pod)
	}
	w := offloaded(t, append(objects, podCalled("zz-new"))...)
	queue := w.sources()
	if first, _ := queue.Get(); first.Name != "zz-new" {
		t.Errorf("the first to be looked at is %s", first.Name)
	}
	for range 300 {
		queue.Get() // all others are there too
	}
}

func TestPodIsNotQueuedBehindRecordsThatNobodyAskedFor(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	queue := w.sources()
	w.reconcilePod("web-1")
	for queue.Len() > 0 {
		before, _ := queue.Get()
		queue.Done(before)
	}
	for i := range 100 {
		w.put(w.Away, shadowOf(podCalled(fmt.Sprintf("invented-%d", i))))
	}
	changed := w.shadow("web-1")
	changed.Status.Recreations++
	w.put(w.Away, changed)
	if first, _ := queue.Get(); first.Name != "web-1" {
		t.Errorf("the first to be looked at is %s", first.Name)
	}
	for range 100 {
		queue.Get() // what was invented is looked at too, since home may have forgotten it
	}
}

// A peer may invent as many records as it likes: to take these back must not keep the workers from the pods of others.
func TestRecordsThatNobodyAskedForAreClearedByFewWorkers(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.put(w.Away, shadowOf(podCalled("invented")))
	end := peerstest.FillAside(w.link())
	again := w.reconcilePod("invented").RequeueAfter
	if again <= 0 || !w.shadow("invented").DeletionTimestamp.IsZero() {
		t.Errorf("while as many workers as may clear others, it is looked at again after %v: %v", again, w.shadow("invented"))
	}
	w.reconcilePod("web-1")
	w.shadow("web-1") // is there
	end()
	w.reconcilePod("invented")
	if w.shadow("invented").DeletionTimestamp.IsZero() {
		t.Error("what nobody asked for stays")
	}
}

func TestChangesAtAPeerCallForItsPods(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	queue := w.sources()
	// taken waits for so many requests: the news of a cut come a moment after it.
	taken := func(count int) []string {
		var names []string
		for range count {
			req, _ := queue.Get()
			queue.Done(req)
			names = append(names, req.Name)
		}
		slices.Sort(names)
		return names
	}
	taken(queue.Len())
	w.put(w.Away, shadowOf(podCalled("other")))
	if diff := cmp.Diff([]string{"other"}, taken(1)); diff != "" {
		t.Errorf("for a record (-want +got):\n%s", diff)
	}
	changed := testkit.Get[v1alpha1.NamespaceMapping](w.Away, tenant, "shop")
	changed.Status.Conditions = []metav1.Condition{}
	w.put(w.Away, changed)
	if diff := cmp.Diff([]string{"other", "web-1"}, taken(2)); diff != "" {
		t.Errorf("for a mapping (-want +got):\n%s", diff)
	}
	w.cut(true)
	if diff := cmp.Diff([]string{"other", "web-1"}, taken(2)); diff != "" {
		t.Errorf("for a cut (-want +got):\n%s", diff)
	}
}
