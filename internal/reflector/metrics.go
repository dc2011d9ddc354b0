package reflector

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var copiesWritten = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "hanse_reflection_writes_total",
	Help: "Copies of what pods refer to that were written at peers, by kind and verb: create, update, delete.",
}, []string{"kind", "verb"})

func init() { //nolint:gochecknoinits // the registry of controller-runtime is global, as its documentation has it
	metrics.Registry.MustRegister(copiesWritten)
}
