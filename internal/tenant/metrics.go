// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var answered = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "hanse_requests_answered_total",
	Help: "Answers to Requests of consumers, by reason: Reserved is yes.",
}, []string{"reason"})

var quoted = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "hanse_quotes_answered_total",
	Help: "Answers to Quotes of consumers, by reason: Offered is an offer.",
}, []string{"reason"})

func init() { //nolint:gochecknoinits // the registry of controller-runtime is global, as its documentation has it
	metrics.Registry.MustRegister(answered, quoted)
}
