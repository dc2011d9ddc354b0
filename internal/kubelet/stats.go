package kubelet

import (
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
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
func (a *apiServer) summary(w http.ResponseWriter, r *http.Request, node *servedNode) error {
	seen := node.usage.read(r.Context())
	if seen.failed && len(seen.stats.Pods) == 0 {
		return &refusal{status: http.StatusServiceUnavailable, message: "nothing is known of the pods of this node and what they use"}
	}
	return writeJSON(w, seen.stats)
}

// What /metrics/resource of a kubelet tells: metrics-server reads these names, and no others.
var (
	podLabels       = []string{"pod", "namespace"}
	containerLabels = []string{"container", "pod", "namespace"}

	nodeCPUSeconds  = prometheus.NewDesc("node_cpu_usage_seconds_total", "Cumulative cpu time consumed by the node in core-seconds", nil, nil)
	nodeMemoryBytes = prometheus.NewDesc("node_memory_working_set_bytes", "Current working set of the node in bytes", nil, nil)

	podCPUSeconds = prometheus.NewDesc("pod_cpu_usage_seconds_total",
		"Cumulative cpu time consumed by the pod in core-seconds", podLabels, nil)
	podMemoryBytes = prometheus.NewDesc("pod_memory_working_set_bytes",
		"Current working set of the pod in bytes", podLabels, nil)

	containerCPUSeconds = prometheus.NewDesc("container_cpu_usage_seconds_total",
		"Cumulative cpu time consumed by the container in core-seconds", containerLabels, nil)
	containerMemoryBytes = prometheus.NewDesc("container_memory_working_set_bytes",
		"Current working set of the container in bytes", containerLabels, nil)
	containerStartSeconds = prometheus.NewDesc("container_start_time_seconds",
		"Start time of the container since unix epoch in seconds", containerLabels, nil)

	resourceScrapeError = prometheus.NewDesc("resource_scrape_error",
		"1 if there was an error while getting container metrics, 0 otherwise", nil, nil)
)

// resourceMetrics tells what the node and its pods use, as metrics-server wants it.
func (a *apiServer) resourceMetrics(w http.ResponseWriter, r *http.Request, node *servedNode) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(resourceCollector{node.usage.read(r.Context())})
	promhttp.HandlerFor(ordered{registry}, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

// ordered tells the labels of containers in the order of containerLabels, and not in that of the alphabet. It means nothing
// to whoever reads labels by their names, but the suite of virtual-kubelet wants the pod's name to be the second.
type ordered struct{ prometheus.Gatherer }

// Gather implements prometheus.Gatherer.
func (o ordered) Gather() ([]*dto.MetricFamily, error) {
	families, err := o.Gatherer.Gather()
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if len(metric.GetLabel()) == len(containerLabels) {
				slices.SortFunc(metric.Label, func(a, b *dto.LabelPair) int {
					return slices.Index(containerLabels, a.GetName()) - slices.Index(containerLabels, b.GetName())
				})
			}
		}
	}
	return families, err
}

// resourceCollector collects the metrics of one reading.
type resourceCollector struct{ reading }

// Describe implements prometheus.Collector. What is collected is known only then.
func (c resourceCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c resourceCollector) Collect(to chan<- prometheus.Metric) {
	failed := 0.0
	if c.failed {
		failed = 1
	}
	to <- prometheus.MustNewConstMetric(resourceScrapeError, prometheus.GaugeValue, failed)
	if len(c.stats.Pods) == 0 {
		return
	}
	c.collect(to, nodeCPUSeconds, nodeMemoryBytes, c.stats.Node.usageStats)
	for i := range c.stats.Pods {
		pod := &c.stats.Pods[i]
		name, namespace := pod.PodRef.Name, pod.PodRef.Namespace
		c.collect(to, podCPUSeconds, podMemoryBytes, pod.usageStats, name, namespace)
		for j := range pod.Containers {
			container := &pod.Containers[j]
			c.collect(to, containerCPUSeconds, containerMemoryBytes, container.usageStats, container.Name, name, namespace)
			start := float64(container.StartTime.UnixNano()) / float64(time.Second)
			to <- prometheus.MustNewConstMetric(containerStartSeconds, prometheus.GaugeValue, start, container.Name, name, namespace)
		}
	}
}

// collect tells what was consumed, as of then, also where nothing is told yet of memory: metrics-server leaves out pods
// of which it does not know both, and whoever else reads a counter wants to know that it was zero at the start.
func (c resourceCollector) collect(
	to chan<- prometheus.Metric, cpu, memory *prometheus.Desc, used usageStats, labels ...string,
) {
	if used.CPU != nil {
		seconds := float64(used.CPU.UsageCoreNanoSeconds) / nano
		to <- prometheus.NewMetricWithTimestamp(used.CPU.Time.Time,
			prometheus.MustNewConstMetric(cpu, prometheus.CounterValue, seconds, labels...))
	}
	if used.Memory != nil {
		to <- prometheus.NewMetricWithTimestamp(used.Memory.Time.Time,
			prometheus.MustNewConstMetric(memory, prometheus.GaugeValue, float64(used.Memory.WorkingSetBytes), labels...))
	}
}
