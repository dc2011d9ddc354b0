// SPDX-License-Identifier: Apache-2.0

package market

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/sanitize"
	"github.com/hanse-dev/hanse/internal/trust"
)

const (
	// offerTime is for how long the offers of an auction are kept after its deadline: so that a winner that refuses, or that does not
	// answer, can be followed by the next. There is no other auction for the same meanwhile.
	offerTime = 2 * time.Minute
	// longestPause is the most time between the deadline of an auction that has led nowhere and the next one for the same.
	longestPause = 10 * time.Minute
	// newcomerPause is how soon after the beginning of an auction that has led nowhere there is another one for who was not asked in it.
	newcomerPause = 30 * time.Second
	// maxInvited is how many peers are asked for an offer.
	maxInvited = 100
	// noCurrency is what ISO 4217 has for none: who asks for nothing in it asks for nothing in any.
	noCurrency = "XXX"
	// underWay is what the user is told meanwhile.
	underWay = "Clusters are asked for offers: status.auction says which, and until when"
)

// place finds a place for every component: by what clusters advertise, and where that leads nowhere, or the user wants it so, by an
// auction. If there is none, or none yet, it says why, as the reason and the message of a condition.
func (s *scene) place(status *v1alpha1.ApplicationStatus) (reason, message string, err error) {
	when, _ := s.app.AuctionTerms()
	auction := s.currentAuction(status)
	if auction != nil && !s.isOver(auction) {
		status.Unsuitable = s.app.Status.Unsuitable
		return v1alpha1.ReasonAuction, underWay, nil
	}
	if err := s.look(); err != nil {
		return "", "", err
	}
	if auction != nil && s.award(status, auction) {
		return "", "", nil
	}
	why := "No peer can be asked for an offer"
	if when != v1alpha1.AuctionAlways {
		if why = s.assign(status); why == "" {
			return "", "", nil
		}
	}
	reason, message = s.callForOffers(status, why)
	return reason, message, nil
}

// callForOffers begins an auction, or says as place does why there is none now: why, where none is wanted, or nobody can be asked.
func (s *scene) callForOffers(status *v1alpha1.ApplicationStatus, why string) (reason, message string) {
	when, _ := s.app.AuctionTerms()
	last, offers := status.Auction, s.askable(status)
	switch {
	case when == v1alpha1.AuctionNever:
		return v1alpha1.ReasonNoClusterFits, why
	case s.awaitsNext(status, offers):
		return v1alpha1.ReasonNoClusterFits, fmt.Sprintf("%s. The next auction is at %s if nothing changes until then, and at once if the spec does",
			last.Message, nextAuction(last).UTC().Format(time.RFC3339))
	case len(offers) == 0:
		return v1alpha1.ReasonNoClusterFits, why
	case !s.fitsQuote():
		return v1alpha1.ReasonNoClusterFits, "The components are too much for a Quote that can be signed, of 16 KiB: name fewer, or shorter resources"
	default:
		s.open(status, offers)
		return v1alpha1.ReasonAuction, underWay
	}
}

// currentAuction is the auction for the application as it is now, nil if there is none, or it is forgotten.
func (s *scene) currentAuction(status *v1alpha1.ApplicationStatus) *v1alpha1.ApplicationAuction {
	when, _ := s.app.AuctionTerms()
	auction := status.Auction
	if when == v1alpha1.AuctionNever || auction == nil || auction.Generation != s.app.Generation || !auction.ExpirationTime.After(s.now) {
		return nil
	}
	return auction
}

// awaitsOffers reports whether offers still count.
func (s *scene) awaitsOffers(status *v1alpha1.ApplicationStatus) bool {
	auction := s.currentAuction(status)
	return auction != nil && auction.Phase != v1alpha1.AuctionClosed && s.app.DeletionTimestamp.IsZero()
}

// isOver reports whether no further offer counts: the deadline has come, or all have offered.
func (s *scene) isOver(auction *v1alpha1.ApplicationAuction) bool {
	return auction.Phase == v1alpha1.AuctionClosed || !auction.Deadline.After(s.now) || !slices.ContainsFunc(auction.Offers, func(o v1alpha1.AuctionOffer) bool {
		return !s.hasOffered(auction, o.Peer)
	})
}

// hasOffered reports whether the peer has answered in this round.
func (s *scene) hasOffered(auction *v1alpha1.ApplicationAuction, peer string) bool {
	quote := s.quotes[peer]
	return quote != nil && quote.Spec.Deadline.Equal(&auction.Deadline) && quote.Answered()
}

// askable are those who can be asked for an offer.
func (s *scene) askable(status *v1alpha1.ApplicationStatus) (offers []v1alpha1.AuctionOffer) {
	for _, row := range slices.Concat(s.rows, s.members) {
		if row.Peer != "" && row.Accepted && row.Open && s.forbids(unrefused(status), &row) == "" && len(offers) < maxInvited {
			offers = append(offers, v1alpha1.AuctionOffer{Peer: row.Peer, Broker: s.brokers[row.Peer]})
		}
	}
	return offers
}

