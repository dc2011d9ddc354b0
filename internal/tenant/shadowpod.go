// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/fault"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
)

// shadowPodReconciler keeps a pod running for each ShadowPod.
type shadowPodReconciler struct {
	config Config
	client client.Client
	live   client.Reader
	ledger *ledger
	queue  enqueuer

	events *eventFeed
	hops   hops
	notes  sync.Map // name of a ShadowPod → *note
}

// enqueuer takes requests to look at a ShadowPod again.
type enqueuer interface {
	Add(request reconcile.Request)
	AddAfter(request reconcile.Request, delay time.Duration)
}

func newShadowPodReconciler(cfg Config, c client.Client, live client.Reader, w watcher) *shadowPodReconciler {
	r := &shadowPodReconciler{config: cfg, client: c, live: live, events: newEventFeed(c, w, cfg.Clock)}
	r.events.topics[podKind] = topic{r.events.podMessage, func() enqueuer { return r.queue }}
	r.ledger = newLedger(cfg.Room, r.enqueue)
	return r
}

// Reconcile brings one ShadowPod and its pod in line.
func (r *shadowPodReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	defer r.ledger.looked(request.NamespacedName)
	shadow := &v1alpha1.ShadowPod{}
	err := r.client.Get(ctx, request.NamespacedName, shadow)
	if apierrors.IsNotFound(err) {
		r.notes.Delete(request.NamespacedName)
		r.events.forget(subject{podKind, request.NamespacedName})
		r.ledger.leave(request.NamespacedName)
		return reconcile.Result{}, r.releaseOrphan(ctx, request.NamespacedName)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if !shadow.DeletionTimestamp.IsZero() {
		again, err := r.end(ctx, shadow)
		return reconcile.Result{RequeueAfter: again}, err
	}
	seen, err := r.observe(ctx, shadow)
	if err != nil || seen == nil {
		return reconcile.Result{}, err
	}
	next := decide(seen)
	if current, err := r.complete(ctx, seen.shadow, next.action); err != nil || !current {
		return reconcile.Result{}, err
	}
	if err := r.act(ctx, seen, &next); err != nil {
		return reconcile.Result{}, err
	}
	if offload.Terminal(next.status.Phase) || next.unrecoverable() && !seen.ours() {
		r.ledger.leave(request.NamespacedName) // it needs no pod any more
	}
	again, err := r.record(ctx, seen, &next)
	return reconcile.Result{RequeueAfter: again}, err
}

// complete reads of the ShadowPod what TrimShadowPod left out, where the action needs it. It returns false if the cache is
// behind: then the newer ShadowPod is on its way to us.
func (r *shadowPodReconciler) complete(ctx context.Context, shadow *v1alpha1.ShadowPod, next action) (current bool, err error) {
	if shadow.Spec.Pod != "" || next != makePod && next != updatePod {
		return true, nil
	}
	live := &v1alpha1.ShadowPod{}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(shadow), live); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	shadow.Spec.Pod, shadow.Spec.Onward = live.Spec.Pod, live.Spec.Onward
	return live.UID == shadow.UID && live.Generation == shadow.Generation, nil
}

// observe looks at what there is. It returns nil where there is nothing to keep.
func (r *shadowPodReconciler) observe(ctx context.Context, shadow *v1alpha1.ShadowPod) (*observation, error) {
	ns := &corev1.Namespace{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: shadow.Namespace}, ns); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	twin, ok := twinIn(ns)
	if !ok {
		return nil, nil
	}
	seen := &observation{
		shadow: shadow, peer: twin.peer, twin: ns, ending: !ns.DeletionTimestamp.IsZero(), now: r.config.Clock.Now(),
		metadata: r.config.PodMetadata,
	}
	if r.config.SendOn {
		seen.path, _ = offload.Onward(shadow, twin.clusterID, r.config.ClusterID)
	}
	pod, err := getPod(ctx, r.client, shadow)
	if err != nil {
		return nil, err
	}
	seen.pod = pod
	if pod == nil && shadow.Status.PodUID != "" {
		return r.lookAgain(ctx, seen)
	}
	if pod != nil {
		r.recall(seen)
	}
	return seen, nil
}

// recall adds what is known of the pod from elsewhere.
func (r *shadowPodReconciler) recall(seen *observation) {
	shadow, pod := seen.shadow, seen.pod
	seen.upToDate = r.noteOf(shadow).carried == carried{pod.UID, shadow.Generation}
	if unschedulable(pod) != nil && left(noRoomDelay, seen.now.Sub(pod.CreationTimestamp.Time)) == 0 {
		seen.scalingUp = r.events.scalingUp(pod)
	}
	if seen.ours() {
		r.events.follow(pod.Namespace)
		seen.heard = r.events.of(pod, shadow.Status.Events)
	}
}

