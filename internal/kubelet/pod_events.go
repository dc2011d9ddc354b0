package kubelet

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// podEvents say which pods an event is about.
type podEvents struct {
	reader client.Reader
	links  *peers.Links
}

// A podQueue takes the pods that the pod controller is to look at.
type podQueue = peers.Queue[request]

// linkChanged has all pods of a peer looked at whose link was made, closed, cut off, or is back.
func (e podEvents) linkChanged(ctx context.Context, peer string, queue podQueue) {
	e.wake(ctx, peer, "", queue)
}

// mappingChanged has the pods of a namespace looked at whose twin may have come, gone or got another name.
func (e podEvents) mappingChanged(ctx context.Context, change peers.Change, queue podQueue) {
	if change.Name != "" {
		e.wake(ctx, change.Link.Peer(), change.Name, queue)
		return
	}
	if err := followLeftovers(ctx, e.reader, change.Link); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot read offloaded namespaces from the cache")
	}
}

// recordChanged has a pod looked at whose record has changed, or all of a namespace when their records are known.
func (e podEvents) recordChanged(ctx context.Context, change peers.Change, queue podQueue) {
	peer := change.Link.Peer()
	if change.Name != "" {
		queue.Add(request{Peer: peer, Namespace: change.Home(), Name: change.Name})
		return
	}
	if err := unfollowUnused(ctx, e.reader, change.Link, change.Home(), change.Mirror); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot read pods from the cache")
	}
	e.wake(ctx, peer, change.Home(), queue)
}

// wake has the pods and records of that home namespace, or of all, looked at: first those pods that wait to be taken out.
func (e podEvents) wake(ctx context.Context, peer, namespace string, queue podQueue) {
	pods := e.onNode(ctx, v1alpha1.VirtualNodeName(peer), namespace)
	for i := range pods {
		if started(&pods[i]) {
			queue.AddLow(requestFor(&pods[i]))
		} else {
			queue.Add(requestFor(&pods[i]))
		}
	}
	link, linked := e.links.Get(peer)
	if !linked {
		return
	}
	for _, name := range recordsAt(link, namespace) {
		queue.AddLow(request{Peer: peer, Namespace: name.Namespace, Name: name.Name})
	}
}

func (e podEvents) onNode(ctx context.Context, node, namespace string) []corev1.Pod {
	pods, err := podsOn(ctx, e.reader, node, namespace)
	if err != nil {
		// Our own cache answers, so this is a mistake in the wiring.
		ctrl.LoggerFrom(ctx).Error(err, "Cannot read pods from the cache")
	}
	return pods
}

func (e podEvents) requestsOn(ctx context.Context, node string) []request {
	pods := e.onNode(ctx, node, "")
	requests := make([]request, 0, len(pods))
	for i := range pods {
		requests = append(requests, requestFor(&pods[i]))
	}
	return requests
}

func requestFor(pod *corev1.Pod) request {
	return request{Peer: peerOf(pod.Spec.NodeName), Namespace: pod.Namespace, Name: pod.Name}
}

func ofPod(_ context.Context, object client.Object) []request {
	pod, ok := object.(*corev1.Pod)
	if !ok || !maybeVirtual(pod.Spec.NodeName) {
		return nil
	}
	return []request{requestFor(pod)}
}

func (e podEvents) ofNode(ctx context.Context, object client.Object) []request {
	return e.requestsOn(ctx, object.GetName())
}

func (e podEvents) ofPeer(ctx context.Context, object client.Object) []request {
	return e.requestsOn(ctx, v1alpha1.VirtualNodeName(object.GetName()))
}

func (e podEvents) ofAdvertisement(ctx context.Context, object client.Object) []request {
	peer, ok := strings.CutPrefix(object.GetNamespace(), v1alpha1.TenantNamespacePrefix)
	if !ok {
		return nil
	}
	return e.requestsOn(ctx, v1alpha1.VirtualNodeName(peer))
}

func (e podEvents) ofNamespace(ctx context.Context, object client.Object) []request {
	pods := &corev1.PodList{}
	err := e.reader.List(ctx, pods, client.InNamespace(object.GetNamespace()), client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot read pods from the cache")
		return nil
	}
	var requests []request
	for i := range pods.Items {
		requests = append(requests, ofPod(ctx, &pods.Items[i])...)
	}
	return requests
}

// appears passes on that an object came to be: what waits for it can go on.
func appears() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// remapped passes on changes of a Peer or an Advertisement by which its pods get other addresses here.
func remapped() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return podRange(e.ObjectOld) != podRange(e.ObjectNew)
	}}
}

func podRange(object client.Object) string {
	switch object := object.(type) {
	case *v1alpha1.Peer:
		return object.Status.RemappedPodCIDR
	case *v1alpha1.Advertisement:
		if object.Spec.Network != nil {
			return object.Spec.Network.PodCIDR
		}
	}
	return ""
}
