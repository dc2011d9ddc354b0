// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/trust"
)

// notes are what a broker counts of its members, by what passes through it. They begin anew with each manager, and say since when they
// count. There is no more in them than there are members, and Messages by which one asks another.
type notes struct {
	mu      sync.Mutex
	changed func() // called when there is something new
	since   time.Time
	members map[string]*noted // id → what was counted
	asked   map[question]*asked
	asking  map[client.ObjectKey]question // Message → what it asks
}

// noted is what was counted of one member.
type noted struct {
	marks      v1alpha1.MemberMarks
	sequence   int64         // of its last introduction
	introduced time.Time     // when that came, zero if it was before us
	offerTimes time.Duration // of all offers together
}

// A question is what one member asks another.
type question struct {
	kind     trust.StatementType
	from, to string
	sequence int64
}

// asked is how a question stands.
type asked struct {
	at, until time.Time
	answered  bool
	// refused says that it was refused, or what the same Message has asked before.
	refused bool
}

// start tells a controller when there is something new.
func (n *notes) start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changed = func() { queue.AddAfter(everyMember, lookSoon) } // much passes at a time
	return nil
}

// relayed notes a statement that now lies where it is read, and which that Message says.
func (n *notes) relayed(message client.ObjectKey, said *trust.Statement, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.begin(now)
	switch said.Type {
	case trust.Introduction:
		n.introduce(said, now)
	case trust.Quote, trust.Request, trust.HandOver:
		if until, err := untilAnswered(said); err == nil {
			n.ask(message, said, until, now)
		}
	case trust.Offer, trust.Acknowledgement, trust.HandOverAnswer:
		if to, yes, err := answerIn(said); err == nil {
			n.answer(to, yes, now)
		}
	case trust.Release:
		n.drop(message, now)
	case trust.Marks, trust.Account: // which members do not say to each other through it
	}
	if n.changed != nil {
		n.changed()
	}
}

// untilAnswered is until when an answer to the question counts.
func untilAnswered(said *trust.Statement) (time.Time, error) {
	if said.Type != trust.Quote {
		return said.Expires, nil
	}
	body, err := exchange.ReadSignedQuote(said.Body)
	if err != nil {
		return time.Time{}, err
	}
	return body.Quote.Deadline.Time, nil
}

// answerIn is which question the statement answers, and whether with yes.
func answerIn(said *trust.Statement) (to question, yes bool, err error) {
	to = question{from: said.To, to: said.From}
	switch said.Type {
	case trust.Offer:
		body, err := exchange.ReadSignedOffer(said.Body)
		if err != nil {
			return to, false, err
		}
		to.kind, to.sequence, yes = trust.Quote, body.Quote, isFor(body)
	case trust.Acknowledgement:
		body, err := exchange.ReadSignedAnswer(said.Body)
		if err != nil {
			return to, false, err
		}
		to.kind, to.sequence, yes = trust.Request, body.Request, body.Acknowledged
	default:
		body := trust.HandOverResponse{}
		if err := said.Read(&body); err != nil {
			return to, false, err
		}
		to.kind, to.sequence, yes = trust.HandOver, body.Request, body.Invitation != ""
	}
	return to, yes, nil
}

// takenBack notes that the Message says nothing any more.
func (n *notes) takenBack(message client.ObjectKey, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drop(message, now)
}

// marks are those of the members of these ids, and of them alone: what was counted of others is forgotten.
func (n *notes) marks(ids map[string]bool, now time.Time) map[string]v1alpha1.MemberMarks {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.begin(now)
	for message, q := range n.asking {
		if a := n.asked[q]; !a.until.After(now) {
			n.drop(message, now)
		}
	}
	for id := range n.members {
		if !ids[id] {
			delete(n.members, id)
		}
	}
	all := map[string]v1alpha1.MemberMarks{}
	for id := range ids {
		all[id] = *n.of(id, now).marks.DeepCopy()
	}
	return all
}

func (n *notes) begin(now time.Time) {
	if n.since.IsZero() {
		n.since, n.members = now, map[string]*noted{}
		n.asked, n.asking = map[question]*asked{}, map[client.ObjectKey]question{}
	}
}

