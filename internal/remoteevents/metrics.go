// SPDX-License-Identifier: Apache-2.0

package remoteevents

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	written = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hanse_remote_events_total",
		Help: "Events of remote objects that were written as events of those at home.",
	})
	dropped = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hanse_remote_events_dropped_total",
		Help: "Events of remote objects that were not written at home, by what was exceeded: object, peer, queue; or error.",
	}, []string{"limit"})
)

func init() { //nolint:gochecknoinits // the registry of controller-runtime is global, as its documentation has it
	metrics.Registry.MustRegister(written, dropped)
}