// awaitsNext reports whether the last auction, which has led nowhere, is to be the last one for now. Clusters that were not asked in it, since they
// were not known yet or took nobody, are asked soon.
func (s *scene) awaitsNext(status *v1alpha1.ApplicationStatus, offers []v1alpha1.AuctionOffer) bool {
	last := status.Auction
	switch {
	case s.currentAuction(status) == nil:
		return s.repeats(last, offers) && last.NextTime.After(s.now)
	case asksMore(last, offers):
		return s.now.Sub(last.StartedAt.Time) < newcomerPause
	default:
		return true
	}
}

// asksMore reports whether one of those who can be asked was not asked in the last auction.
func asksMore(last *v1alpha1.ApplicationAuction, offers []v1alpha1.AuctionOffer) bool {
	asked := sets.New[string]()
	for i := range last.Offers {
		asked.Insert(last.Offers[i].Peer)
	}
	wereAll := len(last.Offers) < maxInvited // else others may be the first hundred by now
	return wereAll && slices.ContainsFunc(offers, func(o v1alpha1.AuctionOffer) bool { return !asked.Has(o.Peer) })
}

// repeats reports whether an auction would ask for what the last one has found no place for, and nobody who was not asked then.
func (s *scene) repeats(last *v1alpha1.ApplicationAuction, offers []v1alpha1.AuctionOffer) bool {
	if last == nil || last.Generation != s.app.Generation || last.Phase != v1alpha1.AuctionClosed || last.NextTime == nil || len(offers) == 0 {
		return false
	}
	hasWinner := slices.ContainsFunc(last.Offers, func(o v1alpha1.AuctionOffer) bool { return len(o.Won) > 0 })
	return !hasWinner && !asksMore(last, offers)
}

// pause is for how long after its deadline an auction has no successor, if it leads nowhere: for longer and longer while nothing changes.
func (s *scene) pause(last *v1alpha1.ApplicationAuction, offers []v1alpha1.AuctionOffer) time.Duration {
	if !s.repeats(last, offers) {
		return offerTime
	}
	return min(2*last.NextTime.Sub(last.Deadline.Time), longestPause)
}

// nextAuction is when another auction may be held after that one, if nothing changes.
func nextAuction(last *v1alpha1.ApplicationAuction) time.Time {
	if last.NextTime != nil {
		return last.NextTime.Time
	}
	return last.ExpirationTime.Time
}

// open begins an auction.
func (s *scene) open(status *v1alpha1.ApplicationStatus, offers []v1alpha1.AuctionOffer) {
	last := status.Auction
	_, patience := s.app.AuctionTerms()
	deadline := s.now.Add(patience + time.Second - 1).Truncate(time.Second) // as fine as times of objects are
	if last != nil && last.Deadline.Time.Equal(deadline) {                  // by its deadline a round is known
		deadline = deadline.Add(time.Second)
	}
	status.Auction = &v1alpha1.ApplicationAuction{
		Round: 1, Phase: v1alpha1.AuctionOpen, Generation: s.app.Generation, StartedAt: metav1.NewTime(s.now),
		Deadline: metav1.NewTime(deadline), ExpirationTime: metav1.NewTime(deadline.Add(offerTime)),
		NextTime: new(metav1.NewTime(deadline.Add(s.pause(last, offers)))), Offers: offers,
	}
	if last != nil {
		status.Auction.Round += last.Round
	}
}

// unrefused is the status without refusals: who has refused what it advertises may offer something else.
func unrefused(status *v1alpha1.ApplicationStatus) *v1alpha1.ApplicationStatus {
	without := *status
	without.Refusals = nil
	return &without
}

// quote is the Quote that each peer gets.
func (s *scene) quote(auction *v1alpha1.ApplicationAuction) *v1alpha1.QuoteSpec {
	spec := &v1alpha1.QuoteSpec{Application: s.identity(), Deadline: auction.Deadline, ExpirationTime: auction.ExpirationTime}
	for i := range s.app.Spec.Components {
		spec.Components = append(spec.Components, requested(&s.app.Spec.Components[i], s.app.Spec.Components[i].Replicas))
	}
	return spec
}

// fitsQuote reports whether peers can be asked for offers: what is asked of them is signed.
func (s *scene) fitsQuote() bool {
	return trust.Fits(exchange.SignedQuote{Name: offload.RequestName(s.app), Quote: *s.quote(&v1alpha1.ApplicationAuction{})})
}

// identity is by what providers know the application.
func (s *scene) identity() v1alpha1.RequestedApplication {
	return v1alpha1.RequestedApplication{UID: s.app.UID, Name: s.app.Namespace + "/" + s.app.Name}
}

