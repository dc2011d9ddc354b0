package peering

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	roundTrips = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "hanse_peer_round_trip_seconds",
		Help:    "How long the API servers of peers took to answer a probe.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	})
	smoothedRoundTrip = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "hanse_peer_smoothed_round_trip_seconds",
		Help: "How long the API server of a peer takes to answer, smoothed.",
	}, []string{"peer"})
	measuredBandwidth = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "hanse_peer_bandwidth_bytes_per_second",
		Help: "How fast a sample came from the API server of a peer when it was read last.",
	}, []string{"peer"})
	renewals = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hanse_session_renewals_total", Help: "Sessions at providers that were renewed.",
	})
	renewalFailures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hanse_session_renewal_failures_total", Help: "Attempts to renew a session that failed, by reason.",
	}, []string{"reason"})
)

func init() { //nolint:gochecknoinits // the registry of controller-runtime is global, as its documentation has it
	metrics.Registry.MustRegister(roundTrips, smoothedRoundTrip, measuredBandwidth, renewals, renewalFailures)
}

// gauge tells the round trip to the peer, and nothing while it is not known.
func (r roundTrip) gauge(peer string) {
	if r.mean == 0 {
		smoothedRoundTrip.DeleteLabelValues(peer)
		return
	}
	smoothedRoundTrip.WithLabelValues(peer).Set(r.mean.Seconds())
}

// gauge tells how fast data comes from the peer, and nothing while it is not known.
func (b bandwidth) gauge(peer string) {
	if b.rate == 0 {
		measuredBandwidth.DeleteLabelValues(peer)
		return
	}
	measuredBandwidth.WithLabelValues(peer).Set(float64(b.rate))
}
