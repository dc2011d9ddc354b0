// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	shadowPodsCreated = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hanse_kubelet_shadowpods_created_total",
		Help: "ShadowPods created at peers.",
	})
	statusesWritten = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hanse_kubelet_pod_status_writes_total",
		Help: "Writes of the status of home pods.",
	})
	podsDrained = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hanse_kubelet_pods_drained_total",
		Help: "Pods that drains of virtual nodes asked to go, by what came of it: gone, or stayed (for now).",
	}, []string{"outcome"})
	streamsOpen = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "hanse_kubelet_streams",
		Help: "Streams that the kubelet API serves now, by kind: logs, exec, attach, portForward.",
	}, []string{"kind"})
)

func init() { //nolint:gochecknoinits // the registry of controller-runtime is global, as its documentation has it
	metrics.Registry.MustRegister(shadowPodsCreated, statusesWritten, podsDrained, streamsOpen)
}
