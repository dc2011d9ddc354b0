// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/remoteevents"
	"github.com/hanse-dev/hanse/internal/sanitize"
	"github.com/hanse-dev/hanse/internal/trace"
)

// waitTimeout is how long a pod waits for its peer before it says so. Most twins are there within it.
const waitTimeout = 5 * time.Second

// podController takes pods that are bound to virtual nodes out to their peers, and their status back.
type podController struct {
	client client.Client
	live   client.Reader
	clock  clock.PassiveClock
	events events.EventRecorder
	links  *peers.Links
	nodeIP string
	podIPs []netip.Addr // of the pod of this process
	// defaultToleration is for how long Kubernetes has pods tolerate a node that is not ready.
	defaultToleration time.Duration
	tracer            *trace.Tracer
	tellEvents        func(remoteevents.Report) // users, of what happens to their pods at peers
	// ending spares the peers requests: nothing is decided by it that is not decided the same without it.
	ending sync.Map // request → UID of the home pod, which home deletes and whose record the mirror has shown meanwhile
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
	if seen.home == nil {
		c.ending.Delete(req)
	}
	result, err := c.act(ctx, req, seen, link)
	var busy *peers.BusyError
	if errors.As(err, &busy) {
		// What waits for an answer of this peer already keeps as many workers from others as it may.
		return reconcile.Result{RequeueAfter: busy.After}, nil
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
		again = waitTimeout
	case doCreate:
		if err = link.Busy(); err == nil {
			err = c.create(ctx, seen, link)
		}
	case doDisconnect:
		_, err = c.write(ctx, seen.home, disconnectedStatus(seen.home, metav1.NewTime(c.clock.Now())))
	case doReport:
		again, err = c.report(ctx, seen, link)
	case doGiveUp:
		err = c.giveUp(ctx, seen.home)
	case doEnd:
		err = c.end(ctx, seen, link)
	case doFinish:
		err = c.finish(ctx, seen, link)
	case doClear:
		err = c.clearFor(ctx, req, seen, link)
	}
	return reconcile.Result{RequeueAfter: again}, err
}

// observe gathers what decides about the pod. The link is nil if there is none to the peer.
func (c *podController) observe(ctx context.Context, req request) (podFacts, *peers.Link, error) {
	seen := podFacts{peer: req.Peer}
	if err := c.observeHome(ctx, req, &seen); err != nil {
		return seen, nil, err
	}
	state := c.links.State(req.Peer)
	seen.settled = state != peers.Unknown || !seen.peered
	link, linked := c.links.Get(req.Peer)
	if !linked {
		seen.cut = state == peers.Unlinked
		return seen, nil, nil
	}
	seen.linked = true
	if seen.home != nil && seen.virtual {
		link.FollowTwin(records, req.Namespace)
	}
	seen.view = look(link, req.Namespace, req.Name)
	if seen.home != nil && seen.shadow != nil && seen.shadow.Spec.HomeUID != seen.home.UID && isHeldThere(seen.shadow) {
		seen.earlier, seen.shadow = seen.shadow, nil
	}
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
	seen.justBound = c.clock.Since(boundAt(pod)) < waitTimeout

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
	seen.to, seen.unpeeredByForce = peer, seen.peered && unpeeredByForce(peer)
	offloading := &v1alpha1.NamespaceOffloading{}
	key = client.ObjectKey{Namespace: req.Namespace, Name: v1alpha1.NamespaceOffloadingName}
	err = c.client.Get(ctx, key, offloading, client.UnsafeDisableDeepCopy)
	if seen.offloaded = err == nil; client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read NamespaceOffloading: %w", err)
	}
	seen.how, seen.offloading = offloading.Spec, offloading
	return nil
}

// boundAt returns when the scheduler bound the pod.
func boundAt(pod *corev1.Pod) time.Time {
	if c := offload.PodCondition(&pod.Status, corev1.PodScheduled); c != nil {
		return c.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

// report carries changes of the pod out and its status home, each whatever becomes of the other, and lets the pod go if
// there is no room for it for too long. It returns how soon that may be.
func (c *podController) report(ctx context.Context, seen podFacts, link *peers.Link) (time.Duration, error) {
	c.tellEvents(remoteevents.Report{
		Peer: peerOf(seen.home.Spec.NodeName), Home: seen.home, Action: "Run",
		Events: offload.InboundEvents(seen.home, seen.shadow, c.clock.Now()),
	})
	carried := c.carry(ctx, seen, link)
	came, err := c.bringHome(ctx, &seen)
	if err = errors.Join(carried, err); err != nil {
		return 0, err
	}
	if came.verdict == askAgain && seen.answers {
		return 0, c.ask(ctx, seen.shadow, link)
	}
	if terminal(seen.home) && seen.answers && holdsEnd(seen.shadow, seen.twinEnds()) {
		return 0, sayHeard(ctx, seen.shadow, link)
	}
	left, err := c.letGo(ctx, seen, link)
	return sooner(left, came.again), err
}

// sooner returns the shorter of two waits, of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// request asks the pod controller to look at the pod of that name, here and at the peer.
type request struct {
	Peer, Namespace, Name string
}

// peerError is what a peer answered to a request about a pod.
type peerError struct {
	attempt string
	err     error
}

func (e *peerError) Error() string { return e.attempt + " at peer: " + e.err.Error() }

func (e *peerError) Unwrap() error { return e.err }

// tooSoonError says that something is to be done a little later.
type tooSoonError struct{ after time.Duration }

func (e *tooSoonError) Error() string { return "too soon: again in " + e.after.String() }

// explain tells the author of a pod why it could not be taken out, and returns err, so that it is tried again.
func (c *podController) explain(ctx context.Context, seen podFacts, err error) error {
	var failed *peerError
	if !errors.As(err, &failed) {
		return err
	}
	if apierrors.IsUnauthorized(failed) {
		// The credentials may have been replaced since the link was made.
		err = errors.Join(err, c.renew(ctx, seen.peer))
	}
	notStarted := seen.home != nil && seen.shadow == nil && seen.home.DeletionTimestamp.IsZero() && !started(seen.home)
	if !notStarted || seen.justBound && !definite(failed) {
		return err
	}
	return errors.Join(err, c.hold(ctx, seen.home, failed.forAuthor(seen.peer)))
}

// definite says whether the peer will answer the same again.
func definite(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err)
}

// forAuthor says what happened in words that are the same each time as long as the cause is.
func (e *peerError) forAuthor(peer string) string {
	if definite(e.err) {
		return fmt.Sprintf("peer %q refuses it: %s", peer, bounded(e.err.Error()))
	}
	return fmt.Sprintf("peer %q cannot be asked now: see the conditions of the Peer", peer)
}

// bounded cuts what a peer says to what fits into a status.
func bounded(text string) string { return sanitize.Text(text, 512) }

func (c *podController) renew(ctx context.Context, name string) error {
	peer := &v1alpha1.Peer{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: name}, peer); err != nil {
		return client.IgnoreNotFound(err)
	}
	_, err := c.links.Ensure(ctx, peer)
	return err
}
