package namespaces

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

const (
	// admissionDelay is for the API server to place new pods by a changed offloading: what replaces a pod that goes sooner
	// might come to where it was.
	admissionDelay = 5 * time.Second
	// evictionsPerSecond bounds the evictions in all namespaces together, so that not all pods look for another place in
	// the same moment.
	evictionsPerSecond = 10
	// evictionPause is how soon a namespace goes on that has used up its share.
	evictionPause = time.Second
	// firstBlocked and lastBlocked are how soon a pod that may not go yet is tried again, at first and at last.
	firstBlocked = 5 * time.Second
	lastBlocked  = time.Minute
	// maxHomebound is how many pods that cannot leave are not asked for again.
	maxHomebound = 10000
)

// evictor moves pods that run where a changed NamespaceOffloading does not let new ones run, if its user wants that.
// A request names the NamespaceOffloading.
type evictor struct {
	client client.Client
	live   client.Reader // asked for whole pods: the cache has only part of them
	clock  clock.PassiveClock
	herald herald
	queue  doorbell
	pace   flowcontrol.PassiveRateLimiter
	// homebound are pods at home that cannot run anywhere else, which no change of theirs can change.
	homebound *lru.Cache // UID → nothing
	// blocked says what may not go yet, by budgetOf. It keeps us from asking in vain, and can be forgotten any time.
	blocked *flowcontrol.Backoff
}

func newEvictor(c Config) *evictor {
	blocked := flowcontrol.NewBackOff(firstBlocked, lastBlocked)
	blocked.Clock = c.Clock
	return &evictor{
		client: c.Client, live: c.Live, clock: c.Clock, blocked: blocked, homebound: lru.New(maxHomebound),
		herald: herald{client: c.Client, clock: c.Clock, instance: c.Instance},
		queue:  doorbell{delay: admissionDelay},
		pace:   flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(evictionsPerSecond, evictionsPerSecond, c.Clock),
	}
}

// Reconcile has the pods of one namespace go that must, as far as they may.
func (e *evictor) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	offloading, err := find(ctx, e.client, request.NamespacedName, &v1alpha1.NamespaceOffloading{})
	if err != nil || !evicts(offloading) {
		return reconcile.Result{}, err
	}
	moves, err := e.observe(ctx, offloading)
	if err != nil {
		return reconcile.Result{}, err
	}
	again, err := e.moveAll(ctx, moves)
	return reconcile.Result{RequeueAfter: again}, err
}

func evicts(offloading *v1alpha1.NamespaceOffloading) bool {
	return offloading != nil && offloading.DeletionTimestamp.IsZero() && offloading.Spec.OnChange == v1alpha1.ChangeEvict
}

func (e *evictor) observe(ctx context.Context, offloading *v1alpha1.NamespaceOffloading) ([]move, error) {
	nodes := &corev1.NodeList{}
	err := e.client.List(ctx, nodes, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list virtual nodes: %w", err)
	}
	rules, err := newRules(offloading, nodes.Items)
	if err != nil {
		return nil, nil //nolint:nilerr // the reporter tells the user; trying again cannot help
	}
	pods := &corev1.PodList{}
	err = e.client.List(ctx, pods, client.InNamespace(offloading.Namespace), client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list pods of namespace %s: %w", offloading.Namespace, err)
	}
	return rules.misplaced(pods.Items), nil
}

// moveAll evicts what may go now, and returns when to go on.
func (e *evictor) moveAll(ctx context.Context, moves []move) (time.Duration, error) {
	e.blocked.GC()
	again := time.Duration(0)
	for _, m := range moves {
		if e.blocked.IsInBackOffSinceUpdate(budgetOf(m.pod), e.clock.Now()) {
			again = firstBlocked
			continue
		}
		if leaves, err := e.canLeave(ctx, m); err != nil || !leaves {
			if err != nil {
				return 0, err
			}
			continue
		}
		if !e.pace.TryAccept() {
			return evictionPause, nil
		}
		stays, err := e.move(ctx, m)
		if err != nil {
			return 0, err
		}
		if stays {
			again = firstBlocked
		}
	}
	return again, nil
}

