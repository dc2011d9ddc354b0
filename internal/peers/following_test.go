// SPDX-License-Identifier: Apache-2.0

package peers_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/peers/peerstest"
)

const (
	tenantThere = "hanse-peer-lyon"
	shopTwin    = "shop-lyon-abc123"
)

var records = &peers.Subject{Example: &v1alpha1.ShadowPod{}}

// follower is our cluster with a link to turin, and the changes that a controller would be called for.
type follower struct {
	*peerstest.World
	t     *testing.T
	peer  *v1alpha1.Peer
	turin *peerstest.Peer
	queue workqueue.TypedRateLimitingInterface[string]
}

func newFollower(t *testing.T) *follower {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	f := &follower{
		World: peerstest.New(t, scheme, peers.Config{}), t: t,
		peer:  &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "turin"}},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
	}
	f.turin = f.Add("turin", tenantThere, fake.NewClientBuilder().WithScheme(scheme).Build())
	t.Cleanup(f.queue.ShutDown)
	return f
}

func (f *follower) start() {
	f.t.Helper()
	for _, s := range []interface {
		Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string]) error
	}{
		peers.LinkChanges(f.Links, func(_ context.Context, peer string, queue peers.Queue[string]) {
			queue.Add(fmt.Sprintf("link of %s: %d", peer, f.Links.State(peer)))
		}),
		peers.Changes(f.Links, peers.Mappings, func(_ context.Context, change peers.Change, queue peers.Queue[string]) {
			queue.Add("mapping " + change.Name)
		}),
		peers.Changes(f.Links, records, func(_ context.Context, change peers.Change, queue peers.Queue[string]) {
			queue.AddLow("record " + change.Home() + "/" + change.Name)
		}),
	} {
		if err := s.Start(f.t.Context(), f.queue); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *follower) expect(want ...string) {
	f.t.Helper()
	var got []string
	for f.queue.Len() > 0 {
		item, _ := f.queue.Get()
		f.queue.Done(item)
		got = append(got, item)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		f.t.Errorf("called for (-want +got):\n%s", diff)
	}
}

func (f *follower) expectFollowed(want ...string) {
	f.t.Helper()
	if diff := cmp.Diff(want, f.turin.Follows()); diff != "" {
		f.t.Errorf("followed at the peer (-want +got):\n%s", diff)
	}
}

func (f *follower) create(object client.Object) {
	f.t.Helper()
	if err := f.turin.Client.Create(f.t.Context(), object); err != nil {
		f.t.Fatal(err)
	}
}

func mappingTo(twin string) *v1alpha1.NamespaceMapping {
	return &v1alpha1.NamespaceMapping{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenantThere, Name: "shop"},
		Status:     v1alpha1.NamespaceMappingStatus{Twin: twin},
	}
}

func record(name string) *v1alpha1.ShadowPod {
	return &v1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: shopTwin, Name: name}}
}

const up = "link of turin: 1"

func TestControllersAreCalledForWhatChangesAtPeers(t *testing.T) {
	f := newFollower(t)
	f.start()
	link := f.Link(f.peer)
	f.expect("link of turin: 0")
	link.Mappings()
	f.expect("mapping ", up)
	f.create(mappingTo(shopTwin))
	f.expect("mapping shop")

	f.create(record("web-1"))
	if link.FollowTwin(records, "shop") == nil {
		t.Fatal("the twin is not followed")
	}
	f.expect("record shop/")
	f.create(record("web-2"))
	f.expect("record shop/web-2")
	if err := f.turin.Client.Delete(t.Context(), record("web-1")); err != nil {
		t.Fatal(err)
	}
	f.expect("record shop/web-1")

	f.Links.Close("turin")
	f.expect("link of turin: 0")
	f.expectFollowed()
}

func TestControllersThatStartLateAreCalledForWhatIsThere(t *testing.T) {
	f := newFollower(t)
	f.create(mappingTo(shopTwin))
	f.create(record("web-1"))
	f.Link(f.peer).FollowTwin(records, "shop")
	f.start()
	f.expect(up, "mapping ", "record shop/")
}

func TestAllWhoFollowTheSameShareOneMirror(t *testing.T) {
	f := newFollower(t)
	f.create(mappingTo(shopTwin))
	link := f.Link(f.peer)
	mappings, twin := link.Mappings(), link.FollowTwin(records, "shop")
	if f.Link(f.peer) != link || link.Mappings() != mappings || link.FollowTwin(records, "shop") != twin {
		t.Error("there are two of the same")
	}
	f.expectFollowed("NamespaceMapping in "+tenantThere, "ShadowPod in "+shopTwin)
	link.Unfollow(records, "shop")
	f.expectFollowed("NamespaceMapping in " + tenantThere)
	if link.Followed(records, "shop") != nil {
		t.Error("the mirror is still there")
	}
}

func TestTwinIsFollowedAsLongAsItIsTheTwin(t *testing.T) {
	f := newFollower(t)
	mapping := mappingTo(shopTwin)
	f.create(mapping)
	link := f.Link(f.peer)
	old := link.FollowTwin(records, "shop")

	mapping.Status.Twin = "shop-lyon-def456"
	if err := f.turin.Client.Update(t.Context(), mapping); err != nil {
		t.Fatal(err)
	}
	f.expectFollowed("NamespaceMapping in " + tenantThere)
	if made := link.FollowTwin(records, "shop"); made == old || made.Namespace() != "shop-lyon-def456" {
		t.Error("the twin that it was is followed")
	}
	if err := f.turin.Client.Delete(t.Context(), mapping); err != nil {
		t.Fatal(err)
	}
	f.expectFollowed("NamespaceMapping in " + tenantThere)
	if link.FollowTwin(records, "shop") != nil {
		t.Error("a twin is followed that there is not")
	}
}

