package agentless

import (
	"encoding/json"
	"maps"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/internal/offload"
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
	next := record{Pod: now.UID, Restarts: maps.Clone(r.Restarts)}
	ended := int32(0)
	for _, other := range others {
		if r.Pod == "" || other.UID == r.Pod {
			ended++
			next.Restarts = offload.AddRestarts(next.Restarts, &other.Status)
		}
	}
	ended = max(ended, 1) // it may have gone before anybody could read its restarts
	next.Recreations = ended + min(max(r.Recreations, 0), math.MaxInt32-ended)
	return next
}
