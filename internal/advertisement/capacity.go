package advertisement

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/policy"
)

// capacity follows the pods, nodes and advertisements of this cluster and sums up what there is to spare, once for all
// consumers. A pod that changes costs one addition; the sum is made when somebody looks.
type capacity struct {
	informers cache.Informers
	config    *Config
	changed   chan struct{} // holds one value after a change
	complete  atomic.Bool   // all that there was at the start is known

	mu           sync.Mutex
	ledger       *exchange.Ledger
	images       *images
	sumStale     bool
	nodesStale   bool
	locksStale   bool // the guarantees have changed
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
		changed:    make(chan struct{}, 1),
		ledger:     exchange.NewLedger(),
		images:     newImages(config.MaxImages),
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
		c.locks = locksOf(c.sum, c.guaranteed)
	}
	if c.nodesStale {
		c.description = c.ledger.Describe(c.config.LabelKeys, c.config.ImagePatterns)
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
func (c *capacity) Start(ctx context.Context, _ queue) error {
	for _, handled := range []struct {
		example client.Object
		handler toolscache.ResourceEventHandler
	}{
		{&corev1.Node{}, toolscache.ResourceEventHandlerFuncs{AddFunc: c.setNode, UpdateFunc: c.updateNode, DeleteFunc: c.removeNode}},
		{&corev1.Pod{}, toolscache.ResourceEventHandlerFuncs{AddFunc: c.setPod, UpdateFunc: c.updatePod, DeleteFunc: c.removePod}},
		{&v1alpha1.Advertisement{}, toolscache.ResourceEventHandlerFuncs{AddFunc: c.setAd, UpdateFunc: c.updateAd, DeleteFunc: c.removeAd}},
	} {
		informer, err := c.informers.GetInformer(ctx, handled.example, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", handled.example, err)
		}
		registration, err := informer.AddEventHandler(handled.handler)
		if err != nil {
			return fmt.Errorf("watch %T: %w", handled.example, err)
		}
		c.registration = append(c.registration, registration)
	}
	return nil
}

// WaitForSync returns when all pods, nodes and advertisements were handled once.
func (c *capacity) WaitForSync(ctx context.Context) error {
	for _, registration := range c.registration {
		if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			return errors.New("pods, nodes and advertisements were not read in time")
		}
	}
	c.complete.Store(true)
	return nil
}

func (c *capacity) setNode(object any) {
	if node, isNode := object.(*corev1.Node); isNode {
		c.change(true, func() bool { c.ledger.SetNode(node); return true })
	}
}

// updateNode passes over heartbeats.
func (c *capacity) updateNode(before, after any) {
	then, wasNode := before.(*corev1.Node)
	now, isNode := after.(*corev1.Node)
	if wasNode && isNode && equality.Semantic.DeepEqual(then.Labels, now.Labels) &&
		equality.Semantic.DeepEqual(then.Spec, now.Spec) && equality.Semantic.DeepEqual(then.Status, now.Status) {
		return
	}
	c.setNode(after)
}

func (c *capacity) removeNode(object any) {
	if node, isNode := lastKnown(object).(*corev1.Node); isNode {
		c.change(true, func() bool { c.ledger.RemoveNode(node.Name); return true })
	}
}

func (c *capacity) setPod(object any) {
	if pod, isPod := object.(*corev1.Pod); isPod {
		c.change(false, func() bool {
			c.images.setPod(pod)
			return c.ledger.SetPod(pod)
		})
	}
}

func (c *capacity) updatePod(_, after any) { c.setPod(after) }

func (c *capacity) removePod(object any) {
	if pod, isPod := lastKnown(object).(*corev1.Pod); isPod {
		key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		c.change(false, func() bool {
			c.images.removePod(key)
			return c.ledger.RemovePod(key)
		})
	}
}

func (c *capacity) setAd(object any) {
	if ad, isAd := object.(*v1alpha1.Advertisement); isAd && c.enter(ad, false) {
		c.ring()
	}
}

func (c *capacity) updateAd(_, after any) { c.setAd(after) }

func (c *capacity) removeAd(object any) {
	if ad, isAd := lastKnown(object).(*v1alpha1.Advertisement); isAd && c.enter(ad, true) {
		c.ring()
	}
}

// lastKnown is the object of which only the end was seen.
func lastKnown(object any) any {
	if tombstone, gone := object.(toolscache.DeletedFinalStateUnknown); gone {
		return tombstone.Obj
	}
	return object
}

func (c *capacity) change(ofNodes bool, apply func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !apply() {
		return
	}
	c.sumStale = true
	c.nodesStale = c.nodesStale || ofNodes
	c.ring()
}

// ring says that something has changed.
func (c *capacity) ring() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// enter takes in the newest state of an advertisement, or that it is gone, and reports whether what others are offered may
// change with it: with our own, what is locked for its consumer changes, and with a provider's, what we pass on. It costs
// one comparison, however many consumers there are.
func (c *capacity) enter(ad *v1alpha1.Advertisement, gone bool) bool {
	peer, inTenant := strings.CutPrefix(ad.Namespace, v1alpha1.TenantNamespacePrefix)
	if !inTenant {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch ours := ad.Name == c.config.ClusterID; {
	case ours && gone:
		return c.lock(peer, nil)
	case ours:
		return c.lock(peer, guaranteed(ad))
	case gone:
		return c.dropOffer(peer)
	default:
		return c.setOffer(peer, ad)
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
	c.locksStale = true
	return true
}

// setOffer keeps the offer of before as long as the new one is the same within the threshold: what is passed on is a term
// of our own offers, and saying those in full each time that a provider says hello would multiply its messages.
func (c *capacity) setOffer(peer string, ad *v1alpha1.Advertisement) bool {
	if !c.config.Aggregate {
		return false
	}
	if !meta.IsStatusConditionTrue(ad.Status.Conditions, v1alpha1.ConditionAccepted) {
		return c.dropOffer(peer)
	}
	before, found := c.offers[peer]
	if found && exchange.SameTerms(&before.Spec, &ad.Spec) && !exchange.Moved(before.Spec.Availability, ad.Spec.Availability, c.config.Threshold) {
		return false
	}
	c.offers[peer] = *ad
	c.sortOffers()
	return true
}

func (c *capacity) dropOffer(peer string) bool {
	if _, found := c.offers[peer]; !found {
		return false
	}
	delete(c.offers, peer)
	c.sortOffers()
	return true
}

func (c *capacity) sortOffers() {
	passed := make([]v1alpha1.Advertisement, 0, len(c.offers))
	for _, peer := range slices.Sorted(maps.Keys(c.offers)) {
		passed = append(passed, c.offers[peer])
	}
	c.passed = passed
}
