package peering

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// How much a new measurement counts against those before. RFC 6298 has the same weight for the deviation, and half of it
// for the mean, which it measures many times a second.
const (
	meanWeight      = 0.25
	deviationWeight = 0.25
)

// roundTripUnit is what shown times are rounded to.
const roundTripUnit = 100 * time.Microsecond

// A roundTrip is how long requests to a peer take, smoothed, and the mean deviation from that. Both are 0 until it was
// measured.
type roundTrip struct {
	mean, deviation time.Duration
}

// with returns what is known after one more measurement, as section 2 of RFC 6298 has it.
func (r roundTrip) with(measured time.Duration) roundTrip {
	if r.mean == 0 {
		return roundTrip{mean: measured, deviation: measured / 2}
	}
	difference := measured - r.mean
	return roundTrip{
		mean:      r.mean + weighted(meanWeight, difference),
		deviation: r.deviation + weighted(deviationWeight, difference.Abs()-r.deviation),
	}
}

func weighted(weight float64, d time.Duration) time.Duration {
	return time.Duration(weight * float64(d))
}

// steady returns what to show: what is shown already, unless one of the two has moved by so much that somebody would care.
func (r roundTrip) steady(shown roundTrip) roundTrip {
	unknown := r.mean == 0
	known := shown.mean != 0 && shown.deviation != 0
	if unknown || known && !shown.differs(shown.mean, r.mean) && !shown.differs(shown.deviation, r.deviation) {
		return shown
	}
	return roundTrip{mean: rounded(r.mean), deviation: rounded(r.deviation)}
}

// differs says whether two times differ by more than a millisecond and a quarter of the round trip.
func (r roundTrip) differs(a, b time.Duration) bool {
	difference := (a - b).Abs()
	return difference > time.Millisecond && difference*4 > r.mean
}

// rounded returns a time as it is shown. 0 is shown as unknown, so no time is that short.
func rounded(d time.Duration) time.Duration { return max(d.Round(roundTripUnit), roundTripUnit) }

// show puts the round trip into the status, and takes it out where there is no link.
func (p *probe) show(status *v1alpha1.PeerStatus) {
	if p.link == nil {
		status.RoundTripTime, status.RoundTripDeviation = nil, nil
		return
	}
	shown := p.roundTrip.steady(roundTrip{durationOf(status.RoundTripTime), durationOf(status.RoundTripDeviation)})
	status.RoundTripTime, status.RoundTripDeviation = shownDuration(shown.mean), shownDuration(shown.deviation)
}

func durationOf(d *metav1.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return d.Duration
}

func shownDuration(d time.Duration) *metav1.Duration {
	if d == 0 {
		return nil
	}
	return &metav1.Duration{Duration: d}
}
