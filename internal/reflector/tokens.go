// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// podUIDField is the index of pods on virtual nodes by their UID.
const podUIDField = "metadata.uid"

// tokens sees to it that each pod at a peer finds there the tokens of its service account, as a kubelet does at home: bound to
// the pod, renewed in time, and gone when the pod is. They lie in one Secret of the twin for each pod. When it is due is read
// from that Secret, in the mirror that the copier has.
type tokens struct {
	Config
	copier *copier
	roots  rootCertificates
}

// A tokenRequest asks to look at the tokens of one pod at one peer.
type tokenRequest struct {
	Peer, Namespace string
	Pod             types.UID
}

func newTokens(c *copier) *tokens { return &tokens{Config: c.Config, copier: c} }

func (t *tokens) setup(mgr ctrl.Manager) error {
	ctx := context.Background() //nolint:forbidigo // the manager has no context before it starts, and nothing is waited for
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, podUIDField, indexPodUID); err != nil {
		return fmt.Errorf("index pods: %w", err)
	}
	log := mgr.GetLogger().WithName("tokens")
	return builder.TypedControllerManagedBy[tokenRequest](mgr).
		Named("tokens").
		Watches(&corev1.Pod{}, handler.TypedEnqueueRequestsFromMapFunc(tokensOfPod), builder.WithPredicates(tokensMove)).
		Watches(&v1alpha1.Peer{}, handler.TypedEnqueueRequestsFromMapFunc(t.networkMoved), builder.WithPredicates(networkMoves)).
		WatchesRawSource(peers.Changes(t.Links, peers.Mappings, t.twinMoved)).
		WatchesRawSource(peers.Changes(t.Links, copies[reflection.Secret], t.secretMoved)).
		WithLogConstructor(func(req *tokenRequest) logr.Logger {
			if req == nil {
				return log
			}
			return log.WithValues("Peer", req.Peer, "Namespace", req.Namespace, "homeUID", req.Pod)
		}).
		WithOptions(controller.TypedOptions[tokenRequest]{MaxConcurrentReconciles: workers, RateLimiter: backOff[tokenRequest]()}).
		Complete(t)
}

// Reconcile brings the Secret with the tokens of one pod to what it should be, and comes back when they are to be renewed.
func (t *tokens) Reconcile(ctx context.Context, req tokenRequest) (reconcile.Result, error) {
	pod, to, err := t.observeHome(ctx, req)
	if err != nil {
		return reconcile.Result{}, err
	}
	link, twin, err := t.copier.twinOf(ctx, req.inCopies(), pod != nil && offload.TakesTokenSecret(pod, true))
	if err != nil || twin == nil || !twin.HasSynced() {
		return reconcile.Result{}, err // its mapping asks again, or the mirror when it is filled
	}
	found, _ := twin.Named(offload.TokenSecret(req.Pod))
	seen := reflection.TokenSight{Wanted: pod != nil && offload.TakesTokenSecret(pod, to.HasNetwork() || found != nil)}
	if found != nil {
		seen.Found = found
	}
	verb, wait := reflection.PlanTokens(seen, t.Clock.Now())
	switch {
	case verb == "":
		return reconcile.Result{RequeueAfter: wait}, nil
	case twin.Err() != nil:
		return reconcile.Result{RequeueAfter: outageDelay}, nil //nolint:nilerr // the peer does not answer, which others tell
	}
	if delay := t.Links.Pace(req.Peer, req.Pod); delay > 0 { // a peer that undoes what we do has us make no end of tokens
		return reconcile.Result{RequeueAfter: delay}, nil
	}
	return t.act(ctx, tokenMove{tokenRequest: req, verb: verb, pod: pod, found: found, twin: twin.Namespace(), link: link})
}

// observeHome returns the pod if it may still be started or runs at the peer with tokens, and nil if not, and the Peer, empty if there is none.
func (t *tokens) observeHome(ctx context.Context, req tokenRequest) (*corev1.Pod, *v1alpha1.Peer, error) {
	to := &v1alpha1.Peer{}
	pods := &corev1.PodList{}
	if err := t.Client.List(ctx, pods, client.InNamespace(req.Namespace), client.MatchingFields{podUIDField: string(req.Pod)},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("find the pod: %w", err)
	}
	name := v1alpha1.VirtualNodeName(req.Peer)
	if len(pods.Items) != 1 || pods.Items[0].Spec.NodeName != name || !mayTakeTokens(&pods.Items[0]) {
		return nil, to, nil
	}
	err := client.IgnoreNotFound(t.Client.Get(ctx, client.ObjectKey{Name: req.Peer}, to, client.UnsafeDisableDeepCopy))
	if err != nil {
		return nil, nil, fmt.Errorf("read Peer: %w", err)
	}
	if virtual, err := t.copier.isVirtual(ctx, name); err != nil || !virtual || !to.Protocol().Network {
		return nil, to, err
	}
	return &pods.Items[0], to, nil
}

// inCopies is the request to the copier for the place in which the tokens lie.
func (r tokenRequest) inCopies() request {
	return request{Peer: r.Peer, place: place{Namespace: r.Namespace, Kind: reflection.Secret}}
}

