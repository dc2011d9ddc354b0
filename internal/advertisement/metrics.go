// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

var (
	sent = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hanse_advertisements_sent_total",
		Help: "Advertisements written for consumers, by kind: full (new terms) or partial (a renewal, or another availability).",
	}, []string{"kind"})
	received = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hanse_advertisements_received_total",
		Help: "Changes of advertisements that were seen at providers.",
	})
	accepted = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hanse_advertisements_accepted_total",
		Help: "Messages of providers that were accepted and kept.",
	})
	refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hanse_advertisements_refused_total",
		Help: "Refusals that providers were told, by reason.",
	}, []string{"reason"})
)

func init() { //nolint:gochecknoinits // the registry of controller-runtime is global, as its documentation has it
	metrics.Registry.MustRegister(sent, received, accepted, refused)
}

// What concerns one peer is computed when somebody asks, so that nothing is left of a Peer that is gone.
var (
	receivedAge = prometheus.NewDesc("hanse_advertisement_age_seconds",
		"How long ago the newest message of the provider came in that we keep a copy of.", []string{"peer"}, nil)
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
	ads, _ := listed(p.client) // without them there is nothing to tell
	for i := range ads {
		ad := &ads[i]
		if peer, known := ad.Labels[v1alpha1.LabelPeer]; known && p.isOurs(ad) {
			gauge(collected, sentAge, peer, now.Sub(ad.Spec.Timestamp.Time).Seconds())
			gaugeEach(collected, offeredTo, peer, ad.Spec.Availability)
		}
	}
	there := p.capacity.look()
	for _, peer := range p.answers.peers() {
		gaugeEach(collected, usedBy, peer, there.Held(peer))
	}
}

// Describe tells which metrics there are: the receiver is a prometheus.Collector too.
func (r *Receiver) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- receivedAge }

// Collect computes how long ago each provider was heard of.
func (r *Receiver) Collect(collected chan<- prometheus.Metric) {
	ads, _ := listed(r.client)
	for i := range ads {
		ad := &ads[i]
		peer, known := ad.Labels[v1alpha1.LabelPeer]
		if of := recordOf(ad); known && r.isCopy(ad) && of.heard() {
			gauge(collected, receivedAge, peer, r.clock.Since(of.received).Seconds())
		}
	}
}

// listed returns all advertisements in this cluster, our own offers among them. The caller must not change them.
func listed(reader client.Reader) ([]v1alpha1.Advertisement, error) {
	ads := &v1alpha1.AdvertisementList{}
	ctx := context.Background() //nolint:forbidigo // the cache answers, and a collector has no other
	if err := reader.List(ctx, ads, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list advertisements: %w", err)
	}
	return ads.Items, nil
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
