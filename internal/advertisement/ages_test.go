package advertisement

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

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

func TestAgeIsThatOfTheLastHelloAndGoesWithThePeer(t *testing.T) {
	w := newWorld(t)
	peer := w.peer(v1alpha1.RoleProvider)
	w.offered()
	w.reconcile(w.receiver)
	w.clock.Step(90 * time.Second)
	w.reconcile(w.receiver)
	w.expect(map[string]float64{"hamburg": 90}, gathered(t, w.receiver.ages))

	w.get(w.home, peer)
	w.delete(w.home, peer)
	w.reconcile(w.receiver)
	w.expect(map[string]float64{}, gathered(t, w.receiver.ages))
	w.expect(0, len(w.receiver.policies.heard))
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
