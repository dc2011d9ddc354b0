// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// MaxMarked is how many members one statement has marks of. So many always fit.
	MaxMarked = 48
	// maxGap bounds a gap, and maxOfferTime the time of an offer: a Quote holds for a day at most.
	maxGap       = 366 * 24 * time.Hour
	maxOfferTime = 24 * time.Hour
)

// Marks is the body of a statement by which a broker says what it has counted of its members.
type Marks struct {
	// Members are the marks of each, by its id.
	Members map[string]v1alpha1.MemberMarks `json:"members"`
}

// ReadMarks reads what the broker of that id says, in a statement that holds until then. It says nothing of itself.
func ReadMarks(body []byte, broker string, until time.Time) (*Marks, error) {
	marks := &Marks{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, marks); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	if len(marks.Members) > MaxMarked {
		return nil, fmt.Errorf("body.members: there are %d, and may be %d", len(marks.Members), MaxMarked)
	}
	for id, of := range marks.Members {
		field := fmt.Sprintf("body.members[%s]", quoted(id))
		if id == broker || len(id) > 30 || len(validation.IsDNS1123Label(id)) > 0 {
			return nil, fmt.Errorf("%s is no member of the broker", field)
		}
		if err := judgeMarks(field, &of, until); err != nil {
			return nil, err
		}
	}
	return marks, nil
}

// judgeMarks says what is wrong with the marks of one member.
func judgeMarks(field string, of *v1alpha1.MemberMarks, until time.Time) error {
	if of.Since.Unix() <= 0 || of.Since.After(until) {
		return fmt.Errorf("%s.since: it must be a time that is over", field)
	}
	return cmp.Or(
		judgeSpan(field+".longestGap", of.LongestGap, maxGap),
		judgeSpan(field+".offerTime", of.OfferTime, maxOfferTime),
		judgeShare(field+".quotes", int64(of.Quotes), v1alpha1.MaxMark),
		judgeShare(field+".offers", int64(of.Offers), int64(of.Quotes)),
		judgeShare(field+".declined", int64(of.Declined), int64(of.Offers)),
		judgeShare(field+".requests", int64(of.Requests), v1alpha1.MaxMark),
		judgeShare(field+".acknowledged", int64(of.Acknowledged), int64(of.Requests)),
		judgeShare(field+".handOvers", int64(of.HandOvers), v1alpha1.MaxMark),
		judgeShare(field+".invitations", int64(of.Invitations), int64(of.HandOvers)),
		judgeShare(field+".refusals", int64(of.Refusals), int64(of.HandOvers)-int64(of.Invitations)),
	)
}

func judgeSpan(field string, span *metav1.Duration, most time.Duration) error {
	if span != nil && (span.Duration < 0 || span.Duration > most) {
		return fmt.Errorf("%s is %s: it must be between 0 and %s", field, span.Duration, most)
	}
	return nil
}

// judgeShare checks a count of what there is so much of at most.
func judgeShare(field string, count, most int64) error {
	if count < 0 || count > most {
		return fmt.Errorf("%s is %d: it must be between 0 and %d", field, count, most)
	}
	return nil
}
