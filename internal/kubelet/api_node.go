package kubelet

import (
	"encoding/json"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// health says that somebody answers for the node.
func (a *apiServer) health(w http.ResponseWriter, _ *http.Request, _ *servedNode) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok"))
}

// pods tells the pods that are bound to the node.
func (a *apiServer) pods(w http.ResponseWriter, r *http.Request, node *servedNode) {
	a.listPods(w, r, node, func(*corev1.Pod) bool { return true })
}

// runningPods tells those of them that run, and that home wants to run.
func (a *apiServer) runningPods(w http.ResponseWriter, r *http.Request, node *servedNode) {
	a.listPods(w, r, node, func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp.IsZero()
	})
}

func (a *apiServer) listPods(w http.ResponseWriter, r *http.Request, node *servedNode, keep func(*corev1.Pod) bool) {
	bound, err := currentPods(r.Context(), a.live, a.links, node.name)
	if err != nil {
		(&refusal{status: http.StatusInternalServerError, message: "Cannot list pods", err: err}).write(w, r)
		return
	}
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{}}
	for i := range bound {
		if keep(&bound[i]) {
			list.Items = append(list.Items, bound[i])
		}
	}
	writeJSON(w, r, list)
}

func writeJSON(w http.ResponseWriter, r *http.Request, answer any) {
	body, err := json.Marshal(answer)
	if err != nil {
		(&refusal{status: http.StatusInternalServerError, message: "Cannot encode the answer", err: err}).write(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}
