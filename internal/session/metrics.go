package session

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	renewals = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hanse_session_renewals_total", Help: "Sessions at providers that were renewed.",
	})
	renewalFailures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hanse_session_renewal_failures_total", Help: "Attempts to renew a session that failed, by reason.",
	}, []string{"reason"})
)

func init() { metrics.Registry.MustRegister(renewals, renewalFailures) }
