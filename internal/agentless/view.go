package agentless

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

const (
	// firstRetry and lastRetry are how soon a write that failed is tried again, at first and at last.
	firstRetry = 100 * time.Millisecond
	lastRetry  = time.Minute
	// recoveryPoll is how soon it is noticed that a mirror which failed is up to date again.
	recoveryPoll = 200 * time.Millisecond
)

var errUnnamed = errors.New("the Peer has no cluster id or no namespaces yet")

// Adapt returns the way by which a peer without Hanse looks as if Hanse ran there, with a twin of each home namespace and
// ShadowPods in it. It is a peers.Config.Adapt.
func Adapt(link *peers.Link, peer *v1alpha1.Peer) (*peers.Transport, error) {
	if peer.Spec.ClusterID == "" || len(peer.Spec.Namespaces) == 0 {
		return nil, errUnnamed
	}
	return newView(link, peer.Spec.ClusterID, peer.Spec.Namespaces).transport(), nil
}

// A view shows what we have at a peer without Hanse as ShadowPods. They lie in twins that have the names of the home
// namespaces, so that pods of the same name in two namespaces do not meet: no namespace has to be made at the peer.
type view struct {
	link       *peers.Link
	id         string   // by which the peer knows us, and we it
	namespaces []string // at the peer
	writer     writer
	queue      workqueue.TypedRateLimitingInterface[types.NamespacedName] // home pods that something has happened to

	mu      sync.Mutex
	store   store
	mirrors map[source]*peers.Mirror
	feeds   map[*shadowFeed]struct{}
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
		link: link, id: id, namespaces: slices.Clone(namespaces), writer: writer{client: link.Client(), id: id},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry)),
		store: newStore(), mirrors: map[source]*peers.Mirror{}, feeds: map[*shadowFeed]struct{}{},
	}
}

func (v *view) transport() *peers.Transport {
	return &peers.Transport{
		Client:    &shadowClient{Client: v.link.Client(), view: v},
		Feed:      v.feed,
		Run:       v.run,
		Mapping:   v.mapping,
		Leftovers: v.leftovers,
		RemotePod: v.remotePod,
	}
}

// run follows what is at the peer until ctx ends.
func (v *view) run(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	defer v.queue.ShutDown()
	working.Go(func() { v.keepRecords(ctx) })
	ours := labels.SelectorFromSet(labels.Set{v1alpha1.LabelAgentless: v.id})
	var made []*peers.Mirror
	for _, namespace := range v.namespaces {
		for of, example := range examples {
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
		v.queue.Add(home)
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
		home, ours = v.homeOf(from.kind, object)
	}
	if !ours {
		object = nil
	}
	return v.store.set(place{from.kind, key}, home, object)
}

// homeOf returns the home pod that the object is for. What owns a pod has the name that follows from the pod: an object of
// another name was made by somebody else.
func (v *view) homeOf(of kind, object client.Object) (types.NamespacedName, bool) {
	home, ours := homeOf(v.id, object)
	return home, ours && (of == pods || object.GetName() == remoteName(v.id, home))
}

// follow shows everything when the mirror has synced, and from then on whether it is up to date.
func (v *view) follow(ctx context.Context, mirror *peers.Mirror) {
	if mirror.WaitForSync(ctx) == nil {
		v.showAll()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-mirror.Failed():
		}
		v.showAll()
		err := wait.PollUntilContextCancel(ctx, recoveryPoll, true, func(context.Context) (bool, error) {
			return mirror.Err() == nil, nil
		})
		if err != nil {
			return
		}
		v.showAll()
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
	return len(v.mirrors) == len(v.namespaces)*len(examples)
}

// feed is peers.Transport.Feed.
func (v *view) feed(ctx context.Context, of *peers.Feed) {
	switch of.Subject().Example.(type) {
	case *v1alpha1.ShadowPod:
	case *v1alpha1.NamespaceMapping: // they are made as they are asked for, so that this feed tells only of failures
	default:
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
	feed.Fail(err)
	if synced {
		feed.Replace(objects)
	}
}

// all returns the ShadowPods that the feed is to show.
func (v *view) all(feed *shadowFeed) (objects []client.Object, synced bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, home := range v.store.all() {
		if seen, found := v.store.look(home); found && feed.shows(home) {
			objects = append(objects, shadowOf(home, seen))
		}
	}
	return objects, v.synced(), v.err()
}

// shows reports whether the feed is to show the ShadowPod of the home pod. The peer may have invented the namespace.
func (f *shadowFeed) shows(home types.NamespacedName) bool {
	_, isShadowPod := f.Subject().Example.(*v1alpha1.ShadowPod)
	return isShadowPod && f.Namespace() == home.Namespace
}

func (v *view) showAll() {
	for _, feed := range v.open() {
		v.fill(feed)
	}
}

// show has the feeds show what there is of the home pod, unless they are filled later.
func (v *view) show(home types.NamespacedName) {
	for _, feed := range v.open() {
		if feed.shows(home) {
			v.showIn(feed, home)
		}
	}
}

func (v *view) showIn(feed *shadowFeed, home types.NamespacedName) {
	feed.mu.Lock()
	defer feed.mu.Unlock()
	v.mu.Lock()
	seen, found := v.store.look(home)
	synced := v.synced()
	v.mu.Unlock()
	switch {
	case !synced:
	case found:
		feed.Put(shadowOf(home, seen))
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

// remotePod is peers.Transport.RemotePod.
func (v *view) remotePod(shadow *v1alpha1.ShadowPod) (types.NamespacedName, bool) {
	seen, found := v.look(client.ObjectKeyFromObject(shadow))
	if !found || seen.owner.GetUID() != shadow.UID || seen.pod() == nil {
		return types.NamespacedName{}, false
	}
	return client.ObjectKeyFromObject(seen.pod()), true
}

// look returns what there is for the home pod.
func (v *view) look(home types.NamespacedName) (observed, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.store.look(home)
}

// keepRecords does for each home pod what nobody asks for, until the queue ends.
func (v *view) keepRecords(ctx context.Context) {
	for {
		home, ended := v.queue.Get()
		if ended {
			return
		}
		v.keepRecord(ctx, home)
		v.queue.Done(home)
	}
}

func (v *view) keepRecord(ctx context.Context, home types.NamespacedName) {
	if seen, found := v.look(home); found {
		if err := v.writer.keepRecord(ctx, seen); err != nil {
			ctrl.LoggerFrom(ctx).V(1).Info("Cannot keep the record of a pod", "Pod", home.String(), "cause", err.Error())
			v.queue.AddRateLimited(home)
			return
		}
	}
	v.queue.Forget(home)
}
