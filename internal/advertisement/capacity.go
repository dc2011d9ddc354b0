package advertisement

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/internal/exchange"
)

// capacity follows the pods and nodes of this cluster and sums up what there is to spare, once for all consumers. A pod
// that changes costs one addition; the sum is made when somebody looks.
type capacity struct {
	informers cache.Informers
	margin    corev1.ResourceList
	labelKeys []string
	maxImages int
	changed   chan struct{} // holds one value after a change

	mu           sync.Mutex
	ledger       *exchange.Ledger
	sumStale     bool
	nodesStale   bool
	sum          exchange.Capacity
	description  exchange.Description
	registration []toolscache.ResourceEventHandlerRegistration
}

func newCapacity(config Config, informers cache.Informers) *capacity {
	return &capacity{
		informers:  informers,
		margin:     config.Margin,
		labelKeys:  config.LabelKeys,
		maxImages:  config.MaxImages,
		changed:    make(chan struct{}, 1),
		ledger:     exchange.NewLedger(),
		sumStale:   true,
		nodesStale: true,
	}
}

// offerable is what there is to spare, and what the cluster is like.
type offerable struct {
	exchange.Capacity
	exchange.Description
}

// look returns the newest state.
func (c *capacity) look() offerable {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sumStale {
		c.sum, c.sumStale = c.ledger.Capacity(c.margin), false
	}
	if c.nodesStale {
		c.description, c.nodesStale = c.ledger.Describe(c.labelKeys, c.maxImages), false
	}
	return offerable{c.sum, c.description}
}

// Start is a source of the publisher's controller, of which no worker runs before it has synced: an offer made from half
// of the pods would promise too much.
func (c *capacity) Start(ctx context.Context, _ queue) error {
	for _, handled := range []struct {
		example client.Object
		handler toolscache.ResourceEventHandler
	}{
		{&corev1.Node{}, toolscache.ResourceEventHandlerFuncs{AddFunc: c.setNode, UpdateFunc: c.updateNode, DeleteFunc: c.removeNode}},
		{&corev1.Pod{}, toolscache.ResourceEventHandlerFuncs{AddFunc: c.setPod, UpdateFunc: c.updatePod, DeleteFunc: c.removePod}},
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

// WaitForSync returns when all pods and nodes were handled once.
func (c *capacity) WaitForSync(ctx context.Context) error {
	for _, registration := range c.registration {
		if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			return errors.New("pods and nodes were not read in time")
		}
	}
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
		c.change(false, func() bool { return c.ledger.SetPod(pod) })
	}
}

func (c *capacity) updatePod(_, after any) { c.setPod(after) }

func (c *capacity) removePod(object any) {
	if pod, isPod := lastKnown(object).(*corev1.Pod); isPod {
		key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		c.change(false, func() bool { return c.ledger.RemovePod(key) })
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
	select {
	case c.changed <- struct{}{}:
	default:
	}
}
