package kubelet

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

var shopMapping = types.NamespacedName{Namespace: tenant, Name: "shop"}

func TestSiteFollowsTheTwinsOfItsMappings(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	want := []string{"NamespaceMapping in " + tenant, "ShadowPod in " + twinName}
	if diff := cmp.Diff(want, w.link.watched); diff != "" {
		t.Errorf("watched (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]request{{Peer: turin, Namespace: "shop", Name: "web-1"}}, w.rung); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}

	w.sites.get(turin).mappingChanged(shopMapping)
	if len(w.link.watched) != 2 {
		t.Errorf("watched again: %v", w.link.watched)
	}
	w.delete(w.remote, mapping())
	w.sites.get(turin).mappingChanged(shopMapping)
	if seen := w.sites.get(turin).look("shop", "web-1"); seen.twin != "" || seen.mapping != nil {
		t.Errorf("still sees %+v", seen)
	}
}

func TestTwinThatIsNoNamespaceIsNotFollowed(t *testing.T) {
	w := newWorld(t, peer(), advertisement())
	w.reconcileNode()
	evil := mapping()
	evil.Status.Twin = "../kube-system"
	w.create(w.remote, evil)
	w.sites.get(turin).mappingChanged(shopMapping)
	if len(w.link.watched) != 1 {
		t.Errorf("watched %v", w.link.watched)
	}
}

func TestNewCredentialsOpenTheSiteAgain(t *testing.T) {
	w := offloaded(t)
	before := w.sites.get(turin)
	w.reconcileNode()
	if w.sites.get(turin) != before {
		t.Error("the same link made another site")
	}
	w.sites.links = &fakeLinks{link: &fakeLink{remote: w.remote, done: make(chan struct{}), synced: true}}
	w.reconcileNode()
	if w.sites.get(turin) == before || before.ctx.Err() == nil {
		t.Error("the site of the old link is still open")
	}
}

func TestSiteOfAClosedLinkIsForgotten(t *testing.T) {
	w := offloaded(t)
	w.sites.links = &fakeLinks{err: peers.ErrCredentialsMissing}
	w.reconcileNode()
	if w.sites.get(turin) == nil {
		t.Error("the site was forgotten though its link is open")
	}
	close(w.link.done)
	w.reconcileNode()
	if w.sites.get(turin) != nil {
		t.Error("the site of a closed link is still there")
	}
}

func TestLinkStaysAsLongAsThereArePodsToEnd(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	current := &v1alpha1.Peer{}
	if err := w.home.Get(t.Context(), client.ObjectKeyFromObject(peer()), current); err != nil {
		t.Fatal(err)
	}
	current.Spec.Roles = []v1alpha1.PeerRole{v1alpha1.RoleConsumer}
	w.update(w.home, current)
	w.reconcileNode()
	if w.sites.get(turin) == nil {
		t.Error("the site of a node with pods is gone")
	}
	w.delete(w.home, podCalled("web-1"))
	w.reconcileNode()
	w.reconcileNode()
	if w.sites.get(turin) != nil {
		t.Error("the site is still there")
	}
}

func TestNodeWithoutItsPeerGoesAtOnce(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.delete(w.home, peer())
	w.reconcileNode()
	if diff := cmp.Diff([]string{"home delete Node " + turinNode}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if w.sites.get(turin) != nil {
		t.Error("the site is still there")
	}
}

func TestDoorbellKeepsWhatRangBeforeTheStart(t *testing.T) {
	bell := &doorbell[request]{}
	early, late := request{Peer: turin, Name: "early"}, request{Peer: turin, Name: "late"}
	bell.ring(early)
	bell.ring(early)
	queue := newQueue(t)
	if err := bell.Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	bell.ring(late)
	var got []request
	for range 2 {
		req, _ := queue.Get()
		got = append(got, req)
	}
	if diff := cmp.Diff([]request{early, late}, got); diff != "" {
		t.Errorf("rang (-want +got):\n%s", diff)
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
	bell := &doorbell[request]{}
	events := podEvents{reader: w.home, ring: bell.ring, ringLow: bell.ringLow}
	queue := priorityqueue.New[request]("pod")
	t.Cleanup(queue.ShutDown)
	events.wake(t.Context(), w.sites.get(turin), "")
	if err := bell.Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	if first, _ := queue.Get(); first.Name != "zz-new" {
		t.Errorf("the first to be looked at is %s", first.Name)
	}
	for range 300 {
		queue.Get() // all others are there too
	}
}

func TestRestartReadsEachTwinOnce(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	for range 3 {
		w.reconcileNode()
		w.reopen()
		w.reconcilePod("web-1")
	}
	want := []string{"NamespaceMapping in " + tenant, "ShadowPod in " + twinName}
	if diff := cmp.Diff(want, w.link.watched); diff != "" {
		t.Errorf("watched (-want +got):\n%s", diff)
	}
}

func newQueue(t *testing.T) workqueue.TypedRateLimitingInterface[request] {
	t.Helper()
	queue := workqueue.NewTypedRateLimitingQueue(backOff[request](lastRetry))
	t.Cleanup(queue.ShutDown)
	return queue
}
