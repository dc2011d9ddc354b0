// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// A place holds the objects of one kind in one namespace of our own cluster.
type place struct {
	Namespace string
	Kind      reflection.Kind
}

// A request asks the copier to look at what pods of a place need at one peer.
type request struct {
	Peer string
	place
}

// requestsOfPod are for all kinds that the pod refers to, and for those that all pods need.
func (c *copier) requestsOfPod(pod client.Object) []request {
	peer, away := peerOf(pod)
	if !away {
		return nil
	}
	needed := references(pod)
	var requests []request
	for _, kind := range c.kinds() {
		refers := func(r reflection.Reference) bool { return r.Kind == kind }
		if c.Reach.Of(kind).SeesAll() || slices.ContainsFunc(needed, refers) {
			requests = append(requests, request{Peer: peer, place: place{Namespace: pod.GetNamespace(), Kind: kind}})
		}
	}
	return requests
}

// peerOf returns the peer whose virtual node the pod seems to be bound to. Only the label of the Node tells for certain.
func peerOf(object client.Object) (string, bool) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return "", false
	}
	return strings.CutPrefix(pod.Spec.NodeName, v1alpha1.VirtualNodePrefix)
}

func references(object client.Object) []reflection.Reference {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil
	}
	return reflection.References(&pod.Spec)
}

// needs is what the pod refers to, if it may still be started.
func needs(object client.Object) []reflection.Reference {
	if ended(object) {
		return nil
	}
	return references(object)
}

func ended(object client.Object) bool {
	pod, ok := object.(*corev1.Pod)
	return ok && offload.Terminal(pod.Status.Phase)
}

// needsMove lets through pods that come to a virtual node, end or go, and those that refer to something else than before.
var needsMove = predicate.And(
	predicate.NewPredicateFuncs(func(pod client.Object) bool { _, away := peerOf(pod); return away }),
	predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		_, was := peerOf(e.ObjectOld)
		return !was || ended(e.ObjectOld) != ended(e.ObjectNew) || !slices.Equal(needs(e.ObjectOld), needs(e.ObjectNew))
	}})

type queue = workqueue.TypedRateLimitingInterface[request]

// podHandler asks to look at what pods refer to: at once when one comes, unless all of it is there already, as it is for
// most pods of a Deployment; and after a while when one goes.
func (c *copier) podHandler() handler.TypedEventHandler[client.Object, request] {
	return handler.TypedFuncs[client.Object, request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[client.Object], q queue) { c.podCame(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[client.Object], q queue) {
			c.podWent(e.ObjectOld, q)
			c.podCame(e.ObjectNew, q)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[client.Object], q queue) { c.podWent(e.Object, q) },
	}
}

func (c *copier) podCame(pod client.Object, q queue) {
	for _, req := range c.requestsOfPod(pod) {
		if !c.serves(req, pod) {
			q.Add(req)
		}
	}
}

func (c *copier) podWent(pod client.Object, q queue) {
	for _, req := range c.requestsOfPod(pod) {
		q.AddAfter(req, debounce)
	}
}

// serves reports whether the twin is seen to have good copies of all that the pod needs. What is not there at home does
// not count as served: somebody must wait for it. Of what all pods need there are copies since the first pod.
func (c *copier) serves(req request, pod client.Object) bool {
	link, open := c.Links.Get(req.Peer)
	if !open {
		return false
	}
	over := link.Followed(c.copies[req.Kind], req.Namespace)
	if over == nil || !over.HasSynced() {
		return false
	}
	if !req.Kind.ByPods() {
		return !ended(pod)
	}
	source := c.sources.watched(req)
	if source == nil {
		return false
	}
	seen := reflection.Sight{Wanted: map[string]bool{}, Found: map[string]metav1.Object{}}
	for _, reference := range needs(pod) {
		if reference.Kind != req.Kind {
			continue
		}
		found, ok := over.Named(reference.Name)
		if !ok {
			return false
		}
		seen.Wanted[reference.Name], seen.Found[reference.Name] = true, found
	}
	seen.Sources = source.objects(seen.Wanted, req.Namespace, c.Reach.Of(req.Kind))
	return len(reflection.Plan(seen)) == 0
}

