// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"math"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"
)

// stats is what is told of the counter: nothing of memory where that is not known.
func (c *counter) stats() (*stats.CPUStats, *stats.MemoryStats) {
	when := metav1.NewTime(c.until)
	cpu := &stats.CPUStats{Time: when, UsageCoreNanoSeconds: whole(c.consumed * nano)}
	if c.used == nil {
		return cpu, nil
	}
	cpu.UsageNanoCores = whole(c.used.cores * nano)
	return cpu, &stats.MemoryStats{Time: when, WorkingSetBytes: whole(c.used.bytes)}
}

// nano turns cores and seconds into the integers that a kubelet tells.
const nano = 1e9

// whole returns the number as an integer, and the greatest one instead of anything beyond.
func whole(number float64) *uint64 {
	if number >= math.MaxInt64 {
		return ptr.To[uint64](math.MaxInt64)
	}
	return ptr.To(uint64(max(number, 0)))
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
	containerLabels = []string{"container", "pod", "namespace"}

	nodeDescs      = descsOf("node")
	podDescs       = descsOf("pod", "pod", "namespace")
	containerDescs = descsOf("container", containerLabels...)

	containerStartSeconds = prometheus.NewDesc("container_start_time_seconds",
		"Start time of the container since unix epoch in seconds", containerLabels, nil)

	resourceScrapeError = prometheus.NewDesc("resource_scrape_error",
		"1 if there was an error while getting container metrics, 0 otherwise", nil, nil)
)

// resourceDescs are the metrics of what something has consumed, and what it uses.
type resourceDescs struct{ cpu, memory *prometheus.Desc }

func descsOf(what string, labels ...string) resourceDescs {
	return resourceDescs{
		cpu: prometheus.NewDesc(what+"_cpu_usage_seconds_total",
			"Cumulative cpu time consumed by the "+what+" in core-seconds", labels, nil),
		memory: prometheus.NewDesc(what+"_memory_working_set_bytes", "Current working set of the "+what+" in bytes", labels, nil),
	}
}

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
	node := &c.stats.Node
	collect(to, nodeDescs, node.CPU, node.Memory)
	for i := range c.stats.Pods {
		pod := &c.stats.Pods[i]
		ofPod := []string{pod.PodRef.Name, pod.PodRef.Namespace}
		collect(to, podDescs, pod.CPU, pod.Memory, ofPod...)
		for j := range pod.Containers {
			container := &pod.Containers[j]
			labels := append([]string{container.Name}, ofPod...)
			collect(to, containerDescs, container.CPU, container.Memory, labels...)
			start := float64(container.StartTime.UnixNano()) / nano
			to <- prometheus.MustNewConstMetric(containerStartSeconds, prometheus.GaugeValue, start, labels...)
		}
	}
}

// collect tells what was consumed, as of then, also where nothing is told yet of memory: metrics-server leaves out pods
// of which it does not know both, and whoever else reads a counter wants to know that it was zero at the start.
func collect(
	to chan<- prometheus.Metric, as resourceDescs, cpu *stats.CPUStats, memory *stats.MemoryStats, labels ...string,
) {
	if cpu != nil {
		to <- prometheus.NewMetricWithTimestamp(cpu.Time.Time, prometheus.MustNewConstMetric(
			as.cpu, prometheus.CounterValue, float64(*cpu.UsageCoreNanoSeconds)/nano, labels...))
	}
	if memory != nil {
		to <- prometheus.NewMetricWithTimestamp(memory.Time.Time, prometheus.MustNewConstMetric(
			as.memory, prometheus.GaugeValue, float64(*memory.WorkingSetBytes), labels...))
	}
}
