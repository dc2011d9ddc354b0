package advertisement

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// What is told of each consumer is computed when somebody asks, so that nothing is left of a Peer that is gone.
var (
	sentAge = prometheus.NewDesc("hanse_advertisement_sent_age_seconds",
		"How long ago each consumer was told last what there is for it.", []string{"peer"}, nil)
	offeredTo = map[corev1.ResourceName]*prometheus.Desc{
		corev1.ResourceCPU:    prometheus.NewDesc("hanse_offered_cpu_cores", "Cores offered to each consumer, what it uses included.", []string{"peer"}, nil),
		corev1.ResourceMemory: prometheus.NewDesc("hanse_offered_memory_bytes", "Memory offered to each consumer, what it uses included.", []string{"peer"}, nil),
		corev1.ResourcePods:   prometheus.NewDesc("hanse_offered_pods", "Pods offered to each consumer, those that it has included.", []string{"peer"}, nil),
	}
	usedBy = map[corev1.ResourceName]*prometheus.Desc{
		corev1.ResourceCPU:    prometheus.NewDesc("hanse_used_cpu_cores", "Cores that the pods of each consumer ask for here.", []string{"peer"}, nil),
		corev1.ResourceMemory: prometheus.NewDesc("hanse_used_memory_bytes", "Memory that the pods of each consumer ask for here.", []string{"peer"}, nil),
		corev1.ResourcePods:   prometheus.NewDesc("hanse_used_pods", "Pods of each consumer that run here.", []string{"peer"}, nil),
	}
)

// Describe tells which metrics there are: the publisher is a prometheus.Collector.
func (p *Publisher) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- sentAge
	for _, of := range []map[corev1.ResourceName]*prometheus.Desc{offeredTo, usedBy} {
		for _, description := range of {
			descriptions <- description
		}
	}
}

// Collect computes what it tells of each consumer.
func (p *Publisher) Collect(collected chan<- prometheus.Metric) {
	now := p.clock.Now()
	for peer, newest := range p.capacity.book.all() {
		gauge(collected, sentAge, peer, now.Sub(newest.at).Seconds())
		gaugeEach(collected, offeredTo, peer, newest.availability)
	}
	there := p.capacity.look()
	for _, peer := range p.replies.peers() {
		gaugeEach(collected, usedBy, peer, there.Held(peer))
	}
}

func gaugeEach(collected chan<- prometheus.Metric, of map[corev1.ResourceName]*prometheus.Desc, peer string, list corev1.ResourceList) {
	for name, description := range of {
		quantity := list[name]
		gauge(collected, description, peer, quantity.AsApproximateFloat64())
	}
}

func gauge(collected chan<- prometheus.Metric, of *prometheus.Desc, peer string, value float64) {
	collected <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, value, peer)
}
