// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// capacity follows the pods, nodes, twin namespaces, classes of volumes, advertisements and Requests of this cluster and sums up what there is to spare, once for all
// consumers. A pod that changes costs one addition; the sum is made when somebody looks.
type capacity struct {
	informers cache.Informers
	config    *Config
	changed   signal
	complete  chan struct{} // closed when all that there was at the start is known

	mu           sync.Mutex
	ledger       *exchange.Ledger
	images       *images
	classes      map[string]storagev1.StorageClass
	twins        map[string]string // twin namespace → the consumer whose pods are in it
	sumStale     bool
	nodesStale   bool // the nodes or the classes of volumes have changed
	locksStale   bool // the guarantees or the reservations have changed
	sum          exchange.Capacity
	locks        locks
	load         policy.Load
	description  exchange.Description
	guaranteed   map[string]corev1.ResourceList    // consumer → what is locked for it; replaced, never changed
	offers       map[string]v1alpha1.Advertisement // provider → its offer, as accepted, if we aggregate
	passed       []v1alpha1.Advertisement          // the offers, sorted; replaced, never changed
	registration []toolscache.ResourceEventHandlerRegistration
}

func newCapacity(config *Config, informers cache.Informers) *capacity {
	return &capacity{
		informers:  informers,
		config:     config,
		changed:    newSignal(),
		complete:   make(chan struct{}),
		ledger:     exchange.NewLedger(),
		images:     newImages(config.MaxImages),
		classes:    map[string]storagev1.StorageClass{},
		twins:      map[string]string{},
		sumStale:   true,
		nodesStale: true,
		guaranteed: map[string]corev1.ResourceList{},
		offers:     map[string]v1alpha1.Advertisement{},
	}
}

// offerable is what there is to spare, what the cluster is like, and what else decides what a consumer is offered.
// Nobody changes what it refers to.
type offerable struct {
	exchange.Capacity
	exchange.Description
	load       policy.Load
	guaranteed map[string]corev1.ResourceList // consumer → what is guaranteed to it
	locks      locks
	offers     []v1alpha1.Advertisement // of providers, to be passed on
}

// look returns the newest state.
func (c *capacity) look() offerable {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sumUp()
}

// lookFor returns the newest state, and the images that the peer may be told of.
func (c *capacity) lookFor(peer string) (offerable, []v1alpha1.Image) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sumUp(), c.images.of(peer)
}

// sumUp is called with the lock held.
func (c *capacity) sumUp() offerable {
	if c.sumStale {
		c.sum = c.ledger.Capacity(c.config.Margin)
		c.load.Allocatable, c.load.Free = c.ledger.Load()
	}
	if c.sumStale || c.locksStale {
		c.locks = locksOf(c.sum, c.guaranteed, c.ledger.Reserved())
	}
	if c.nodesStale {
		c.description = c.ledger.Describe(c.config.LabelKeys, c.config.ImagePatterns)
		c.description.Offer.StorageClasses = reflection.OfferedClasses(slices.Collect(maps.Values(c.classes)))
		c.images.setStock(c.description.Stock)
	}
	c.sumStale, c.nodesStale, c.locksStale = false, false, false
	return offerable{
		Capacity: c.sum, Description: c.description, load: c.load,
		guaranteed: c.guaranteed, locks: c.locks, offers: c.passed,
	}
}

// Start is a source of the publisher's controller, of which no worker runs before it has synced: an offer made from half
// of the pods, or of the guarantees, would promise too much.
func (c *capacity) Start(ctx context.Context, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { c.take(object, false) },
		UpdateFunc: c.update,
		DeleteFunc: func(object any) { c.take(object, true) },
	}
	for _, example := range []client.Object{
		&corev1.Namespace{}, &corev1.Node{}, &corev1.Pod{}, &storagev1.StorageClass{}, &v1alpha1.Advertisement{},
		&v1alpha1.Request{},
	} {
		informer, err := c.informers.GetInformer(ctx, example, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", example, err)
		}
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return fmt.Errorf("watch %T: %w", example, err)
		}
		c.registration = append(c.registration, registration)
	}
	return nil
}

// WaitForSync returns when all namespaces, pods, nodes, classes of volumes, advertisements and Requests were handled once.
func (c *capacity) WaitForSync(ctx context.Context) error {
	for _, registration := range c.registration {
		if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			return errors.New("namespaces, pods, nodes, advertisements and Requests were not read in time")
		}
	}
	close(c.complete)
	return nil
}

func (c *capacity) isComplete() bool {
	select {
	case <-c.complete:
		return true
	default:
		return false
	}
}

// update passes over heartbeats of nodes.
func (c *capacity) update(before, after any) {
	then, wasNode := before.(*corev1.Node)
	now, isNode := after.(*corev1.Node)
	if wasNode && isNode && equality.Semantic.DeepEqual(then.Labels, now.Labels) &&
		equality.Semantic.DeepEqual(then.Spec, now.Spec) && equality.Semantic.DeepEqual(then.Status, now.Status) {
		return
	}
	c.take(after, false)
}

