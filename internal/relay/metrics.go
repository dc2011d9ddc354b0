// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var relayedBytes = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "hanse_gateway_relayed_bytes_total",
	Help: "Bytes that a peer sent to be passed on to others, by result: passed, dropped because they exceed spec.network.relayBandwidth.",
}, []string{"peer", "result"})

func init() { //nolint:gochecknoinits // the registry of controller-runtime is global, as its documentation has it
	metrics.Registry.MustRegister(relayedBytes)
}

// counts are the counters of one peer.
type counts struct{ passed, dropped prometheus.Counter }

func countsOf(peer string) counts {
	return counts{relayedBytes.WithLabelValues(peer, "passed"), relayedBytes.WithLabelValues(peer, "dropped")}
}
