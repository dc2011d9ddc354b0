// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/hanse-dev/hanse/internal/kernel"
)

// tunnelBytes is what the status of Connections has rounded.
var tunnelBytes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "hanse_gateway_tunnel_bytes",
	Help: "Bytes that went through the tunnel to a peer since it was made, by direction: received, sent.",
}, []string{"peer", "direction"})

func init() { //nolint:gochecknoinits // the registry of controller-runtime is global, as its documentation has it
	metrics.Registry.MustRegister(tunnelBytes)
}

func countTunnel(s kernel.TunnelState) {
	tunnelBytes.WithLabelValues(s.Peer, "received").Set(float64(s.Received))
	tunnelBytes.WithLabelValues(s.Peer, "sent").Set(float64(s.Sent))
}