// take takes in the newest state of an object, or that it is gone.
func (c *capacity) take(object any, gone bool) {
	if tombstone, missed := object.(toolscache.DeletedFinalStateUnknown); missed {
		object = tombstone.Obj
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := false
	switch object := object.(type) {
	case *corev1.Node:
		changed, c.sumStale, c.nodesStale = true, true, true
		if gone {
			c.ledger.RemoveNode(object.Name)
		} else {
			c.ledger.SetNode(object)
		}
	case *storagev1.StorageClass:
		changed, c.nodesStale = true, true
		c.classes[object.Name] = *object
		if gone {
			delete(c.classes, object.Name)
		}
	case *corev1.Namespace:
		changed = c.takeNamespace(object, gone)
	case *corev1.Pod:
		changed = c.takePod(object, gone)
	case *v1alpha1.Advertisement:
		changed = c.takeAd(object, gone)
	case *v1alpha1.Request:
		c.takeRequest(object, gone)
	}
	if changed {
		c.changed.send()
	}
}

// takeNamespace takes in whose pods are in the namespace. They may have come in before it.
func (c *capacity) takeNamespace(namespace *corev1.Namespace, gone bool) (changed bool) {
	name, peer := namespace.Name, v1alpha1.TwinPeer(namespace)
	if gone {
		peer = ""
	}
	before := c.twins[name]
	if before == peer {
		return false
	}
	c.images.setOwner(name, before, peer)
	delete(c.twins, name)
	if peer != "" {
		c.twins[name] = peer
	}
	changed = c.ledger.SetOwner(name, peer)
	c.sumStale = c.sumStale || changed
	return changed
}

func (c *capacity) takePod(pod *corev1.Pod, gone bool) (changed bool) {
	peer := c.twins[pod.Namespace]
	c.images.takePod(pod, peer, gone)
	if gone {
		changed = c.ledger.RemovePod(client.ObjectKeyFromObject(pod))
	} else {
		changed = c.ledger.SetPod(pod, peer)
	}
	c.sumStale = c.sumStale || changed
	return changed
}

// takeRequest enters what was reserved before this process began. From then on, who acknowledges Requests says so before their status
// does: see Reserve.
func (c *capacity) takeRequest(request *v1alpha1.Request, gone bool) {
	peer, inTenant := strings.CutPrefix(request.Namespace, v1alpha1.TenantNamespacePrefix)
	if !inTenant || c.isComplete() {
		return
	}
	var locked corev1.ResourceList
	if !gone {
		locked = request.Locked()
	}
	of, called := exchange.ReservationOf(peer, request.Name, request.Labels[v1alpha1.LabelFrom])
	c.ledger.SetReserved(of, called, locked)
	c.locksStale = true
}

// takeAd reports whether what others are offered may change with the advertisement: with our own, what is locked for its consumer changes, and with a provider's, what we pass on. It costs
// one comparison, however many consumers there are.
func (c *capacity) takeAd(ad *v1alpha1.Advertisement, gone bool) bool {
	peer, inTenant := strings.CutPrefix(ad.Namespace, v1alpha1.TenantNamespacePrefix)
	if !inTenant {
		return false
	}
	switch ours := ad.Name == c.config.ClusterID; {
	case ours && gone:
		return c.lock(peer, nil)
	case ours:
		return c.lock(peer, guaranteed(ad))
	default:
		return c.pass(peer, ad, gone)
	}
}

// guaranteed is what is locked for the consumer of our advertisement: what it was told, from when it has accepted it.
func guaranteed(ad *v1alpha1.Advertisement) corev1.ResourceList {
	ack := ad.Status.Acknowledgement
	if ack == nil || ack.State != v1alpha1.AcknowledgementAccepted {
		return nil
	}
	return ad.Spec.Guarantee
}

func (c *capacity) lock(peer string, guarantee corev1.ResourceList) bool {
	if equality.Semantic.DeepEqual(c.guaranteed[peer], guarantee) {
		return false
	}
	c.guaranteed = maps.Clone(c.guaranteed)
	delete(c.guaranteed, peer)
	if len(guarantee) > 0 {
		c.guaranteed[peer] = guarantee
	}
	c.ledger.Guarantee(peer, guarantee)
	c.locksStale = true
	return true
}

// pass keeps the offer of before as long as the new one is the same within the threshold: what is passed on is a term of our
// own offers, and saying those in full each time that a provider renews its own would multiply its messages.
func (c *capacity) pass(peer string, ad *v1alpha1.Advertisement, gone bool) bool {
	before, found := c.offers[peer]
	used := c.config.Aggregate && !gone && meta.IsStatusConditionTrue(ad.Status.Conditions, v1alpha1.ConditionAccepted)
	switch {
	case !used && !found:
		return false
	case !used:
		delete(c.offers, peer)
	case found && exchange.SameTerms(&before.Spec, &ad.Spec) && !exchange.Moved(before.Spec.Availability, ad.Spec.Availability, c.config.Threshold):
		return false
	default:
		c.offers[peer] = *ad
	}
	c.passed = make([]v1alpha1.Advertisement, 0, len(c.offers))
	for _, name := range slices.Sorted(maps.Keys(c.offers)) {
		c.passed = append(c.passed, c.offers[name])
	}
	return true
}
