package advertisement

import (
	"strconv"
	"time"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

const (
	// annotationReceived is when, by our own clock, the message that the copy holds came in. A copy that does not carry
	// it was never accepted.
	annotationReceived = "hanse.dev/received"
	// annotationFullSequence is the sequence of the newest message that changed the terms of the offer. The provider is
	// owed an answer to it.
	annotationFullSequence = "hanse.dev/full-sequence"
)

// record is what the copy itself must remember of how it came about, since nothing else does.
type record struct {
	received     time.Time // zero if the spec of the copy was never accepted
	fullSequence int64
}

func (r record) accepted() bool { return !r.received.IsZero() }

// take enters an accepted message. One that was taken before does not count as heard again.
func (r record) take(previous, offer *v1alpha1.AdvertisementSpec, now time.Time) record {
	if previous == nil || offer.Sequence > previous.Sequence {
		r.received = now.Truncate(time.Second).UTC()
	}
	if previous == nil || !exchange.SameTerms(previous, offer) {
		r.fullSequence = offer.Sequence
	}
	return r
}

func recordOf(ad *v1alpha1.Advertisement) record {
	received, err := time.Parse(time.RFC3339, ad.Annotations[annotationReceived])
	if err != nil {
		return record{}
	}
	// What cannot be read counts as unanswered from the start, which costs nothing.
	full, _ := strconv.ParseInt(ad.Annotations[annotationFullSequence], 10, 64)
	return record{received: received, fullSequence: full}
}

// store writes the record onto the copy.
func (r record) store(ad *v1alpha1.Advertisement) {
	delete(ad.Annotations, annotationReceived)
	delete(ad.Annotations, annotationFullSequence)
	if !r.accepted() {
		return
	}
	if ad.Annotations == nil {
		ad.Annotations = map[string]string{}
	}
	ad.Annotations[annotationReceived] = r.received.Format(time.RFC3339)
	ad.Annotations[annotationFullSequence] = strconv.FormatInt(r.fullSequence, 10)
}
