// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
)

// health says that somebody answers for the node.
func health(w http.ResponseWriter, _ *http.Request, _ *servedNode) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok"))
	return nil
}

// pods tells those of the pods that are bound to the node that are to be told.
func (a *apiServer) pods(told func(*corev1.Pod) bool) nodeHandler {
	return func(w http.ResponseWriter, r *http.Request, node *servedNode) error {
		bound, err := currentPods(r.Context(), a.live, a.links, node.name, a.clock.Now())
		if err != nil {
			return failure("Cannot list pods", err)
		}
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{}}
		for i := range bound {
			if told(&bound[i]) {
				list.Items = append(list.Items, bound[i])
			}
		}
		return writeJSON(w, list)
	}
}

// wantedRunning says whether the pod runs, and home wants it to.
func wantedRunning(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp.IsZero()
}

func writeJSON(w http.ResponseWriter, answer any) error {
	body, err := json.Marshal(answer)
	if err != nil {
		return failure("Cannot encode the answer", err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
	return nil
}

// currentPods returns the pods that are bound to the virtual node, with their statuses as their peer tells them. What we
// bring home comes back to our cache some time later, and others may have seen it by then: whoever waited for a pod to run
// finds that it does.
func currentPods(
	ctx context.Context, reader client.Reader, links *peers.Links, node string, now time.Time,
) ([]corev1.Pod, error) {
	pods, err := podsOn(ctx, reader, node, metav1.NamespaceAll)
	if err != nil {
		return nil, err
	}
	link, linked := links.Get(peerOf(node))
	if !linked {
		return pods, nil
	}
	for i := range pods {
		if status, differs := newStatus(link, &pods[i], now); differs {
			pods[i].Status = status // the list is ours, though what its pods point to is the cache's
		}
	}
	return pods, nil
}

// newStatus returns the status that the home pod is about to get, if its peer may have told some. To find that out costs
// more than to look at the pod, so it is done only for those on their way to be ready.
func newStatus(link *peers.Link, pod *corev1.Pod, now time.Time) (corev1.PodStatus, bool) {
	if terminal(pod) || isReady(pod) {
		return corev1.PodStatus{}, false
	}
	seen := look(link, pod.Namespace, pod.Name)
	if !seen.answers || seen.shadow == nil || seen.shadow.Status.Pod == nil {
		return corev1.PodStatus{}, false
	}
	status, err := offload.Inbound(pod, seen.shadow, nil, now)
	status.PodIP, status.PodIPs = pod.Status.PodIP, pod.Status.PodIPs // they are not ours to translate here
	return status, err == nil                                         // another pod of the name, or what makes no sense, tells nothing
}