// lookAgain asks the API server itself. A pod that the record knows and the cache does not may be gone, or not here
// yet; and the record itself may be newer than the cache's: a completed pod must not be made again.
func (r *shadowPodReconciler) lookAgain(ctx context.Context, seen *observation) (*observation, error) {
	shadow := &v1alpha1.ShadowPod{}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(seen.shadow), shadow); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if shadow.UID != seen.shadow.UID || !shadow.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	pod, err := getPod(ctx, r.live, shadow)
	if err != nil {
		return nil, err
	}
	seen.shadow, seen.pod = shadow, pod
	return seen, nil
}

// getPod returns the pod of the ShadowPod's name, which somebody else may have made, and nil if there is none.
func getPod(ctx context.Context, reader client.Reader, shadow *v1alpha1.ShadowPod) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := reader.Get(ctx, client.ObjectKeyFromObject(shadow), pod); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, nil
		}
		return nil, fmt.Errorf("read the pod: %w", err)
	}
	return pod, nil
}

// act does what was decided.
func (r *shadowPodReconciler) act(ctx context.Context, seen *observation, next *decision) error {
	switch next.action {
	case makePod:
		return r.make(ctx, seen, next)
	case removePod:
		return r.delete(ctx, seen.pod, nil)
	case updatePod:
		return r.update(ctx, seen, next)
	case releasePod:
		return r.release(ctx, seen.pod)
	default:
		return nil
	}
}

// madeFor says whether the pod is the ShadowPod's own.
func madeFor(shadow *v1alpha1.ShadowPod, pod *corev1.Pod) bool {
	owner := v1alpha1.OwnerShadowPod(pod)
	return owner != nil && owner.UID == shadow.UID
}

// make creates the pod if the peer may have it. What the API server answers is part of the record.
func (r *shadowPodReconciler) make(ctx context.Context, seen *observation, next *decision) error {
	began := r.config.Clock.Now()
	pod, err := r.admit(ctx, seen, next)
	if err != nil || pod == nil {
		return err
	}
	// The API server's policy has put the finalizer on, unless it is not in force: without it the record could go before its pod.
	if err := hold(ctx, r.client, seen.shadow, v1alpha1.FinalizerShadowPod); err != nil {
		return err
	}
	fault.Point(fault.BeforePod)
	err = r.create(ctx, seen.shadow, pod, began)
	switch {
	case err == nil:
		fault.Point(fault.PodCreated)
		r.noteOf(seen.shadow).carried = carried{pod.UID, seen.shadow.Generation}
		r.ledger.see(claimantOf(seen.shadow, seen.peer), exchange.Count(pod))
		ctrl.LoggerFrom(ctx).Info("Created pod", "podUID", pod.UID)
		return nil
	case apierrors.IsAlreadyExists(err):
		return r.taken(ctx, seen, next)
	case apierrors.IsInvalid(err) || apierrors.IsForbidden(err):
		r.refused(seen, next, err)
		return nil
	default:
		return fmt.Errorf("create the pod: %w", err)
	}
}

// refused records why the API server does not take the pod. A quota counts late that a pod has ended, so its refusal
// costs the pod its room only when it lasts: else all that wait would try, one after the other.
func (r *shadowPodReconciler) refused(seen *observation, next *decision, err error) {
	lasting := true
	switch reason, message := quotaRefusal(err); {
	case local.IsEnding(err):
		next.giveUp(seen, v1alpha1.ReasonNamespaceTerminating, "The twin namespace is being deleted")
	case apierrors.IsInvalid(err):
		next.giveUp(seen, v1alpha1.ReasonPodRefused, err.Error())
	case reason != "":
		lasting = next.retry(seen, reason, message, quotaRetryAtMost) >= refusedFor
		if lasting && reason == v1alpha1.ReasonLimitExceeded && seen.shadow.Status.PodUID != "" {
			next.giveUp(seen, reason, message)
		}
	default:
		if next.retry(seen, v1alpha1.ReasonPodRefused, err.Error(), refusedAtMost) >= refusedFor {
			next.giveUp(seen, v1alpha1.ReasonPodRefused, err.Error())
		}
	}
	if lasting {
		r.ledger.leave(client.ObjectKeyFromObject(seen.shadow))
	}
}

// taken looks at the pod that has the name. Our own is not in the cache yet, and will come.
func (r *shadowPodReconciler) taken(ctx context.Context, seen *observation, next *decision) error {
	pod, err := getPod(ctx, r.live, seen.shadow)
	if err != nil {
		return err
	}
	if pod == nil {
		next.again = retryAtLeast
		return nil
	}
	if !madeFor(seen.shadow, pod) {
		next.nameTaken(seen)
		r.ledger.leave(client.ObjectKeyFromObject(seen.shadow))
	}
	return nil
}
