package agentless

import (
	"encoding/json"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A record tells, in an annotation of what keeps the pods, of the pods that were there before the one that is now.
type record struct {
	// Pod is the UID of the pod that is now. It is empty as long as there was none before it.
	Pod types.UID `json:"pod,omitempty"`
	// Recreations is how many there were before.
	Recreations int32 `json:"recreations,omitempty"`
	// Restarts are those of their containers: name → how many.
	Restarts map[string]int32 `json:"restarts,omitempty"`
}

// recordOf reads the record. One that makes no sense is none.
func recordOf(annotations map[string]string) record {
	known := record{}
	if json.Unmarshal([]byte(annotations[annotationRecord]), &known) != nil {
		return record{}
	}
	return known
}

func (r record) text() (string, error) {
	text, err := json.Marshal(r)
	return string(text), err
}

// with returns the record once now is the pod that runs, and others are those of the same owner that still exist.
func (r record) with(now *corev1.Pod, others []*corev1.Pod) record {
	if now == nil || now.UID == r.Pod || r.Pod == "" && len(others) == 0 {
		return r
	}
	next := record{Pod: now.UID, Recreations: r.Recreations, Restarts: map[string]int32{}}
	for name, count := range r.Restarts {
		next.Restarts[name] = count
	}
	counted := false
	for _, other := range others {
		if r.Pod == "" || other.UID == r.Pod {
			next.Recreations = added(next.Recreations, 1)
			next.addRestarts(other)
			counted = true
		}
	}
	if !counted {
		next.Recreations = added(next.Recreations, 1) // it went before anybody could read its restarts
	}
	return next
}

func (r record) addRestarts(pod *corev1.Pod) {
	for _, containers := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range containers {
			if count := containers[i].RestartCount; count > 0 {
				r.Restarts[containers[i].Name] = added(r.Restarts[containers[i].Name], count)
			}
		}
	}
}

// added adds two counts that a peer claims.
func added(a, b int32) int32 {
	return int32(min(int64(max(a, 0))+int64(max(b, 0)), math.MaxInt32))
}
