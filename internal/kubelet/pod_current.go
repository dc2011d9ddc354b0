package kubelet

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
)

// currentPods returns the pods that are bound to the virtual node, with their statuses as their peer tells them. What we
// bring home comes back to our cache some time later, and others may have seen it by then: whoever waited for a pod to run
// finds that it does.
func currentPods(ctx context.Context, reader client.Reader, links *peers.Links, node string) ([]corev1.Pod, error) {
	pods, err := podsOn(ctx, reader, node, metav1.NamespaceAll)
	if err != nil {
		return nil, err
	}
	link, linked := links.Get(peerOf(node))
	if !linked {
		return pods, nil
	}
	for i := range pods {
		if status, differs := news(link, &pods[i]); differs {
			pods[i].Status = status // the list is ours, though what its pods point to is the cache's
		}
	}
	return pods, nil
}

// news returns the status that the home pod is about to get, if its peer may have told some. To find that out costs
// more than to look at the pod, so it is done only for those on their way to be ready.
func news(link *peers.Link, pod *corev1.Pod) (corev1.PodStatus, bool) {
	ready := offload.PodCondition(&pod.Status, corev1.PodReady)
	if terminal(pod) || ready != nil && ready.Status == corev1.ConditionTrue {
		return corev1.PodStatus{}, false
	}
	seen := look(link, pod.Namespace, pod.Name)
	if !seen.answers || seen.shadow == nil || seen.shadow.Status.Pod == nil {
		return corev1.PodStatus{}, false
	}
	status, err := offload.Inbound(pod, seen.shadow, offload.AddressMap{})
	status.PodIP, status.PodIPs = pod.Status.PodIP, pod.Status.PodIPs // they are not ours to translate here
	return status, err == nil                                         // another pod of the name, or what makes no sense, tells nothing
}