// isOld reports whether a statement was made before anything was counted: it may have been answered then.
func (n *notes) isOld(sequence int64) bool { return time.Unix(0, sequence).Before(n.since) }

func (n *notes) of(id string, now time.Time) *noted {
	if n.members[id] == nil {
		n.members[id] = &noted{marks: v1alpha1.MemberMarks{Since: metav1.NewTime(now.UTC().Truncate(time.Second))}}
	}
	return n.members[id]
}

func (n *notes) introduce(said *trust.Statement, now time.Time) {
	of := n.of(said.From, now)
	if said.Sequence <= of.sequence { // the same again
		return
	}
	first := of.sequence == 0
	of.sequence = said.Sequence
	if first && n.isOld(said.Sequence) {
		return
	}
	if !of.introduced.IsZero() {
		gap := (now.Sub(of.introduced) + time.Minute - 1).Truncate(time.Minute)
		if longest := of.marks.LongestGap; gap > 0 && (longest == nil || gap > longest.Duration) {
			of.marks.LongestGap = &metav1.Duration{Duration: gap}
		}
	}
	of.introduced = now
}

// ask notes a question that is to be answered until then.
func (n *notes) ask(message client.ObjectKey, said *trust.Statement, until, now time.Time) {
	q := question{said.Type, said.From, said.To, said.Sequence}
	before, there := n.asking[message]
	if there && before == q {
		return
	}
	again := there && n.asked[before].refused
	n.drop(message, now)
	_, elsewhere := n.asked[q] // the name of a Message is not signed: two may ask the same
	if elsewhere || q.from == q.to || n.isOld(q.sequence) || !until.After(now) {
		return
	}
	n.asking[message], n.asked[q] = q, &asked{at: now, until: until, refused: again}
}

// answer notes the answer to a question: yes or no.
func (n *notes) answer(q question, yes bool, now time.Time) {
	a := n.asked[q]
	if a == nil || a.answered || !a.until.After(now) {
		return
	}
	a.answered = true
	again := a.refused
	a.refused = !yes
	of := n.of(q.to, now)
	switch {
	case q.kind == trust.Quote:
		of.offered(yes, now.Sub(a.at))
	case q.kind == trust.Request:
		of.answered(yes)
	case yes || !again:
		of.handedOver(yes)
	}
}

// drop closes what the Message asks, if anything. If there was no answer that counts, unless there was no time for one, or the question was
// taken back at once.
func (n *notes) drop(message client.ObjectKey, now time.Time) {
	q, there := n.asking[message]
	if !there {
		return
	}
	a := n.asked[q]
	delete(n.asking, message)
	delete(n.asked, q)
	if a.answered || a.until.Sub(a.at) < leastToAnswer || now.Sub(a.at) < a.until.Sub(now) {
		return
	}
	marks := &n.of(q.to, now).marks
	count := map[trust.StatementType]*int32{trust.Quote: &marks.Quotes, trust.Request: &marks.Requests, trust.HandOver: &marks.HandOvers}[q.kind]
	*count = min(*count+1, v1alpha1.MaxMark)
}

func (of *noted) offered(something bool, after time.Duration) {
	if of.marks.Quotes == v1alpha1.MaxMark {
		return
	}
	of.marks.Quotes++
	of.marks.Offers++
	if !something {
		of.marks.Declined++
	}
	of.offerTimes += max(after, 0)
	mean := (of.offerTimes / time.Duration(of.marks.Offers)).Round(time.Millisecond)
	of.marks.OfferTime = &metav1.Duration{Duration: mean}
}

func (of *noted) answered(acknowledged bool) {
	if of.marks.Requests == v1alpha1.MaxMark {
		return
	}
	of.marks.Requests++
	if acknowledged {
		of.marks.Acknowledged++
	}
}

func (of *noted) handedOver(invited bool) {
	if of.marks.HandOvers == v1alpha1.MaxMark {
		return
	}
	of.marks.HandOvers++
	if invited {
		of.marks.Invitations++
	} else {
		of.marks.Refusals++
	}
}

// isFor reports whether the offer is for anything.
func isFor(offer *exchange.SignedOffer) bool {
	for i := range offer.Components {
		if offer.Components[i].Interest > 0 {
			return true
		}
	}
	return offer.Whole.Interest > 0
}
