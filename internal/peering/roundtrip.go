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

// What of a round trip is worth telling: at once a move of more than largeMove, and what is more than smallMove if nothing
// else was shown for restTime.
const (
	largeMove = 5 * time.Millisecond
	smallMove = time.Millisecond
	restTime  = 10 * time.Minute
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

// A roundTripShown is what the status of a Peer says of the round trip, and since when. Whoever offers or looks for nearness
// acts on each change, so that one must mean something: times swing by milliseconds with whatever the machines do besides.
type roundTripShown struct {
	roundTrip
	at time.Time
}

// next returns what to show from now on: what is shown already, unless one of the two times has moved by a lot, or by
// less for which enough time has passed.
func (s roundTripShown) next(known roundTrip, now time.Time) roundTripShown {
	tolerated := smallMove
	if now.Sub(s.at) < restTime {
		tolerated = largeMove
	}
	isWhole := s.mean != 0 && s.deviation != 0
	if known.mean == 0 || isWhole && !known.differs(s.roundTrip, tolerated) {
		return s
	}
	return roundTripShown{roundTrip: roundTrip{mean: rounded(known.mean), deviation: rounded(known.deviation)}, at: now}
}

// differs says whether one of the two times is another than that by more than tolerated, and by more than a quarter of the
// round trip.
func (r roundTrip) differs(from roundTrip, tolerated time.Duration) bool {
	difference := max((r.mean - from.mean).Abs(), (r.deviation - from.deviation).Abs())
	return difference > tolerated && difference*4 > from.mean
}

// rounded returns a time as it is shown. 0 is shown as unknown, so no time is that short.
func rounded(d time.Duration) time.Duration { return max(d.Round(roundTripUnit), roundTripUnit) }

// choose decides what to show, now that the peer was greeted. Another process may have shown something before us.
func (p *probe) choose(status *v1alpha1.PeerStatus, now time.Time) {
	p.shown.roundTrip = roundTrip{durationOf(status.RoundTripTime), durationOf(status.RoundTripDeviation)}
	p.shown = p.shown.next(p.roundTrip, now)
}

// show puts the round trip into the status, and takes it out where there is no link.
func (p *probe) show(status *v1alpha1.PeerStatus) {
	if p.link == nil {
		status.RoundTripTime, status.RoundTripDeviation = nil, nil
		return
	}
	status.RoundTripTime, status.RoundTripDeviation = shownDuration(p.shown.mean), shownDuration(p.shown.deviation)
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
