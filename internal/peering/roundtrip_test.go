// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"math"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/hanse-dev/hanse/api/v1alpha1"
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
	start := time.Unix(1e9, 0)
	shown := roundTripShown{roundTrip{20 * ms, 8 * ms}, start}
	for name, test := range map[string]struct {
		shown roundTripShown
		known roundTrip
		after time.Duration
		moves bool
	}{
		"not measured since the link is new":       {shown, roundTrip{}, time.Hour, false},
		"a little longer":                          {shown, roundTrip{24 * ms, 8 * ms}, time.Hour, false},
		"much longer":                              {shown, roundTrip{26 * ms, 8 * ms}, time.Second, true},
		"much shorter":                             {shown, roundTrip{14 * ms, 8 * ms}, time.Second, true},
		"varies a little less":                     {shown, roundTrip{20 * ms, 4 * ms}, time.Hour, false},
		"varies much less":                         {shown, roundTrip{20 * ms, ms}, time.Second, true},
		"varies much more":                         {shown, roundTrip{20 * ms, 14 * ms}, time.Second, true},
		"of long ones five milliseconds are few":   {roundTripShown{roundTrip{80 * ms, 8 * ms}, start}, roundTrip{88 * ms, 8 * ms}, time.Hour, false},
		"of short ones five are many":              {roundTripShown{roundTrip{ms, ms}, start}, roundTrip{7 * ms, ms}, time.Second, true},
		"and two, but nobody is told at once":      {roundTripShown{roundTrip{ms, ms}, start}, roundTrip{3 * ms, ms}, restTime - 1, false},
		"and is told later":                        {roundTripShown{roundTrip{ms, ms}, start}, roundTrip{3 * ms, ms}, restTime, true},
		"less than one is told to nobody":          {roundTripShown{roundTrip{ms, ms}, start}, roundTrip{1900 * us, ms}, time.Hour, false},
		"what another process has shown, likewise": {roundTripShown{roundTrip{ms, ms}, time.Time{}}, roundTrip{3 * ms, ms}, 0, true},
		"the first one":                            {roundTripShown{}, roundTrip{us * 300, us * 200}, 0, true},
		"shown by a version without the variance":  {roundTripShown{roundTrip{mean: 20 * ms}, start}, roundTrip{20 * ms, ms}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			now := start.Add(test.after)
			want := test.shown
			if test.moves {
				want = roundTripShown{test.known, now}
			}
			if got := test.shown.next(test.known, now); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestRoundTripIsShownRounded(t *testing.T) {
	const us = time.Microsecond
	for name, test := range map[string]struct{ known, want roundTrip }{
		"nothing is known":                       {},
		"to a tenth of a millisecond":            {roundTrip{12340 * us, 6170 * us}, roundTrip{12300 * us, 6200 * us}},
		"none is so short that it seems unknown": {roundTrip{us, 0}, roundTrip{100 * us, 100 * us}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (roundTripShown{}).next(test.known, time.Time{}); got.roundTrip != test.want {
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
	// The first probe was of 10 ms, and so was the one after it.
	if status.RoundTripTime.Duration != 10*ms || status.RoundTripDeviation.Duration != 5*ms {
		t.Errorf("got %v and %v", status.RoundTripTime, status.RoundTripDeviation)
	}
	if _, after := told(t); after != before+1 {
		t.Errorf("%d round trips were counted", after-before)
	}
	w.expectGauge(0.010)

	w.roundTrip = 50 * ms
	w.clock.Step(time.Hour)
	w.reconcile()
	w.expectGauge(0.020)
	if status := w.peer().Status; status.RoundTripTime.Duration != 20*ms || status.RoundTripDeviation.Duration != 13800*time.Microsecond {
		t.Errorf("got %v and %v", status.RoundTripTime, status.RoundTripDeviation)
	}

	w.remote.RemoveCredentials()
	w.clock.Step(time.Hour)
	w.reconcile()
	w.expectGauge(0)
	if status := w.peer().Status; status.RoundTripTime != nil || status.RoundTripDeviation != nil {
		t.Errorf("without a link there is still %v and %v", status.RoundTripTime, status.RoundTripDeviation)
	}
	w.joinBy("their-invitation")
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
