package main

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/agentless"
	"github.com/hanse-dev/hanse/internal/peers"
)

// addAgentless adds what makes the offers of clusters without Hanse.
func (f *marketFlags) addAgentless(mgr manager.Manager, links *peers.Links) error {
	c := &f.advertising
	config := agentless.Config{
		ClusterID: c.ClusterID, Interval: c.HelloInterval, TimeToLive: c.HelloTimeout,
		LabelKeys: c.LabelKeys, Workers: c.Workers,
	}
	return agentless.NewOfferer(config, mgr.GetClient(), agentless.By(links), f.clock).SetupWithManager(mgr)
}

// An adapter has peers without Hanse look as if Hanse ran there.
type adapter struct {
	links *agentless.Links

	mu      sync.Mutex
	current map[string]adapted // peer → its link
}

type adapted struct {
	link      *agentless.Link
	transport *peers.Transport
}

// newAdapter returns an adapter, which the manager ends.
func newAdapter(mgr manager.Manager) (*adapter, error) {
	a := &adapter{links: agentless.NewLinks(), current: map[string]adapted{}}
	return a, mgr.Add(a.links)
}

// adapt is a peers.Config.Adapt.
func (a *adapter) adapt(ctx context.Context, made *peers.Link, peer *v1alpha1.Peer) (*peers.Transport, error) {
	link, err := a.links.Of(ctx, agentless.Over(made), peer)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current[peer.Name].link != link {
		a.current[peer.Name] = adapted{link, &peers.Transport{
			Client: link.Client(), RemotePod: link.RemotePod,
			Feed: func(ctx context.Context, feed *peers.Feed) { newAgentlessFeed(ctx, link, feed) },
		}}
	}
	return a.current[peer.Name].transport, nil
}

// An agentlessFeed feeds what a link to a cluster without Hanse shows.
type agentlessFeed struct {
	mu     sync.Mutex // the methods of a feed are called one at a time
	feed   *peers.Feed
	mirror agentless.Mirror // nil until it is known
}

func newAgentlessFeed(ctx context.Context, link *agentless.Link, feed *peers.Feed) {
	f := &agentlessFeed{feed: feed}
	mirror, err := link.Watch(ctx, feed.Subject().Example, feed.Namespace(), f.changed)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		feed.Fail(err)
		return
	}
	f.mirror = mirror
	feed.Go(func() { f.follow(ctx) })
}

func (f *agentlessFeed) changed(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mirror == nil || !f.mirror.HasSynced() {
		return // it is fed when all is known
	}
	if object, found := f.mirror.Get(key); found {
		copied, _ := object.DeepCopyObject().(client.Object)
		f.feed.Put(copied)
		return
	}
	f.feed.Delete(key)
}

// follow feeds everything as soon as it is known, and then why nothing is, if so.
func (f *agentlessFeed) follow(ctx context.Context) {
	if f.mirror.WaitForSync(ctx) == nil {
		f.replace()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.mirror.Failed():
		}
		f.fail(f.mirror.Err())
		err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(context.Context) (bool, error) {
			return f.mirror.Err() == nil, nil
		})
		if err != nil {
			return
		}
		f.fail(nil)
		if f.mirror.HasSynced() {
			f.replace()
		}
	}
}

func (f *agentlessFeed) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.feed.Fail(err)
}

func (f *agentlessFeed) replace() {
	f.mu.Lock()
	defer f.mu.Unlock()
	var objects []client.Object
	for _, object := range f.mirror.List() {
		copied, _ := object.DeepCopyObject().(client.Object)
		objects = append(objects, copied)
	}
	f.feed.Replace(objects)
}