func TestLastTwinIsFollowedUntilItIsEmpty(t *testing.T) {
	f := newFollower(t)
	mapping := mappingTo(shopTwin)
	f.create(mapping)
	f.create(record("web-1"))
	link := f.Link(f.peer)
	last := link.FollowTwin(records, "shop")
	if err := f.turin.Client.Delete(t.Context(), mapping); err != nil {
		t.Fatal(err)
	}
	if link.FollowTwin(records, "shop") != nil || link.Followed(records, "shop") != last {
		t.Error("what still ends in the last twin is not followed")
	}
	f.expectFollowed("NamespaceMapping in "+tenantThere, "ShadowPod in "+shopTwin)
	if err := f.turin.Client.Delete(t.Context(), record("web-1")); err != nil {
		t.Fatal(err)
	}
	if link.FollowTwin(records, "shop") != nil || link.Followed(records, "shop") != nil {
		t.Error("an empty namespace that is no twin is followed")
	}
}

func TestTwinMustBeADNSLabel(t *testing.T) {
	f := newFollower(t)
	f.create(mappingTo("../kube-system"))
	link := f.Link(f.peer)
	if link.Twin("shop") != "" || link.FollowTwin(records, "shop") != nil {
		t.Error("what the peer says becomes part of paths")
	}
}

func TestPeerThatIsCutOffComesBack(t *testing.T) {
	f := newFollower(t)
	link := f.Link(f.peer)
	link.Mappings()
	if f.Links.State("turin") != peers.Up {
		t.Fatal("the peer does not answer")
	}
	f.turin.Cut()
	if link.Err() == nil {
		t.Error("the peer answers though it is cut off")
	}
	f.turin.Heal()
	if f.Links.State("turin") != peers.Up || link.Err() != nil {
		t.Error("the peer is not back")
	}
}

func TestPeerIsBackWhenAllThatIsFollowedIs(t *testing.T) {
	f := newFollower(t)
	f.create(mappingTo(shopTwin))
	link := f.Link(f.peer)
	link.FollowTwin(records, "shop")
	f.turin.Fail(fmt.Errorf("%w: 503", peers.ErrUnreachable))
	if got := f.Links.State("turin"); got != peers.Unknown {
		t.Errorf("after one failure the peer is %d", got)
	}
	f.turin.Cut()
	f.turin.Heal()
}

func TestNewCredentialsMakeAnotherLink(t *testing.T) {
	f := newFollower(t)
	before := f.Link(f.peer)
	before.Mappings()
	f.turin.Rejoin(tenantThere)
	after := f.Link(f.peer)
	if after == before {
		t.Fatal("the link is the same")
	}
	select {
	case <-before.Done():
	case <-time.After(time.Minute):
		t.Error("the old link is open")
	}
	f.expectFollowed()
	if before.Follow(records, tenantThere).Err() == nil {
		t.Error("a closed link is followed")
	}
	f.turin.RemoveCredentials()
	if _, err := f.Links.Ensure(t.Context(), f.peer); err == nil {
		t.Error("a link without credentials")
	}
	if _, open := f.Links.Get("turin"); open {
		t.Error("the link is open without credentials")
	}
	if got := f.Links.State("turin"); got != peers.Unlinked {
		t.Errorf("without credentials the peer is %d", got)
	}
}

func TestPeerThatNeverHadCredentialsIsToldOf(t *testing.T) {
	f := newFollower(t)
	f.start()
	f.turin.RemoveCredentials()
	if _, err := f.Links.Ensure(t.Context(), f.peer); err == nil {
		t.Error("a link without credentials")
	}
	f.expect("link of turin: 3")
	f.turin.Rejoin(tenantThere)
	f.Link(f.peer)
	f.expect("link of turin: 0")
}

// What is called for a change follows something else at once, and asks for the link: both must work while the change is told.
func TestSourcesMayUseTheLinkThatTheyAreCalledFor(t *testing.T) {
	f := newFollower(t)
	use := func(ctx context.Context) {
		if link, err := f.Links.Ensure(ctx, f.peer); err == nil {
			link.Unfollow(records, "shop")
			link.FollowTwin(records, "shop")
			link.State()
		}
	}
	for _, s := range []interface {
		Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string]) error
	}{
		peers.LinkChanges(f.Links, func(ctx context.Context, _ string, _ peers.Queue[string]) { use(ctx) }),
		peers.Changes(f.Links, peers.Mappings, func(ctx context.Context, _ peers.Change, _ peers.Queue[string]) { use(ctx) }),
	} {
		if err := s.Start(t.Context(), f.queue); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Link(f.peer).Mappings()
		f.create(mappingTo(shopTwin))
		f.create(record("web-1"))
		f.turin.Rejoin(tenantThere)
		f.Link(f.peer).Mappings()
		f.Links.Close("turin")
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("a source waits for what waits for it")
	}
}
