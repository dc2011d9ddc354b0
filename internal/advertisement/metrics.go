package advertisement

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	sent = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hanse_advertisements_sent_total",
		Help: "Advertisements written for consumers, by kind: full (new terms) or partial (a hello, or another availability).",
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