// canLeave reports whether what replaces a pod at home would leave. A pod that is older than the offloading carries no mark
// of admission, so the pod itself decides.
func (e *evictor) canLeave(ctx context.Context, m move) (bool, error) {
	if !m.home {
		return true, nil
	}
	if _, known := e.homebound.Get(m.pod.UID); known {
		return false, nil
	}
	pod, err := find(ctx, e.live, client.ObjectKeyFromObject(m.pod), &corev1.Pod{})
	if err != nil || pod == nil || pod.UID != m.pod.UID {
		return false, err
	}
	_, refused := offload.Refusal(pod)
	if refused {
		e.homebound.Add(m.pod.UID, nil)
	}
	return !refused, nil
}

// move evicts one pod. One that does not go is left for a while, ever longer, with all that share its budget.
func (e *evictor) move(ctx context.Context, m move) (stays bool, err error) {
	key := budgetOf(m.pod)
	err = e.evict(ctx, m.pod)
	switch {
	case client.IgnoreNotFound(err) == nil:
		e.blocked.Reset(key)
		ctrl.LoggerFrom(ctx).Info("Evicted pod", "Pod", client.ObjectKeyFromObject(m.pod), "cause", m.cause)
		return false, e.tellMoved(ctx, m)
	case ctx.Err() != nil:
		return true, err
	case apierrors.IsConflict(err):
		return true, nil // another pod has the name now, or somebody else asks the same budget
	default:
		e.blocked.Next(key, e.clock.Now())
		return true, e.tellBlocked(ctx, m, err)
	}
}

func (e *evictor) evict(ctx context.Context, pod *corev1.Pod) error {
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	return e.client.SubResource("eviction").Create(ctx, target, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	})
}

func (e *evictor) tellMoved(ctx context.Context, m move) error {
	return e.herald.tell(ctx, m.pod, news{
		name: "offloading-changed", reason: v1alpha1.ReasonOffloadingChanged, action: "Evict", kind: corev1.EventTypeNormal,
		note: fmt.Sprintf("The pod was evicted, since the NamespaceOffloading does not let it run on Node %s: %s",
			m.pod.Spec.NodeName, m.cause),
	})
}

func (e *evictor) tellBlocked(ctx context.Context, m move, why error) error {
	note := fmt.Sprintf("The pod must leave Node %s (%s), and may not yet: %s", m.pod.Spec.NodeName, m.cause, why)
	if cause, found := apierrors.StatusCause(why, policyv1.DisruptionBudgetCause); found {
		note = fmt.Sprintf("The pod must leave Node %s (%s), and waits for its PodDisruptionBudget: %s",
			m.pod.Spec.NodeName, m.cause, cause.Message)
	}
	return e.herald.tell(ctx, m.pod, news{
		name: "offloading-blocked", reason: v1alpha1.ReasonOffloadingChanged, action: "Evict", kind: corev1.EventTypeWarning,
		note: note,
	})
}

// budgetOf names what shares a PodDisruptionBudget with the pod: all pods of one controller look the same to it.
func budgetOf(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return string(owner.UID)
	}
	return string(pod.UID)
}

// ringFor asks for looks at namespaces, gathered, after the API server had time to see what we have seen.
func (e *evictor) ringFor(of func(context.Context, client.Object) []reconcile.Request) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		e.queue.ring(of(ctx, object)...)
		return nil
	})
}

// everyEvicting is a request for each namespace whose pods are moved.
func (e *evictor) everyEvicting(ctx context.Context, cause client.Object) []reconcile.Request {
	list := &v1alpha1.NamespaceOffloadingList{}
	if err := e.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing namespace offloadings", "cause", cause.GetName())
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if evicts(&list.Items[i]) {
			requests = append(requests, offloadingIn(list.Items[i].Namespace))
		}
	}
	return requests
}

// offloadingOf is a request for the namespace of the object.
func offloadingOf(_ context.Context, object client.Object) []reconcile.Request {
	return []reconcile.Request{offloadingIn(object.GetNamespace())}
}
