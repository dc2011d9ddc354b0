// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// StatementsRefused counts what others have signed, or not, and what is not taken in.
var StatementsRefused = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "hanse_statements_refused_total",
	Help: "Statements of others that were not taken in, by the peer from which, or the broker through which, they came, and by reason.",
}, []string{"peer", "reason"})

func init() { //nolint:gochecknoinits // the registry of controller-runtime is global, as its documentation has it
	metrics.Registry.MustRegister(StatementsRefused)
}
