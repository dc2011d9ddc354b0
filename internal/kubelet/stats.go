package kubelet

import (
	"math"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// summaryStats is what /stats/summary of a kubelet tells, as far as we know it.
type summaryStats struct {
	Node nodeStats  `json:"node"`
	Pods []podStats `json:"pods"`
}

type nodeStats struct {
	NodeName  string      `json:"nodeName"`
	StartTime metav1.Time `json:"startTime"`
	usageStats
}

type podStats struct {
	PodRef     podReference     `json:"podRef"`
	StartTime  metav1.Time      `json:"startTime"`
	Containers []containerStats `json:"containers"`
	usageStats
}

type podReference struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	UID       string `json:"uid"`
}

type containerStats struct {
	Name      string      `json:"name"`
	StartTime metav1.Time `json:"startTime"`
	usageStats
}

// usageStats is what something has consumed until a time, and what it used then if that is known.
type usageStats struct {
	CPU    *cpuStats    `json:"cpu,omitempty"`
	Memory *memoryStats `json:"memory,omitempty"`
}

type cpuStats struct {
	Time                 metav1.Time `json:"time"`
	UsageNanoCores       *uint64     `json:"usageNanoCores,omitempty"`
	UsageCoreNanoSeconds uint64      `json:"usageCoreNanoSeconds"`
}

type memoryStats struct {
	Time            metav1.Time `json:"time"`
	WorkingSetBytes uint64      `json:"workingSetBytes"`
}

// stats is what is told of the counter. Cores and seconds become the integers that a kubelet tells.
func (c *counter) stats() usageStats {
	when := metav1.NewTime(c.until)
	stats := usageStats{CPU: &cpuStats{Time: when, UsageCoreNanoSeconds: whole(c.consumed * nano)}}
	if c.used != nil {
		stats.CPU.UsageNanoCores = ptr.To(whole(c.used.cores * nano))
		stats.Memory = &memoryStats{Time: when, WorkingSetBytes: whole(c.used.bytes)}
	}
	return stats
}

const nano = 1e9

// whole returns the number as an integer, and the greatest one instead of anything beyond.
func whole(number float64) uint64 {
	if number >= math.MaxInt64 {
		return math.MaxInt64
	}
	return uint64(max(number, 0))
}

// summary tells which pods of the node run, and what they and the node use.
func (a *apiServer) summary(w http.ResponseWriter, r *http.Request, node *servedNode) {
	seen := node.usage.read(r.Context())
	if seen.failed && len(seen.stats.Pods) == 0 {
		http.Error(w, "nothing is known of the pods of this node and what they use", http.StatusServiceUnavailable)
		return
	}
	writeJSON(w, r, seen.stats)
}