// act does what is planned. What cannot be done is told as an event of the pod, which waits for it.
func (t *tokens) act(ctx context.Context, m tokenMove) (reconcile.Result, error) {
	err := t.take(ctx, m)
	var busy *peers.BusyError
	switch {
	case errors.As(err, &busy):
		return reconcile.Result{RequeueAfter: busy.After}, nil
	case local.IsEnding(err):
		return reconcile.Result{RequeueAfter: lastRetry}, nil
	case err == nil || m.verb == reflection.Delete:
		return reconcile.Result{}, err
	}
	t.tell(m, err)
	return reconcile.Result{}, err
}

// mayTakeTokens says whether the pod may be started with tokens, or runs with them.
func mayTakeTokens(pod *corev1.Pod) bool {
	return !offload.Terminal(pod.Status.Phase) && offload.TakesTokenSecret(pod, true)
}

func indexPodUID(object client.Object) []string {
	if _, away := peerOf(object); !away {
		return nil
	}
	return []string{string(object.GetUID())}
}

// tokensOfPod are for a pod that seems to be on a virtual node.
func tokensOfPod(_ context.Context, pod client.Object) []tokenRequest {
	peer, away := peerOf(pod)
	if !away {
		return nil
	}
	return []tokenRequest{{Peer: peer, Namespace: pod.GetNamespace(), Pod: pod.GetUID()}}
}

func takesTokens(object client.Object) bool {
	pod, ok := object.(*corev1.Pod)
	_, away := peerOf(object)
	return ok && away && mayTakeTokens(pod)
}

// takesAnyway says whether the pod takes tokens also where no network leads to the peer.
func takesAnyway(object client.Object) bool {
	pod, ok := object.(*corev1.Pod)
	return ok && offload.TakesTokenSecret(pod, false)
}

// tokensMove lets through pods that come to a virtual node with tokens, begin to wait for these, or go.
var tokensMove = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return takesTokens(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return takesTokens(e.ObjectOld) != takesTokens(e.ObjectNew) || takesTokens(e.ObjectNew) && takesAnyway(e.ObjectNew) && !takesAnyway(e.ObjectOld)
	},
	DeleteFunc: func(e event.DeleteEvent) bool { return takesTokens(e.Object) },
}

// networkMoves lets through Peers to which a network leads now, or no more.
var networkMoves = predicate.TypedFuncs[client.Object]{
	CreateFunc: func(event.CreateEvent) bool { return false }, // pods ask for themselves
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, wasPeer := e.ObjectOld.(*v1alpha1.Peer)
		now, isPeer := e.ObjectNew.(*v1alpha1.Peer)
		return wasPeer && isPeer && before.HasNetwork() != now.HasNetwork()
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

func (t *tokens) networkMoved(ctx context.Context, peer client.Object) []tokenRequest {
	return t.podsAt(ctx, peer.GetName(), "")
}

// podsAt are for the pods with tokens at the peer, in one namespace or in all.
func (t *tokens) podsAt(ctx context.Context, peer, namespace string) []tokenRequest {
	pods := &corev1.PodList{}
	if err := t.Client.List(ctx, pods, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list pods")
		return nil
	}
	var requests []tokenRequest
	for i := range pods.Items {
		if takesTokens(&pods.Items[i]) && pods.Items[i].Spec.NodeName == v1alpha1.VirtualNodeName(peer) {
			requests = append(requests, tokensOfPod(ctx, &pods.Items[i])...)
		}
	}
	return requests
}

// twinMoved has the pods looked at whose twin may have come.
func (t *tokens) twinMoved(ctx context.Context, change peers.Change, queue peers.Queue[tokenRequest]) {
	for _, req := range t.podsAt(ctx, change.Link.Peer(), change.Name) {
		queue.Add(req)
	}
}

// secretMoved has a pod looked at whose Secret has changed: later, since most changes are our own. When a mirror is filled, that is done for all that is in it, and for all pods.
func (t *tokens) secretMoved(ctx context.Context, change peers.Change, queue peers.Queue[tokenRequest]) {
	ask := func(name string, delay time.Duration) {
		if pod, is := podOfTokens(name); is {
			queue.AddAfter(tokenRequest{Peer: change.Link.Peer(), Namespace: change.Home(), Pod: pod}, delay)
		}
	}
	if change.Name != "" {
		ask(change.Name, debounce)
		return
	}
	for _, secret := range change.Mirror.List() {
		ask(secret.GetName(), 0)
	}
	for _, req := range t.podsAt(ctx, change.Link.Peer(), change.Home()) {
		queue.Add(req)
	}
}

// keepsTokens says whether the mirror of the place is needed for tokens, however little else pods refer to.
func (c *copier) keepsTokens(ctx context.Context, link *peers.Link, req request) bool {
	if req.Kind != reflection.Secret {
		return false
	}
	pods, err := c.podsOf(ctx, req)
	if err != nil || slices.ContainsFunc(pods, mayTakeTokens) {
		return true
	}
	over := link.Followed(copies[req.Kind], req.Namespace)
	return over != nil && slices.ContainsFunc(over.List(), func(o client.Object) bool { return reflection.HoldsTokens(o) })
}

// isAlreadySo says whether a write failed because the mirror was behind, which will show what there is.
func isAlreadySo(err error) bool { return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) }
