package kubelet

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/fault"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trace"
)

// patience is how long a pod waits for its peer before it says so. Most twins are there within it.
const patience = 5 * time.Second

// busyDelay is how soon a pod is looked at again whose peer has enough requests to answer.
const busyDelay = time.Second

// podController takes pods that are bound to virtual nodes out to their peers, and their status back.
type podController struct {
	client client.Client
	live   client.Reader
	clock  clock.PassiveClock
	events events.EventRecorder
	links  *peers.Links
	nodeIP string
	// defaultToleration is for how long Kubernetes has pods tolerate a node that is not ready.
	defaultToleration time.Duration
	tracer            *trace.Tracer
}

// errWaiting brings a pod back, later each time.
var errWaiting = errors.New("waiting for the peer")

// Reconcile brings one pod and its record at the peer together. What exists on both sides decides, by UID; nothing is
// remembered.
func (c *podController) Reconcile(ctx context.Context, req request) (reconcile.Result, error) {
	seen, link, err := c.observe(ctx, req)
	if err != nil {
		return reconcile.Result{}, err
	}
	result, err := c.act(ctx, req, seen, link)
	if errors.Is(err, peers.ErrBusy) {
		// What waits for an answer of this peer already keeps as many workers from others as it may.
		return reconcile.Result{RequeueAfter: wait.Jitter(busyDelay, 1)}, nil
	}
	var tooSoon *tooSoonError
	if errors.As(err, &tooSoon) {
		return reconcile.Result{RequeueAfter: tooSoon.after}, nil
	}
	return result, c.explain(ctx, seen, err)
}

func (c *podController) act(ctx context.Context, req request, seen podFacts, link *peers.Link) (reconcile.Result, error) {
	next := decide(seen)
	var (
		again time.Duration
		err   error
	)
	switch next.do {
	case doNothing:
	case doHold:
		err = c.hold(ctx, seen.home, next.message)
	case doWait:
		again = patience
	case doCreate:
		err = c.create(ctx, seen, link)
	case doDisconnect:
		err = c.write(ctx, seen.home, disconnectedStatus(seen.home, metav1.NewTime(c.clock.Now())))
	case doReport:
		again, err = c.report(ctx, seen, link)
	case doEnd:
		err = c.end(ctx, seen, link)
	case doFinish:
		err = c.finish(ctx, seen, link)
	case doClear:
		err = c.clear(ctx, req, seen.shadow, link)
	}
	return reconcile.Result{RequeueAfter: again}, err
}

// observe gathers what decides about the pod. The link is nil if there is none to the peer.
func (c *podController) observe(ctx context.Context, req request) (podFacts, *peers.Link, error) {
	seen := podFacts{peer: req.Peer}
	if err := c.observeHome(ctx, req, &seen); err != nil {
		return seen, nil, err
	}
	link, linked := c.links.Get(req.Peer)
	if !linked {
		return seen, nil, nil
	}
	seen.linked = true
	if seen.home != nil && seen.virtual {
		link.FollowTwin(records, req.Namespace)
	}
	seen.view = look(link, req.Namespace, req.Name)
	return seen, link, nil
}

func (c *podController) observeHome(ctx context.Context, req request, seen *podFacts) error {
	nodeName := v1alpha1.VirtualNodeName(req.Peer)
	pod := &corev1.Pod{}
	key := client.ObjectKey{Namespace: req.Namespace, Name: req.Name}
	if err := c.client.Get(ctx, key, pod, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Pod: %w", err)
	}
	if pod.Spec.NodeName != nodeName {
		return nil
	}
	seen.home = pod
	seen.patient = c.clock.Since(boundAt(pod)) < patience

	node := &corev1.Node{}
	err := c.client.Get(ctx, client.ObjectKey{Name: nodeName}, node, client.UnsafeDisableDeepCopy)
	if seen.virtual = err == nil; client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Node %s: %w", nodeName, err)
	}
	peer := &v1alpha1.Peer{}
	err = c.client.Get(ctx, client.ObjectKey{Name: req.Peer}, peer, client.UnsafeDisableDeepCopy)
	if seen.peered = err == nil; client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Peer %s: %w", req.Peer, err)
	}
	seen.forsaken = seen.peered && forsaken(peer)
	offloading := &v1alpha1.NamespaceOffloading{}
	key = client.ObjectKey{Namespace: req.Namespace, Name: v1alpha1.NamespaceOffloadingName}
	err = c.client.Get(ctx, key, offloading, client.UnsafeDisableDeepCopy)
	if seen.offloaded = err == nil; client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read NamespaceOffloading: %w", err)
	}
	seen.how = offloading.Spec
	return nil
}

