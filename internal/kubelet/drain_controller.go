package kubelet

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// drainWorkers is how many requests a drain has open at the same time.
	drainWorkers = 8
	// evictionsPerSecond bounds the evictions of all drains together, so that ten thousand pods do not look for another
	// place in the same moment.
	evictionsPerSecond = 100
	// drainPause is how soon a drain goes on that has used up its share.
	drainPause = time.Second
	// firstBlocked and lastBlocked are how soon a pod that may not go yet is tried again, at first and at last.
	firstBlocked = 5 * time.Second
	lastBlocked  = time.Minute
)

// Reasons of the events of a drain, beside those of its cause.
const (
	reasonDrainBlocked = "DrainBlocked"
	actionDrain        = "Drain"
)

// drainController moves the pods of virtual nodes away: when the provider asks for it, and when we part from it.
// Requests are names of Peers.
type drainController struct {
	client client.Client
	clock  clock.PassiveClock
	events events.EventRecorder
	pods   forgetter
	pace   flowcontrol.PassiveRateLimiter

	mu sync.Mutex // for a look at blocked and the change that follows from it
	// blocked says what may not go yet, by budgetKey. It keeps us from asking in vain, and can be forgotten any time.
	blocked *flowcontrol.Backoff
}

func blockedBackOff(clk clock.Clock) *flowcontrol.Backoff {
	again := flowcontrol.NewBackOff(firstBlocked, lastBlocked)
	again.Clock = clk
	return again
}

// forgetter deletes pods at home without asking their peer.
type forgetter interface {
	forget(ctx context.Context, home *corev1.Pod) error
}

// Reconcile has the pods of one virtual node go that must, as far as they may.
func (c *drainController) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	seen, err := observeNode(ctx, c.client, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	order := drainOf(seen)
	if order.method == noDrain {
		return reconcile.Result{}, nil
	}
	pods, err := podsOn(ctx, c.client, seen.node.Name, "")
	if err != nil {
		return reconcile.Result{}, err
	}
	done := c.move(ctx, order.method, toMove(pods, order.method))
	c.tell(seen, order, done)
	return reconcile.Result{RequeueAfter: done.next()}, nil
}

// moved is what came of one round.
type moved struct {
	gone, stayed atomic.Int32
	// waits says that some were not asked again yet, more that the pace left some for later.
	waits, more bool
}

// next is how soon the drain goes on by itself.
func (m *moved) next() time.Duration {
	switch {
	case m.more:
		return drainPause
	case m.waits || m.stayed.Load() > 0:
		return firstBlocked
	default:
		return 0 // an event says when another pod comes
	}
}

func (c *drainController) move(ctx context.Context, how drainMethod, pods []*corev1.Pod) *moved {
	done := &moved{}
	c.blocked.GC()
	var group errgroup.Group
	group.SetLimit(drainWorkers)
	for _, pod := range pods {
		if c.blocked.IsInBackOffSinceUpdate(budgetKey(how, pod), c.clock.Now()) {
			done.waits = true
			continue
		}
		if how == byEviction && !c.pace.TryAccept() {
			done.more = true
			break
		}
		group.Go(func() error {
			c.moveOne(ctx, how, pod, done)
			return nil
		})
	}
	_ = group.Wait() // what a pod met is told in its events, and stops no other
	return done
}

// moveOne has one pod go. One that does not is left for a while, ever longer, with all that share its budget.
func (c *drainController) moveOne(ctx context.Context, how drainMethod, pod *corev1.Pod, done *moved) {
	key := budgetKey(how, pod)
	err := c.send(ctx, how, pod)
	if client.IgnoreNotFound(err) == nil {
		c.blocked.Reset(key)
		done.gone.Add(1)
		podsDrained.WithLabelValues("gone").Inc()
		return
	}
	done.stayed.Add(1)
	podsDrained.WithLabelValues("stayed").Inc()
	if c.block(key) && ctx.Err() == nil {
		c.events.Eventf(pod, nil, corev1.EventTypeWarning, reasonDrainBlocked, actionDrain, "%s", whyItStays(pod, err))
	}
}

// block puts off what did not go, and says whether that is news. Those that were asked at the same time count once.
func (c *drainController) block(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	news := c.blocked.Get(key) == 0
	if !c.blocked.IsInBackOffSinceUpdate(key, now) {
		c.blocked.Next(key, now)
	}
	return news
}

func (c *drainController) send(ctx context.Context, how drainMethod, pod *corev1.Pod) error {
	target := &corev1.Pod{}
	target.Namespace, target.Name = pod.Namespace, pod.Name
	switch how {
	case byForce:
		return c.pods.forget(ctx, pod)
	case byDeletion:
		return c.client.Delete(ctx, target, client.Preconditions{UID: &pod.UID})
	default:
		return c.client.SubResource("eviction").Create(ctx, target, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
		})
	}
}

// whyItStays says it in words that are the same as long as the cause is.
func whyItStays(pod *corev1.Pod, err error) string {
	if cause, found := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); found {
		return fmt.Sprintf("The pod waits for its PodDisruptionBudget before it leaves Node %s: %s",
			pod.Spec.NodeName, bounded(cause.Message))
	}
	if apierrors.IsTooManyRequests(err) {
		return fmt.Sprintf("The pod may not leave Node %s yet: %s", pod.Spec.NodeName, bounded(err.Error()))
	}
	return fmt.Sprintf("The pod cannot be moved away from Node %s: %s", pod.Spec.NodeName, bounded(err.Error()))
}

// tell says on the Peer what has happened. Its texts are the same in every round, so that one event stands for all.
func (c *drainController) tell(seen nodeFacts, order drainOrder, done *moved) {
	if done.gone.Load() > 0 {
		c.events.Eventf(seen.peer, seen.node, corev1.EventTypeNormal, order.reason, actionDrain,
			"Pods were moved away from Node %s: %s", seen.node.Name, order.text)
	}
	if done.stayed.Load() > 0 {
		c.events.Eventf(seen.peer, seen.node, corev1.EventTypeWarning, reasonDrainBlocked, actionDrain,
			"Pods stay on Node %s until they may go, such as when their PodDisruptionBudgets allow it: see their events",
			seen.node.Name)
	}
}
