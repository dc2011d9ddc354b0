package tenant

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/fault"
	"github.com/hanse-dev/hanse/internal/offload"
)

// keeper keeps a pod running for each ShadowPod.
type keeper struct {
	config Config
	client client.Client
	live   client.Reader
	ledger *ledger
	queue  waker

	turnedAway turnedAway
	scaleUps   scaleUps
	pace       pace
	carried    notes[carried]
}

// waker takes requests to look at a ShadowPod again.
type waker interface {
	Add(request reconcile.Request)
}

func newKeeper(cfg Config, c client.Client, live client.Reader) *keeper {
	return &keeper{config: cfg, client: c, live: live, ledger: newLedger(), scaleUps: scaleUps{live: live}}
}

// Reconcile brings one ShadowPod and its pod in line.
func (k *keeper) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	shadow := &v1alpha1.ShadowPod{}
	err := k.client.Get(ctx, request.NamespacedName, shadow)
	if apierrors.IsNotFound(err) {
		k.pace.paid.leave(request.NamespacedName)
		k.leave(request.NamespacedName)
	}
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !shadow.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, k.end(ctx, shadow)
	}
	seen, err := k.observe(ctx, shadow)
	if err != nil || seen == nil {
		return reconcile.Result{}, err
	}
	next := decide(seen)
	if err := k.act(ctx, seen, &next); err != nil {
		return reconcile.Result{}, err
	}
	k.account(seen, &next)
	again, err := k.record(ctx, seen, &next)
	return reconcile.Result{RequeueAfter: again}, err
}

// observe looks at what there is. It returns nil where there is nothing to keep.
func (k *keeper) observe(ctx context.Context, shadow *v1alpha1.ShadowPod) (*scene, error) {
	ns := &corev1.Namespace{}
	if err := k.client.Get(ctx, client.ObjectKey{Name: shadow.Namespace}, ns); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	twin, ok := twinIn(ns)
	if !ok {
		return nil, nil
	}
	seen := &scene{
		shadow: shadow, peer: twin.peer, twin: ns, ending: !ns.DeletionTimestamp.IsZero(), now: k.config.Clock.Now(),
	}
	if k.config.SendOn {
		seen.path, _ = offload.Onward(shadow, twin.clusterID, k.config.ClusterID)
	}
	pod, err := getPod(ctx, k.client, shadow)
	if err != nil {
		return nil, err
	}
	seen.pod = pod
	if pod == nil && shadow.Status.PodUID != "" {
		return k.lookAgain(ctx, seen)
	}
	if pod != nil {
		k.recall(ctx, seen)
	}
	return seen, nil
}

// recall adds what is known of the pod from elsewhere.
func (k *keeper) recall(ctx context.Context, seen *scene) {
	shadow, pod := seen.shadow, seen.pod
	seen.upToDate = k.carried.get(client.ObjectKeyFromObject(shadow)) == carried{pod.UID, shadow.Generation}
	if unschedulable(pod) != nil && left(noRoomPatience, seen.now.Sub(pod.CreationTimestamp.Time)) == 0 {
		seen.scalingUp = k.scaleUps.of(ctx, pod, seen.now)
	}
}

// lookAgain asks the API server itself. A pod that the record knows and the cache does not may be gone, or not here
// yet; and the record itself may be newer than the cache's: a completed pod must not be made again.
func (k *keeper) lookAgain(ctx context.Context, seen *scene) (*scene, error) {
	shadow := &v1alpha1.ShadowPod{}
	if err := k.live.Get(ctx, client.ObjectKeyFromObject(seen.shadow), shadow); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if shadow.UID != seen.shadow.UID || !shadow.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	pod, err := getPod(ctx, k.live, shadow)
	if err != nil {
		return nil, err
	}
	seen.shadow, seen.pod = shadow, pod
	return seen, nil
}

// getPod returns the pod of the ShadowPod's name, whosever it is, and nil if there is none.
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
func (k *keeper) act(ctx context.Context, seen *scene, next *decision) error {
	switch next.action {
	case makePod:
		return k.make(ctx, seen, next)
	case removePod:
		return k.delete(ctx, seen.pod, nil)
	case updatePod:
		return k.update(ctx, seen, next)
	default:
		return nil
	}
}

// end deletes the pod with the grace that home asked for, and lets the ShadowPod go when the pod is gone.
func (k *keeper) end(ctx context.Context, shadow *v1alpha1.ShadowPod) error {
	if !controllerutil.ContainsFinalizer(shadow, v1alpha1.FinalizerShadowPod) {
		return nil
	}
	pod, err := getPod(ctx, k.client, shadow)
	if err == nil && pod == nil {
		pod, err = getPod(ctx, k.live, shadow)
	}
	if err != nil {
		return err
	}
	if pod != nil && madeFor(shadow, pod) {
		if graceLeft(pod, shadow.Spec.DeletionGracePeriodSeconds) {
			return k.delete(ctx, pod, shadow.Spec.DeletionGracePeriodSeconds)
		}
		return k.tellEnd(ctx, shadow, pod)
	}
	fault.Point(fault.BeforeRelease)
	before := shadow.DeepCopy()
	controllerutil.RemoveFinalizer(shadow, v1alpha1.FinalizerShadowPod)
	err = k.client.Patch(ctx, shadow, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err = ignoreStale(err); err != nil {
		return fmt.Errorf("remove the finalizer: %w", err)
	}
	return nil
}

// tellEnd records how the pod ended, if somebody at home waits for that.
func (k *keeper) tellEnd(ctx context.Context, shadow *v1alpha1.ShadowPod, pod *corev1.Pod) error {
	if shadow.Annotations[v1alpha1.AnnotationReportEnd] == "" || !ended(string(pod.Status.Phase)) {
		return nil
	}
	seen := &scene{shadow: shadow, pod: pod, now: k.config.Clock.Now()}
	next := decision{status: *shadow.Status.DeepCopy()}
	next.tell(seen, offload.Export(pod))
	_, err := k.record(ctx, seen, &next)
	return err
}

// delete deletes the pod, with its own grace unless another is named.
func (k *keeper) delete(ctx context.Context, pod *corev1.Pod, grace *int64) error {
	options := &client.DeleteOptions{
		Preconditions:      &metav1.Preconditions{UID: &pod.UID},
		GracePeriodSeconds: grace,
	}
	if err := ignoreStale(k.client.Delete(ctx, pod, options)); err != nil {
		return fmt.Errorf("delete the pod: %w", err)
	}
	fault.Point(fault.PodDeleted)
	ctrl.LoggerFrom(ctx).Info("Deleting pod", "podUID", pod.UID)
	return nil
}

// madeFor says whether the pod is the ShadowPod's own.
func madeFor(shadow *v1alpha1.ShadowPod, pod *corev1.Pod) bool {
	owner := ownerShadow(pod)
	return owner != nil && owner.UID == shadow.UID
}

// graceLeft says whether deleting the pod with this grace would end it sooner than it ends by itself.
func graceLeft(pod *corev1.Pod, grace *int64) bool {
	if pod.DeletionTimestamp.IsZero() {
		return true
	}
	now := pod.DeletionGracePeriodSeconds
	return grace != nil && now != nil && *grace < *now
}
