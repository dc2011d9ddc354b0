// SPDX-License-Identifier: Apache-2.0

package agentless

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
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
)

var errUnnamed = errors.New("the Peer has no cluster id or no namespaces yet")

// Adapt returns the way by which a peer without Hanse looks as if Hanse ran there, with a twin of each home namespace and
// ShadowPods in it. It is a peers.Config.Adapt.
func Adapt(link *peers.Link, peer *v1alpha1.Peer) (*peers.Transport, error) {
	if peer.Spec.ClusterID == "" || len(peer.Spec.Namespaces) == 0 {
		return nil, errUnnamed
	}
	return newPodView(link, peer.Spec.ClusterID, peer.Spec.Namespaces).transport(), nil
}

// A podView is of our ReplicaSets, Jobs and pods, and shows them as ShadowPods.
type podView struct {
	*view
	writer writer
	queue  workqueue.TypedRateLimitingInterface[types.NamespacedName] // home pods that something has happened to
}

func newPodView(link *peers.Link, id string, namespaces []string) *podView {
	v := &podView{
		view: newView(link, id, namespaces), writer: writer{client: link.Client(), id: id},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry)),
	}
	v.contents, v.needed = v, true
	return v
}

func (v *podView) transport() *peers.Transport {
	t := v.shownBy(&shadowClient{Client: v.link.Client(), view: v})
	t.Run, t.RemotePod = v.run, v.remotePod
	return t
}

// run keeps the view and records until ctx ends.
func (v *podView) run(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	defer v.queue.ShutDown()
	working.Go(func() { v.keepRecords(ctx) })
	v.view.run(ctx)
}

func (*podView) kinds() map[kind]client.Object { return podKinds }

// homeOf returns the home pod that the object is for. What owns a pod has the name that follows from the pod: an object of
// another name was made by somebody else.
func (v *podView) homeOf(of kind, object client.Object) (types.NamespacedName, bool) {
	home, ours := homeOf(v.id, object)
	return home, ours && (of == pods || object.GetName() == remoteName(v.id, home))
}

func (*podView) shows(example client.Object) bool {
	_, is := example.(*v1alpha1.ShadowPod)
	return is
}

func (v *podView) shown(_ client.Object, home types.NamespacedName) client.Object {
	seen, found := v.store.look(home)
	if !found {
		return nil
	}
	return shadowOf(home, seen)
}

func (v *podView) touched(home types.NamespacedName) { v.queue.Add(home) }

// remotePod is peers.Transport.RemotePod.
func (v *podView) remotePod(shadow *v1alpha1.ShadowPod) (types.NamespacedName, bool) {
	seen, found := v.look(client.ObjectKeyFromObject(shadow))
	if !found || seen.owner.GetUID() != shadow.UID || seen.pod() == nil {
		return types.NamespacedName{}, false
	}
	return client.ObjectKeyFromObject(seen.pod()), true
}

// look returns what there is for the home pod.
func (v *podView) look(home types.NamespacedName) (observed, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.store.look(home)
}

// keepRecords does for each home pod what nobody asks for, until the queue ends.
func (v *podView) keepRecords(ctx context.Context) {
	for {
		home, ended := v.queue.Get()
		if ended {
			return
		}
		v.keepRecord(ctx, home)
		v.queue.Done(home)
	}
}

func (v *podView) keepRecord(ctx context.Context, home types.NamespacedName) {
	if seen, found := v.look(home); found {
		if err := v.writer.keepRecord(ctx, seen); err != nil {
			ctrl.LoggerFrom(ctx).V(1).Info("Cannot keep the record of a pod", "Pod", home.String(), "cause", err.Error())
			v.queue.AddRateLimited(home)
			return
		}
	}
	v.queue.Forget(home)
}
