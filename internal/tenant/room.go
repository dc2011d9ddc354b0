// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"math/bits"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// occupantsAtLeast is how many ShadowPods a twin has that has more of the room of its peer than an empty one.
const occupantsAtLeast = 32

// occupancy counts the ShadowPods in each twin, in steps: how much of its peer's room a twin has is written to the API server,
// and that must cost less than the ShadowPods that it changes with.
type occupancy struct {
	mu    sync.Mutex
	twins map[string]occupants
}

type occupants struct {
	count int
	step  int // 0, or a power of two from occupantsAtLeast
}

// change counts one more in the twin, or one less, and says whether that is another step. One goes up when it is exceeded,
// and down when three fourths of it have gone, so that nobody goes up and down with a few.
func (c *occupancy) change(twin string, by int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.twins == nil {
		c.twins = map[string]occupants{}
	}
	before := c.twins[twin]
	now := occupants{count: before.count + by, step: before.step}
	if now.count > max(now.step, occupantsAtLeast) || now.count < now.step/4 {
		now.step = 0
		if now.count > occupantsAtLeast {
			now.step = powerOfTwo(now.count)
		}
	}
	c.twins[twin] = now
	if now == (occupants{}) {
		delete(c.twins, twin)
	}
	return now.step != before.step
}

func (c *occupancy) step(twin string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.twins[twin].step
}

// powerOfTwo returns the least one that is not less than n.
func powerOfTwo(n int) int { return 1 << bits.Len(uint(max(n-1, 0))) }

// roomOf is how many bytes there are for the peer's ShadowPods, and again for its copies, in all twins.
func roomOf(peer *v1alpha1.Peer) int {
	return int(ptr.Deref(limitsOf(peer).Mebibytes, v1alpha1.DefaultLimitMebibytes)) << 20
}

// share is how much of the room a twin has in which there are so many ShadowPods, given in steps, as in all twins of the peer.
// One half is for each twin alike, the other for where the ShadowPods are. Both are divided into a power of two of parts, so
// that most changes leave the parts of the others as they are.
func share(room, own int, all []int) int {
	sum := 0
	for _, step := range all {
		sum += step
	}
	return room/2/powerOfTwo(len(all)) + room/2/powerOfTwo(sum)*own
}

// shareOf is how many bytes there are for ShadowPods in the twin, and again for copies.
func (r *mappingReconciler) shareOf(ctx context.Context, twin string, peer *v1alpha1.Peer) (int, error) {
	var mappings v1alpha1.NamespaceMappingList
	err := r.client.List(ctx, &mappings, client.InNamespace(v1alpha1.TenantNamespace(peer.Name)), client.UnsafeDisableDeepCopy)
	if err != nil {
		return 0, err //nolint:wrapcheck // from the cache
	}
	steps := make([]int, len(mappings.Items))
	for i := range mappings.Items {
		steps[i] = r.occupancy.step(twinFor(peer.Name, peer.Spec.ClusterID, &mappings.Items[i]).name())
	}
	return share(roomOf(peer), r.occupancy.step(twin), steps), nil
}

// mappingsDivided returns all mappings of a peer whose room is, or may be, divided into another number of parts by one more
// or one less.
func (r *mappingReconciler) mappingsDivided(ctx context.Context, mapping client.Object) []reconcile.Request {
	all := r.mappingsIn(ctx, mapping.GetNamespace())
	if n := len(all); powerOfTwo(n) == powerOfTwo(n+1) && powerOfTwo(n) == powerOfTwo(n-1) {
		return nil
	}
	return all
}

// shadowsCounted counts the ShadowPods in each twin, and looks at all mappings of a peer when its room is to be divided anew.
func (r *mappingReconciler) shadowsCounted() handler.EventHandler {
	count := func(ctx context.Context, shadow client.Object, by int, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		if !r.occupancy.change(shadow.GetNamespace(), by) {
			return
		}
		ns := &corev1.Namespace{}
		err := r.client.Get(ctx, client.ObjectKey{Name: shadow.GetNamespace()}, ns, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Divide the room of a peer", "twin", shadow.GetNamespace())
		}
		if twin, is := twinIn(ns); is {
			for _, request := range r.mappingsIn(ctx, v1alpha1.TenantNamespace(twin.peer)) {
				q.Add(request)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			count(ctx, e.Object, 1, q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			count(ctx, e.Object, -1, q)
		},
	}
}
