package reflector

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// A place holds the objects of one kind in one namespace of our own cluster.
type place struct {
	Namespace string
	Kind      reflection.Kind
}

// A request asks the copier to look at what pods of a place refer to at one peer.
type request struct {
	Peer string
	place
}

// requestsOfPod are for all kinds that the pod refers to.
func requestsOfPod(pod client.Object) []request {
	peer, away := peerOf(pod)
	if !away {
		return nil
	}
	var requests []request
	for _, reference := range references(pod) {
		req := request{Peer: peer, place: place{Namespace: pod.GetNamespace(), Kind: reference.Kind}}
		if !slices.Contains(requests, req) {
			requests = append(requests, req)
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
	pod, ok := object.(*corev1.Pod)
	if !ok || offload.Terminal(pod.Status.Phase) {
		return nil
	}
	return references(pod)
}

// needsMove lets through pods that come to a virtual node or go, and those that refer to something else than before.
var needsMove = predicate.And(
	predicate.NewPredicateFuncs(func(pod client.Object) bool { _, away := peerOf(pod); return away }),
	predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		_, was := peerOf(e.ObjectOld)
		return !was || !slices.Equal(needs(e.ObjectOld), needs(e.ObjectNew))
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
	for _, req := range requestsOfPod(pod) {
		if !c.serves(req, pod) {
			q.Add(req)
		}
	}
}

func (*copier) podWent(pod client.Object, q queue) {
	for _, req := range requestsOfPod(pod) {
		q.AddAfter(req, debounce)
	}
}

// serves reports whether the twin is seen to have good copies of all that the pod needs. What is not there at home does
// not count as served: somebody must wait for it.
func (c *copier) serves(req request, pod client.Object) bool {
	source := c.sources.watched(req)
	link, open := c.Links.Get(req.Peer)
	if source == nil || !open {
		return false
	}
	over := link.Followed(copies[req.Kind], req.Namespace)
	if over == nil || !over.HasSynced() {
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
	seen.Sources = source.objects(seen.Wanted, req.Namespace)
	return len(reflection.Plan(seen)) == 0
}

// KeepReferences returns a transform of a cache of pods that trims them as the given one does, and keeps of those on
// virtual nodes what they refer to: as volumes, which are not the pod's own. A remote pod, which may be on a virtual node
// itself, is kept whole by the given one already.
func KeepReferences(trim toolscache.TransformFunc) toolscache.TransformFunc {
	return func(object any) (any, error) {
		pod, ok := object.(*corev1.Pod)
		if !ok || !losesReferences(pod) {
			return trim(object)
		}
		kept := reflection.Condense(&pod.Spec)
		trimmed, err := trim(object)
		if pod, ok := trimmed.(*corev1.Pod); ok && err == nil {
			pod.Spec.Volumes, pod.Spec.ImagePullSecrets = kept, nil
		}
		return trimmed, err
	}
}

func losesReferences(pod *corev1.Pod) bool {
	_, away := peerOf(pod)
	return away && v1alpha1.OwnerShadowPod(pod) == nil
}
