// SPDX-License-Identifier: Apache-2.0

package policymaker

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/hanse-dev/hanse/internal/policy"
)

var (
	decisions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hanse_policy_decisions_total",
		Help: "Decisions of policies, by question and outcome: Allow, Deny, Pend, or Error (too slow, or no answer that makes sense).",
	}, []string{"question", "outcome"})
	durations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "hanse_policy_decision_duration_seconds",
		Help:    "How long policies took to decide, by question.",
		Buckets: prometheus.ExponentialBuckets(10e-6, 2, 15), // 10 µs to 164 ms
	}, []string{"question"})
	brokenModules = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "hanse_policy_modules_broken",
		Help: "Policy modules that cannot be used as they are, by question; unknown is that of ConfigMaps labelled with no question.",
	}, []string{"question"})
)

func init() { metrics.Registry.MustRegister(decisions, durations, brokenModules) }

// outcomeError is the outcome of a question that was not answered.
const outcomeError policy.Outcome = "Error"

// A question shows all its outcomes from the start.
func showOutcomes(question policy.Question) {
	durations.WithLabelValues(string(question))
	for _, outcome := range []policy.Outcome{policy.Allow, policy.Deny, policy.Pend, outcomeError} {
		decisions.WithLabelValues(string(question), string(outcome))
	}
}