// award closes the auction, if nobody has, and gives the components to who has offered the best for them. A winner that has refused
// since is out. It reports whether every component has a place.
func (s *scene) award(status *v1alpha1.ApplicationStatus, auction *v1alpha1.ApplicationAuction) bool {
	if auction.Phase != v1alpha1.AuctionClosed {
		s.close(status, auction)
	}
	for i := range auction.Offers {
		o := &auction.Offers[i]
		refusal := slices.IndexFunc(status.Refusals, func(r v1alpha1.ApplicationRefusal) bool { return r.Peer == o.Peer })
		if len(o.Won) > 0 && refusal >= 0 {
			record(o, exchange.Silence("It had won. "+status.Refusals[refusal].Message))
		}
		o.Won = nil
	}
	job := s.job(unrefused(status))
	job.Rows = slices.Concat(s.rows, s.members)
	found := exchange.Award(job, auction.Offers)
	if found.Rows == nil {
		auction.Message = "No offers take all components under spec.placement: status.auction says who has offered what"
		return false
	}
	s.put(status, &job, &found)
	for i := range auction.Offers {
		o := &auction.Offers[i]
		for _, c := range status.Components {
			if c.Peer == o.Peer {
				o.Won = append(o.Won, c.Name)
			}
		}
	}
	auction.Message = sanitize.Text(fmt.Sprintf("%s, for %s: the cheapest offers win, and of equal ones those with the most interest",
		where(status.Components), priceInWords(total(status.Components))), maxMessage)
	if job.Nearest {
		auction.Message = strings.Replace(auction.Message, "the cheapest offers win, and of equal", "the nearest offers win, of these the cheapest, and of equal", 1)
	}
	return true
}

func priceInWords(price *v1alpha1.Price) string {
	if price == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s %s an hour", exchange.Digits(price.Amount.AsDec()), price.Currency)
}

// close has no further offer count, and puts on record those that do. This cluster is one of those that offer.
func (s *scene) close(status *v1alpha1.ApplicationStatus, auction *v1alpha1.ApplicationAuction) {
	asked := s.quote(auction)
	for i := range auction.Offers {
		o := &auction.Offers[i]
		switch why := s.offerDoubts[o.Peer]; {
		case why != nil:
			record(o, exchange.Silence(why.Message))
		case s.hasOffered(auction, o.Peer):
			record(o, exchange.CheckOffer(asked, s.quotes[o.Peer]))
		default:
			record(o, exchange.Silence("It has made no offer by the deadline"))
		}
	}
	for i := range s.rows {
		if home := &s.rows[i]; home.Peer == "" && s.forbids(status, home) == "" {
			own := exchange.Bidder{Free: exchange.Offered(&home.Offer), Prices: home.Offer.Prices}
			auction.Offers = append(auction.Offers, own.OwnOffer(asked.Components))
		}
	}
	auction.Phase = v1alpha1.AuctionClosed
}

// record notes what that peer has offered.
func record(offer *v1alpha1.AuctionOffer, made v1alpha1.AuctionOffer) {
	made.Peer, made.Broker = offer.Peer, offer.Broker
	*offer = made
}

// maxPrice is the most that the Request at the peer may cost, given what it may cost so far: what was chosen, if the user names a
// ceiling, or the peer has won by that price. An offer holds until the Request is renewed.
func (s *scene) maxPrice(peer string, status *v1alpha1.ApplicationStatus, renewed bool, before *v1alpha1.Price) *v1alpha1.Price {
	auction := s.currentAuction(status)
	hasWon := auction != nil && slices.ContainsFunc(auction.Offers, func(o v1alpha1.AuctionOffer) bool { return o.Peer == peer && len(o.Won) > 0 })
	switch {
	case hasWon || s.ceiling() != nil: // if it costs more by now it is not what was chosen
		return s.priceAt(peer, status)
	case renewed:
		return nil
	default:
		return before
	}
}

// currency is the one in which nothing is written down.
func (s *scene) currency() string {
	if most := s.ceiling(); most != nil {
		return most.Currency
	}
	return noCurrency
}

// isOpen reports whether offers for the application may still come.
func isOpen(app *v1alpha1.Application) bool {
	return app.Status.Auction != nil && app.Status.Auction.Phase != v1alpha1.AuctionClosed
}

// isInvited reports whether an offer of the peer would count.
func isInvited(app *v1alpha1.Application, peer string) bool {
	return isOpen(app) && slices.ContainsFunc(app.Status.Auction.Offers, func(o v1alpha1.AuctionOffer) bool { return o.Peer == peer })
}

// untilOffers is how soon to look again while offers are awaited.
func (s *scene) untilOffers(status *v1alpha1.ApplicationStatus) time.Duration {
	left := status.Auction.Deadline.Sub(s.now)
	if s.uninvited {
		left = min(left, inviteAgain)
	}
	return max(left, time.Millisecond)
}
