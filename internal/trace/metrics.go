// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	recorded = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hanse_trace_spans_recorded_total",
		Help: "Spans that were recorded.",
	})
	sent = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hanse_trace_spans_sent_total",
		Help: "Spans that the collector took. What it did not take is lost.",
	})
)

func init() { //nolint:gochecknoinits // the registry of controller-runtime is global, as its documentation has it
	metrics.Registry.MustRegister(recorded, sent)
}