// boundAt returns when the scheduler bound the pod.
func boundAt(pod *corev1.Pod) time.Time {
	if c := offload.PodCondition(&pod.Status, corev1.PodScheduled); c != nil {
		return c.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

// create asks the peer to run the pod.
func (c *podController) create(ctx context.Context, seen podFacts, link *peers.Link) error {
	raw, err := c.outbound(ctx, seen.home, &seen.how)
	var held *heldError
	if errors.As(err, &held) {
		return c.hold(ctx, seen.home, held.why)
	}
	if err != nil {
		return err
	}
	home, err := c.tolerate(ctx, seen.home, &seen.how)
	if home == nil || err != nil {
		return err
	}
	if home != seen.home {
		if raw, err = c.outbound(ctx, home, &seen.how); err != nil {
			return err
		}
	}
	shadow := &v1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   seen.twin,
			Name:        home.Name,
			Annotations: map[string]string{annotationRevision: revision(home, seen.how.Overrides)},
			// The provider would put it on all the same, which costs its API server more.
			Finalizers: []string{v1alpha1.FinalizerShadowPod},
		},
		Spec: v1alpha1.ShadowPodSpec{
			HomeUID: home.UID, Path: offload.Path(home), Pod: runtime.RawExtension{Raw: raw},
		},
	}
	err = c.createShadow(ctx, home, shadow, link)
	if apierrors.IsAlreadyExists(err) {
		return c.collide(ctx, seen, link)
	}
	if err != nil {
		return &peerError{attempt: "create ShadowPod", err: err}
	}
	fault.Point(fault.ShadowCreated)
	shadowPodsCreated.Inc()
	ctrl.LoggerFrom(ctx).V(1).Info("Offloaded pod", "homeUID", home.UID)
	return nil
}

// collide handles a record that exists though the mirror does not show it. Nothing is to be done about the pod's own:
// it is on its way to the mirror.
func (c *podController) collide(ctx context.Context, seen podFacts, link *peers.Link) error {
	found := &v1alpha1.ShadowPod{}
	key := client.ObjectKey{Namespace: seen.twin, Name: seen.home.Name}
	if err := link.Client().Get(ctx, key, found); err != nil {
		return &peerError{attempt: "read ShadowPod", err: err}
	}
	if found.Spec.HomeUID == seen.home.UID {
		return nil
	}
	req := request{Peer: link.Peer(), Namespace: seen.home.Namespace, Name: seen.home.Name}
	if err := c.clear(ctx, req, found, link); err != nil {
		return err
	}
	return errWaiting
}

// report carries changes of the pod out and its status home, each whatever becomes of the other, and lets the pod go if
// there is no room for it for too long. It returns how soon that may be.
func (c *podController) report(ctx context.Context, seen podFacts, link *peers.Link) (time.Duration, error) {
	err := errors.Join(c.carry(ctx, seen, link), c.bringHome(ctx, seen.home, seen.shadow))
	if err != nil {
		return 0, err
	}
	return c.letGo(ctx, seen, link)
}

// carry brings what changed about the pod since it went out.
func (c *podController) carry(ctx context.Context, seen podFacts, link *peers.Link) error {
	now := revision(seen.home, seen.how.Overrides)
	if !seen.answers || !seen.shadow.DeletionTimestamp.IsZero() || seen.shadow.Annotations[annotationRevision] == now {
		return nil
	}
	raw, err := c.outbound(ctx, seen.home, &seen.how)
	if err != nil {
		return err
	}
	changed := seen.shadow.DeepCopy()
	changed.Spec.Pod.Raw = raw
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	changed.Annotations[annotationRevision] = now
	if err := link.Client().Update(ctx, changed); err != nil {
		return &peerError{attempt: "update ShadowPod", err: err}
	}
	fault.Point(fault.ChangeCarried)
	return nil
}

// request asks the pod controller to look at the pod of that name, here and at the peer.
type request struct {
	Peer, Namespace, Name string
}
