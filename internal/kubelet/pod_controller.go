package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// patience is how long a pod waits for its peer before it says so. Most twins are there within it.
const patience = 5 * time.Second

// podController takes pods that are bound to virtual nodes out to their peers, and their status back.
type podController struct {
	client client.Client
	live   client.Reader
	clock  clock.PassiveClock
	events events.EventRecorder
	sites  siteFinder
	nodeIP string
}

// siteFinder knows the sites that are open.
type siteFinder interface {
	get(peer string) *site
	ensure(ctx context.Context, peer *v1alpha1.Peer) error
}

// errWaiting brings a pod back, later each time.
var errWaiting = errors.New("waiting for the peer")

// Reconcile brings one pod and its record at the peer together. What exists on both sides decides, by UID; nothing is
// remembered.
func (c *podController) Reconcile(ctx context.Context, req request) (reconcile.Result, error) {
	seen, at, err := c.observe(ctx, req)
	if err != nil {
		return reconcile.Result{}, err
	}
	next := decide(seen)
	switch next.do {
	case doNothing:
	case doHold:
		return reconcile.Result{}, c.hold(ctx, seen.home, next.message)
	case doWait:
		return reconcile.Result{RequeueAfter: patience}, nil
	case doCreate:
		err = c.create(ctx, seen, at)
	case doReport:
		err = c.report(ctx, seen, at)
	case doEnd:
		err = c.end(ctx, seen, at)
	case doFinish:
		err = c.finish(ctx, seen, at)
	case doClear:
		err = c.clear(ctx, req, seen.shadow, at)
	}
	return reconcile.Result{}, c.explain(ctx, seen, err)
}

// observe gathers what decides about the pod. The site is nil if there is no link to the peer.
func (c *podController) observe(ctx context.Context, req request) (podFacts, *site, error) {
	seen := podFacts{peer: req.Peer}
	if err := c.observeHome(ctx, req, &seen); err != nil {
		return seen, nil, err
	}
	at := c.sites.get(req.Peer)
	if at == nil {
		return seen, nil, nil
	}
	seen.linked = true
	seen.view = at.look(req.Namespace, req.Name)
	return seen, at, nil
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
	return nil
}

// boundAt returns when the scheduler bound the pod.
func boundAt(pod *corev1.Pod) time.Time {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled {
			return c.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}

// create asks the peer to run the pod.
func (c *podController) create(ctx context.Context, seen podFacts, at *site) error {
	home := seen.home
	raw, err := c.outbound(home)
	if err != nil {
		if why, refused := offload.Refusal(home); refused {
			return c.hold(ctx, home, why)
		}
		return err
	}
	if len(raw) > v1alpha1.MaxShadowPodBytes {
		return c.hold(ctx, home, fmt.Sprintf("its definition has %d bytes, and at most %d are taken to another cluster",
			len(raw), v1alpha1.MaxShadowPodBytes))
	}
	shadow := &v1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   seen.twin,
			Name:        home.Name,
			Annotations: map[string]string{annotationRevision: revision(home)},
			// The provider would put it on all the same, which costs its API server more.
			Finalizers: []string{v1alpha1.FinalizerShadowPod},
		},
		Spec: v1alpha1.ShadowPodSpec{HomeUID: home.UID, Pod: runtime.RawExtension{Raw: raw}},
	}
	err = at.link.Client().Create(ctx, shadow)
	if apierrors.IsAlreadyExists(err) {
		return c.collide(ctx, seen, at)
	}
	if err != nil {
		return &peerError{attempt: "create ShadowPod", err: err}
	}
	shadowPodsCreated.Inc()
	ctrl.LoggerFrom(ctx).V(1).Info("Offloaded pod", "homeUID", home.UID)
	return nil
}

// collide handles a record that exists though the mirror does not show it. Nothing is to be done about the pod's own:
// it is on its way to the mirror.
func (c *podController) collide(ctx context.Context, seen podFacts, at *site) error {
	found := &v1alpha1.ShadowPod{}
	key := client.ObjectKey{Namespace: seen.twin, Name: seen.home.Name}
	if err := at.link.Client().Get(ctx, key, found); err != nil {
		return &peerError{attempt: "read ShadowPod", err: err}
	}
	if found.Spec.HomeUID == seen.home.UID {
		return nil
	}
	req := request{Peer: at.peer, Namespace: seen.home.Namespace, Name: seen.home.Name}
	if err := c.clear(ctx, req, found, at); err != nil {
		return err
	}
	return errWaiting
}

// outbound returns the pod as the provider is asked to run it.
func (c *podController) outbound(home *corev1.Pod) ([]byte, error) {
	template, err := offload.Outbound(home, offload.Options{HostIP: c.nodeIP})
	if err != nil {
		return nil, reconcile.TerminalError(fmt.Errorf("translate pod: %w", err))
	}
	raw, err := json.Marshal(template)
	if err != nil {
		return nil, reconcile.TerminalError(fmt.Errorf("encode pod: %w", err))
	}
	return raw, nil
}

// report carries changes of the pod out and its status home.
func (c *podController) report(ctx context.Context, seen podFacts, at *site) error {
	if err := c.carry(ctx, seen, at); err != nil {
		return err
	}
	return c.bringHome(ctx, seen.home, seen.shadow)
}

// carry brings what changed about the pod since it went out.
func (c *podController) carry(ctx context.Context, seen podFacts, at *site) error {
	now := revision(seen.home)
	if !seen.answers || !seen.shadow.DeletionTimestamp.IsZero() || seen.shadow.Annotations[annotationRevision] == now {
		return nil
	}
	raw, err := c.outbound(seen.home)
	if err != nil {
		return err
	}
	changed := seen.shadow.DeepCopy()
	changed.Spec.Pod.Raw = raw
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	changed.Annotations[annotationRevision] = now
	if err := at.link.Client().Update(ctx, changed); err != nil {
		return &peerError{attempt: "update ShadowPod", err: err}
	}
	return nil
}
