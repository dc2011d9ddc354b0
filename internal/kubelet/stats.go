package kubelet

import (
	"math"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

type usageStats struct {
	CPU    cpuStats    `json:"cpu"`
	Memory memoryStats `json:"memory"`
}

type cpuStats struct {
	Time                 metav1.Time `json:"time"`
	UsageNanoCores       uint64      `json:"usageNanoCores"`
	UsageCoreNanoSeconds uint64      `json:"usageCoreNanoSeconds"`
}

type memoryStats struct {
	Time            metav1.Time `json:"time"`
	WorkingSetBytes uint64      `json:"workingSetBytes"`
}

// statsOf turns what was used into what is told, as of a time. Cores and seconds become the integers that a kubelet tells.
func statsOf(u usage, consumed float64, at time.Time) usageStats {
	when := metav1.NewTime(at)
	return usageStats{
		CPU: cpuStats{
			Time: when, UsageNanoCores: whole(u.cores * nano), UsageCoreNanoSeconds: whole(consumed * nano),
		},
		Memory: memoryStats{Time: when, WorkingSetBytes: whole(u.bytes)},
	}
}

const nano = 1e9

// whole returns the number as an integer, and the greatest one instead of anything beyond.
func whole(number float64) uint64 {
	if number >= math.MaxInt64 {
		return math.MaxInt64
	}
	return uint64(max(number, 0))
}

// summary tells what the node and its pods use.
func (a *apiServer) summary(w http.ResponseWriter, r *http.Request, node *servedNode) {
	seen := node.usage.read(r.Context())
	if seen.failed && len(seen.stats.Pods) == 0 {
		http.Error(w, "the peer of this node tells nothing of what pods use", http.StatusServiceUnavailable)
		return
	}
	writeJSON(w, r, seen.stats)
}
