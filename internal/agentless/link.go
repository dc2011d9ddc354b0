package agentless

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// How soon what failed is tried again: at first, and at last.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = time.Minute
)

// A Link shows a cluster without Hanse as if Hanse ran there: with a twin of each home namespace, and ShadowPods in it.
type Link struct {
	API
	view   *view
	client *shadowClient
	ctx    context.Context //nolint:containedctx // the life of the link itself, not that of a call
	close  context.CancelFunc
	crew   *crew
	queue  workqueue.TypedRateLimitingInterface[types.NamespacedName] // home pods that something has happened to
}

// newLink makes a link that ends with ctx or the API. The crew works for it.
func newLink(ctx context.Context, api API, peer *v1alpha1.Peer, working *crew) (*Link, error) {
	seen := newView(peer.Spec.ClusterID, slices.Clone(peer.Spec.Namespaces))
	l := &Link{
		API: api, view: seen, crew: working,
		client: &shadowClient{
			Client: api.Client(), view: seen, hand: hand{client: api.Client(), id: seen.id},
		},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry)),
	}
	l.ctx, l.close = context.WithCancel(ctx)
	seen.listen(l.queue.Add)
	if err := seen.watch(l.ctx, api); err != nil {
		l.close()
		l.queue.ShutDown()
		return nil, err
	}
	working.run(l.work)
	working.run(func() {
		select {
		case <-api.Done():
			l.close()
		case <-l.ctx.Done():
		}
		l.queue.ShutDown()
	})
	return l, nil
}

// work tends each home pod that something has happened to.
func (l *Link) work() {
	for {
		home, ended := l.queue.Get()
		if ended {
			return
		}
		l.tend(home)
		l.queue.Done(home)
	}
}

func (l *Link) tend(home types.NamespacedName) {
	seen, found := l.view.look(home)
	if !found {
		l.queue.Forget(home)
		return
	}
	if err := l.client.hand.tend(l.ctx, seen); err != nil {
		ctrl.LoggerFrom(l.ctx).V(1).Info("Cannot keep the record of a pod", "Pod", home.String(), "cause", err.Error())
		l.queue.AddRateLimited(home)
		return
	}
	l.queue.Forget(home)
}

// Client returns a client of the peer for which ShadowPods exist.
func (l *Link) Client() client.Client { return l.client }

// Watch mirrors NamespaceMappings in the tenant namespace, or ShadowPods in a twin namespace, until ctx or the link ends.
func (l *Link) Watch(
	ctx context.Context, example client.Object, namespace string, changed func(types.NamespacedName),
) (Mirror, error) {
	switch example.(type) {
	case *v1alpha1.NamespaceMapping:
		made := newMappings(l.view, namespace)
		l.listen(ctx, func(home types.NamespacedName) { made.learn(home.Namespace) })
		l.crew.run(func() { made.tell(joined(ctx, l.ctx), changed) })
		return made, nil
	case *v1alpha1.ShadowPod:
		l.listen(ctx, func(home types.NamespacedName) {
			if home.Namespace == namespace {
				changed(home)
			}
		})
		return &shadows{view: l.view, namespace: namespace}, nil
	default:
		return nil, fmt.Errorf("a cluster without Hanse has no %T", example)
	}
}

// listen has tell called with what changes until ctx ends, and once for each home pod of which there is something now.
func (l *Link) listen(ctx context.Context, tell func(types.NamespacedName)) {
	context.AfterFunc(ctx, l.view.listen(tell))
	for _, home := range l.view.homes("") {
		tell(home)
	}
}

// joined returns a context that ends with either.
func joined(ctx, other context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(other, cancel)
	return ctx
}

// RemotePod returns the namespace and the name of the pod that runs for the ShadowPod now, if there is one.
func (l *Link) RemotePod(shadow *v1alpha1.ShadowPod) (types.NamespacedName, bool) {
	seen, found := l.view.look(client.ObjectKeyFromObject(shadow))
	if !found || seen.keeper.GetUID() != shadow.UID || seen.pod() == nil {
		return types.NamespacedName{}, false
	}
	return client.ObjectKeyFromObject(seen.pod()), true
}
