package peering

import (
	"math"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

const ms = time.Millisecond

func TestRoundTripIsSmoothed(t *testing.T) {
	var r roundTrip
	for i, step := range []struct {
		measured time.Duration
		want     roundTrip
	}{
		{40 * ms, roundTrip{40 * ms, 20 * ms}},
		{40 * ms, roundTrip{40 * ms, 15 * ms}},
		{80 * ms, roundTrip{50 * ms, 21250 * time.Microsecond}}, // 15 + (40-15)/4
		{10 * ms, roundTrip{40 * ms, 25937500}},                 // 21.25 + (40-21.25)/4
	} {
		if r = r.with(step.measured); r != step.want {
			t.Fatalf("after measurement %d: got %v, want %v", i+1, r, step.want)
		}
	}
	for range 100 {
		r = r.with(7 * ms)
	}
	if r.mean.Round(roundTripUnit) != 7*ms || r.deviation > roundTripUnit {
		t.Errorf("a link that is always the same has %v", r)
	}
}

func TestRoundTripIsShownSteadily(t *testing.T) {
	const us = time.Microsecond
	shown := roundTrip{10 * ms, 4 * ms}
	for name, test := range map[string]struct{ shown, measured, want roundTrip }{
		"nothing is known":                        {},
		"the first one is rounded":                {roundTrip{}, roundTrip{12340 * us, 6170 * us}, roundTrip{12300 * us, 6200 * us}},
		"none is so short that it seems unknown":  {roundTrip{}, roundTrip{us, 0}, roundTrip{100 * us, 100 * us}},
		"not measured since the link is new":      {shown, roundTrip{}, shown},
		"a little longer":                         {shown, roundTrip{12 * ms, 4 * ms}, shown},
		"much longer":                             {shown, roundTrip{13 * ms, 4100 * us}, roundTrip{13 * ms, 4100 * us}},
		"much shorter":                            {shown, roundTrip{7 * ms, 4 * ms}, roundTrip{7 * ms, 4 * ms}},
		"varies a little less":                    {shown, roundTrip{10 * ms, 2 * ms}, shown},
		"varies much less":                        {shown, roundTrip{10100 * us, ms}, roundTrip{10100 * us, ms}},
		"varies much more":                        {shown, roundTrip{10 * ms, 7 * ms}, roundTrip{10 * ms, 7 * ms}},
		"of short ones a millisecond is nothing":  {roundTrip{ms, 100 * us}, roundTrip{1900 * us, ms}, roundTrip{ms, 100 * us}},
		"shown by a version without the variance": {roundTrip{mean: 10 * ms}, roundTrip{10 * ms, ms}, roundTrip{10 * ms, ms}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.measured.steady(test.shown); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestRoundTripOfAPeerIsToldAndForgotten(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleProvider))
	_, before := told(t)
	w.reconcile()
	status := w.peer().Status
	// The first greeting was of 10 ms, and so was the one after it.
	if status.RoundTripTime.Duration != 10*ms || status.RoundTripDeviation.Duration != 5*ms {
		t.Errorf("got %v and %v", status.RoundTripTime, status.RoundTripDeviation)
	}
	if _, after := told(t); after != before+1 {
		t.Errorf("%d round trips were counted", after-before)
	}
	w.expectGauge(0.010)

	w.links.link.hello.RoundTrip = 50 * ms
	w.clock.Step(time.Hour)
	w.reconcile()
	w.expectGauge(0.020)
	if status := w.peer().Status; status.RoundTripTime.Duration != 20*ms || status.RoundTripDeviation.Duration != 13800*time.Microsecond {
		t.Errorf("got %v and %v", status.RoundTripTime, status.RoundTripDeviation)
	}

	w.links.err = peers.ErrCredentialsMissing
	w.clock.Step(time.Hour)
	w.reconcile()
	w.expectGauge(0)
	if status := w.peer().Status; status.RoundTripTime != nil || status.RoundTripDeviation != nil {
		t.Errorf("without a link there is still %v and %v", status.RoundTripTime, status.RoundTripDeviation)
	}
	w.links.err = nil
	w.clock.Step(time.Hour)
	w.reconcile()
	w.expectGauge(0.050)
	w.remove(w.peer())
	peer := w.peer()
	peer.Finalizers = nil
	w.update(peer)
	w.reconcile()
	w.expectGauge(0)
}

// expectGauge compares what is told of the peer, 0 for nothing.
func (w *world) expectGauge(seconds float64) {
	w.t.Helper()
	if got, _ := told(w.t); math.Abs(got-seconds) > 1e-9 {
		w.t.Errorf("the gauge says %g, want %g", got, seconds)
	}
}

// told returns what the metrics say: the gauge of the peer, and how many round trips were counted.
func told(t *testing.T) (gauge float64, count uint64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			switch family.GetName() {
			case "hanse_peer_smoothed_round_trip_seconds":
				if metric.GetLabel()[0].GetValue() == "hamburg" {
					gauge = metric.GetGauge().GetValue()
				}
			case "hanse_peer_round_trip_seconds":
				count = metric.GetHistogram().GetSampleCount()
			}
		}
	}
	return gauge, count
}
