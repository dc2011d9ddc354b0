// SPDX-License-Identifier: Apache-2.0

package agentless

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// recoveryPoll is how soon it is noticed that a mirror which failed is up to date again.
const recoveryPoll = 200 * time.Millisecond

// A view shows what we have at a peer without Hanse as if Hanse had made it. It lies in twins that have the names of the home
// namespaces, so that objects of the same name in two namespaces do not meet: no namespace has to be made at the peer.
type view struct {
	link       *peers.Link
	id         string   // by which the peer knows us, and we it
	namespaces []string // at the peer
	contents   contents
	needed     bool // nothing works at the peer where one of the kinds cannot be read

	mu      sync.Mutex
	store   store
	mirrors map[source]*peers.Mirror
	feeds   map[*shadowFeed]struct{}
}

// contents are what a view is of.
type contents interface {
	// kinds are examples of what is followed at the peer.
	kinds() map[kind]client.Object
	// homeOf returns the object at home that one of these is for. Whatever is not ours is for none.
	homeOf(of kind, object client.Object) (types.NamespacedName, bool)
	// shows says whether feeds of objects such as the example are fed.
	shows(example client.Object) bool
	// shown returns what stands in such a feed for the object at home, or nil. The view is locked meanwhile.
	shown(example client.Object, home types.NamespacedName) client.Object
	// touched is called when something has changed that is for the object at home.
	touched(home types.NamespacedName)
}

// A shadowFeed feeds one mirror. Its lock is taken before that of the view, and never while that is held: what a feed
// shows may make a controller follow something else at once.
type shadowFeed struct {
	*peers.Feed

	mu sync.Mutex // the methods of a Feed are called one at a time
}

// A source is the objects of one kind in one namespace at the peer.
type source struct {
	kind      kind
	namespace string
}

func newView(link *peers.Link, id string, namespaces []string) *view {
	return &view{
		link: link, id: id, namespaces: slices.Clone(namespaces),
		store: newStore(), mirrors: map[source]*peers.Mirror{}, feeds: map[*shadowFeed]struct{}{},
	}
}

// shownBy returns the transport that shows what is in the view, with that client.
func (v *view) shownBy(c client.Client) *peers.Transport {
	return &peers.Transport{Client: c, Feed: v.feed, Run: v.run, Mapping: v.mapping, Leftovers: v.leftovers}
}

// run follows what is at the peer until ctx ends.
func (v *view) run(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	ours := labels.SelectorFromSet(labels.Set{v1alpha1.LabelAgentless: v.id})
	var made []*peers.Mirror
	for _, namespace := range v.namespaces {
		for of, example := range v.contents.kinds() {
			from := source{of, namespace}
			changed := func(key types.NamespacedName) { v.changed(from, key) }
			mirror, err := v.link.Watch(ctx, &peers.Subject{Example: example, Labels: ours}, namespace, changed)
			if err != nil {
				return // the link is closed
			}
			v.load(from, mirror)
			made = append(made, mirror)
		}
	}
	for _, mirror := range made {
		working.Go(func() { v.follow(ctx, mirror) })
	}
	v.showAll()
	<-ctx.Done()
}

// load takes in what the mirror showed before it was known here.
func (v *view) load(from source, mirror *peers.Mirror) {
	v.mu.Lock()
	v.mirrors[from] = mirror
	v.mu.Unlock()
	for _, object := range mirror.List() {
		v.changed(from, client.ObjectKeyFromObject(object))
	}
}

// changed takes in that an object has come, changed or gone.
func (v *view) changed(from source, key types.NamespacedName) {
	for _, home := range v.take(from, key) {
		v.show(home)
		v.contents.touched(home)
	}
}

// take enters the object into the store, and returns the home pods that the change is about.
func (v *view) take(from source, key types.NamespacedName) []types.NamespacedName {
	v.mu.Lock()
	defer v.mu.Unlock()
	mirror := v.mirrors[from]
	if mirror == nil {
		return nil // it is loaded later
	}
	object, exists := mirror.Get(key)
	home, ours := types.NamespacedName{}, false
	if exists {
		home, ours = v.contents.homeOf(from.kind, object)
	}
	if !ours {
		object = nil
	}
	return v.store.set(place{from.kind, key}, home, object)
}