// The kinds that a Service is made of, and those that change with how a peer sees our addresses.
var (
	ofServices    = []reflection.Kind{reflection.EndpointSlice, reflection.Service}
	ofConnections = append(slices.Clone(ofServices), reflection.Ingress, reflection.Secret)
)

// namespaceHandler asks to look at objects of the kinds, for each peer that has a twin of the namespace of the object.
func (c *copier) namespaceHandler(kinds ...reflection.Kind) handler.TypedEventHandler[client.Object, request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []request {
		if !c.offloads(ctx, object.GetNamespace()) { // as most, where there may be a change each moment and many Peers
			return nil
		}
		return c.requestsIn(ctx, object.GetNamespace(), kinds...)
	})
}

// offloads says whether pods leave from the namespace, or have.
func (c *copier) offloads(ctx context.Context, name string) bool {
	namespace, err := local.Find(ctx, c.Client, client.ObjectKey{Name: name}, &corev1.Namespace{}, client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot read Namespace from the cache", "Namespace", name)
	}
	return namespace != nil && namespace.Labels[v1alpha1.LabelOffloads] == "true"
}

// requestsIn are for objects of the kinds in the namespace, for each peer that has a twin of it.
func (c *copier) requestsIn(ctx context.Context, namespace string, kinds ...reflection.Kind) []request {
	peers := &v1alpha1.PeerList{}
	if err := c.Client.List(ctx, peers, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot read Peers from the cache")
	}
	var requests []request
	for i := range peers.Items {
		requests = append(requests, c.requestsAt(peers.Items[i].Name, namespace, kinds...)...)
	}
	return requests
}

// connectionHandler asks to look at the Services of all namespaces, which the peer of the Connection may see otherwise now, and at
// what goes only where Services do.
func (c *copier) connectionHandler() handler.TypedEventHandler[client.Object, request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []request {
		namespaces := &corev1.NamespaceList{}
		if err := c.Client.List(ctx, namespaces, client.MatchingLabels{v1alpha1.LabelOffloads: "true"}, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Cannot read namespaces from the cache")
		}
		var requests []request
		for i := range namespaces.Items {
			peer := strings.TrimPrefix(object.GetNamespace(), v1alpha1.TenantNamespacePrefix)
			requests = append(requests, c.requestsAt(peer, namespaces.Items[i].Name, ofConnections...)...)
		}
		return requests
	})
}

// requestsAt are for objects of the kinds in our namespace, if the peer has a twin of it.
func (c *copier) requestsAt(peer, namespace string, kinds ...reflection.Kind) []request {
	if link, open := c.Links.Get(peer); !open || link.Twin(namespace) == "" {
		return nil
	}
	var requests []request
	for _, kind := range kinds {
		requests = append(requests, request{Peer: peer, place: place{Namespace: namespace, Kind: kind}})
	}
	return requests
}

// KeepReferences returns a transform of a cache of pods that trims them as the given one does, and keeps of those on
// virtual nodes what they refer to, and their tokens: as volumes, which are not the pod's own. A remote pod, which may be on a virtual node
// itself, is kept whole by the given one already.
func KeepReferences(trim toolscache.TransformFunc) toolscache.TransformFunc {
	return func(object any) (any, error) {
		pod, ok := object.(*corev1.Pod)
		if !ok || !losesReferences(pod) {
			return trim(object)
		}
		kept, account := append(reflection.Condense(&pod.Spec), offload.KeepTokens(pod)...), pod.Spec.ServiceAccountName
		trimmed, err := trim(object)
		if pod, ok := trimmed.(*corev1.Pod); ok && err == nil {
			pod.Spec.Volumes, pod.Spec.ImagePullSecrets, pod.Spec.ServiceAccountName = kept, nil, account
		}
		return trimmed, err
	}
}

func losesReferences(pod *corev1.Pod) bool {
	_, away := peerOf(pod)
	return away && v1alpha1.OwnerShadowPod(pod) == nil
}
