// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

// gauges scrapes what the publisher or the receiver tells of each peer: metric, peer → value.
func (w *world) gauges() map[string]map[string]float64 {
	w.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(w.publisher); err != nil {
		w.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		w.Fatal(err)
	}
	values := map[string]map[string]float64{}
	for _, family := range families {
		values[family.GetName()] = map[string]float64{}
		for _, metric := range family.GetMetric() {
			values[family.GetName()][metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
		}
	}
	return values
}

func TestMetricsOfConsumers(t *testing.T) {
	w := newWorld(t)
	hamburg := w.peer(v1alpha1.RoleConsumer)
	w.second("kiel", nil)
	w.node("a", "4")
	w.pod("own", "hamburg", "500m")
	w.pod("stranger", "nobody", "1")
	w.publish("hamburg")
	w.Clock.Step(30 * time.Second)
	w.publish("kiel")

	w.expect(map[string]map[string]float64{
		"hanse_advertisement_sent_age_seconds": {"hamburg": 30, "kiel": 0},
		"hanse_offered_cpu_cores":              {"hamburg": 3, "kiel": 2.5},
		"hanse_offered_memory_bytes":           {"hamburg": 8 << 30, "kiel": 8 << 30},
		"hanse_offered_pods":                   {"hamburg": 9, "kiel": 8},
		"hanse_used_cpu_cores":                 {"hamburg": 0.5, "kiel": 0},
		"hanse_used_memory_bytes":              {"hamburg": 0, "kiel": 0},
		"hanse_used_pods":                      {"hamburg": 1, "kiel": 0},
	}, w.gauges())

	// What is denied is not offered, but may be used.
	w.policies.say(policy.Outgoing, policy.Decision{Outcome: policy.Deny}, nil)
	w.publisher.onPolicies()
	w.Clock.Step(2 * time.Second)
	told := w.ours()
	w.publish("hamburg")
	w.publisher.capacity.take(told, true)
	w.expect([]string{"kiel"}, slices.Sorted(maps.Keys(w.gauges()["hanse_offered_pods"])))
	w.expect([]string{"hamburg", "kiel"}, slices.Sorted(maps.Keys(w.gauges()["hanse_used_pods"])))

	w.Home.Remove(hamburg)
	w.publish("hamburg")
	w.expect([]string{"kiel"}, slices.Sorted(maps.Keys(w.gauges()["hanse_used_pods"])))
}

// gathered returns the values of a metric by its one label.
func gathered(t *testing.T, collector prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(collector); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			label := ""
			if labels := metric.GetLabel(); len(labels) > 0 {
				label = labels[0].GetValue()
			}
			values[label] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
	}
	return values
}

func TestAgeIsThatOfTheLastRenewalAndGoesWithThePeer(t *testing.T) {
	w := newWorld(t)
	peer := w.peer(v1alpha1.RoleProvider)
	w.offered()
	w.reconcile(w.receiver)
	w.Clock.Step(90 * time.Second)
	w.reconcile(w.receiver)
	w.expect(map[string]float64{"hamburg": 90}, gathered(t, w.receiver))

	w.Home.Get(peer, "", peer.Name)
	w.Home.Remove(peer)
	w.Home.Remove(w.held()) // as Kubernetes does, because the Peer owns it
	w.reconcile(w.receiver)
	w.expect(map[string]float64{}, gathered(t, w.receiver))
	w.expect(0, len(w.receiver.known.peers()))
}

func TestAnswersAreCountedOnce(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.policies.say(policy.Incoming, denied, nil)
	refusals := func() float64 { return gathered(t, refused)[v1alpha1.ReasonRefusedByPolicy] }
	taken := func() float64 { return gathered(t, accepted)[""] }
	before, took := refusals(), taken()
	w.offered()
	w.reconcile(w.receiver)
	w.reconcile(w.receiver)
	w.expect(before+1, refusals())
	w.expect(took, taken())

	w.policiesSay(policy.Decision{Outcome: policy.Allow}, nil)
	w.reconcile(w.receiver)
	w.reconcile(w.receiver)
	w.expect(took+1, taken())
}