// follow shows everything when the mirror has synced, and from then on whether it is up to date.
func (v *view) follow(ctx context.Context, mirror *peers.Mirror) {
	_ = mirror.WaitForSync(ctx) // it fails when ctx ends
	for {
		// Asked for before anything is shown: a failure that is shown, and over by then, has closed it.
		failed := mirror.Failed()
		v.showAll()
		select {
		case <-ctx.Done():
			return
		case <-failed:
		}
		v.showAll()
		err := wait.PollUntilContextCancel(ctx, recoveryPoll, true, func(context.Context) (bool, error) {
			return mirror.Err() == nil, nil
		})
		if err != nil {
			return
		}
	}
}

// err returns why the view is not up to date.
func (v *view) err() error {
	for _, mirror := range v.mirrors {
		if err := mirror.Err(); err != nil {
			return err
		}
	}
	return nil
}

// synced reports whether the view is of all that is at the peer.
func (v *view) synced() bool {
	for _, mirror := range v.mirrors {
		if !mirror.HasSynced() {
			return false
		}
	}
	return len(v.mirrors) == len(v.namespaces)*len(v.contents.kinds())
}

// feed is peers.Transport.Feed.
func (v *view) feed(ctx context.Context, of *peers.Feed) {
	if !isMapping(of) && !v.contents.shows(of.Subject().Example) {
		of.Fail(fmt.Errorf("a cluster without Hanse has no %T", of.Subject().Example))
		return
	}
	feed := &shadowFeed{Feed: of}
	v.mu.Lock()
	v.feeds[feed] = struct{}{}
	v.mu.Unlock()
	context.AfterFunc(ctx, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.feeds, feed)
	})
	v.fill(feed)
}

// isMapping says whether the feed is of NamespaceMappings. They are made as they are asked for, so that it tells alone when all is
// known, and of failures.
func isMapping(feed *peers.Feed) bool {
	_, is := feed.Subject().Example.(*v1alpha1.NamespaceMapping)
	return is
}

// open returns the feeds that have not ended.
func (v *view) open() []*shadowFeed {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Collect(maps.Keys(v.feeds))
}

// fill has the feed show all that it is to show, as soon as that is known, and else why it is not.
func (v *view) fill(feed *shadowFeed) {
	feed.mu.Lock()
	defer feed.mu.Unlock()
	objects, synced, err := v.all(feed)
	if !isMapping(feed.Feed) || v.needed {
		feed.Fail(err)
	}
	if synced {
		feed.Replace(objects)
	}
}

// all returns what the feed is to show.
func (v *view) all(feed *shadowFeed) (objects []client.Object, synced bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, home := range v.store.all() {
		if object := v.showing(feed, home); object != nil {
			objects = append(objects, object)
		}
	}
	return objects, v.synced(), v.err()
}

// showing returns what the feed is to show for the object at home, or nil. The peer may have invented the namespace.
func (v *view) showing(feed *shadowFeed, home types.NamespacedName) client.Object {
	if isMapping(feed.Feed) || feed.Namespace() != home.Namespace {
		return nil
	}
	return v.contents.shown(feed.Subject().Example, home)
}

func (v *view) showAll() {
	for _, feed := range v.open() {
		v.fill(feed)
	}
}

// show has the feeds show what there is for the object at home, unless they are filled later.
func (v *view) show(home types.NamespacedName) {
	for _, feed := range v.open() {
		if !isMapping(feed.Feed) && feed.Namespace() == home.Namespace {
			v.showIn(feed, home)
		}
	}
}

func (v *view) showIn(feed *shadowFeed, home types.NamespacedName) {
	feed.mu.Lock()
	defer feed.mu.Unlock()
	v.mu.Lock()
	object, synced := v.showing(feed, home), v.synced()
	v.mu.Unlock()
	switch {
	case !synced:
	case object != nil:
		feed.Put(object)
	default:
		feed.Delete(home)
	}
}

// mapping is peers.Transport.Mapping.
func (v *view) mapping(home string) *v1alpha1.NamespaceMapping {
	return &v1alpha1.NamespaceMapping{
		ObjectMeta: metav1.ObjectMeta{Namespace: v.link.TenantNamespace(), Name: home},
		Spec:       v1alpha1.NamespaceMappingSpec{HomeNamespace: home},
		Status: v1alpha1.NamespaceMappingStatus{Twin: home, Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAgentless,
			Message: "Pods run in a namespace that the administrator chose",
		}}},
	}
}

// leftovers is peers.Transport.Leftovers.
func (v *view) leftovers() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	found := map[string]struct{}{}
	for _, home := range v.store.all() {
		found[home.Namespace] = struct{}{}
	}
	return slices.Collect(maps.Keys(found))
}
