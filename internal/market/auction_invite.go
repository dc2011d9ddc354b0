// SPDX-License-Identifier: Apache-2.0

package market

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
)

const (
	// invitesAtOnce is how many peers are asked for an offer at the same time.
	invitesAtOnce = 32
	// inviteTime is for how long a peer may take to note a Quote: the others' offers are not looked at meanwhile.
	inviteTime = 2 * time.Second
	// inviteAgain is how soon a peer is asked again that could not be asked.
	inviteAgain = 5 * time.Second
)

// quotes are those of ours that are followed at peers.
var quotes = &peers.Subject{Example: &v1alpha1.Quote{}, MostObjects: v1alpha1.MaxQuotes, MostBytes: 128 << 10}

// hear notes what the peers have offered that were asked.
func (a *applications) hear(ctx context.Context, seen *scene) error {
	if !seen.awaitsOffers(&seen.app.Status) {
		return nil
	}
	for _, offer := range seen.app.Status.Auction.Offers {
		if offer.Broker == "" {
			if err := a.hearPeer(ctx, seen, offer.Peer); err != nil {
				return err
			}
		} else if quote := a.Members.Offer(ctx, offer.Broker, offer.Peer, offload.RequestName(seen.app)); quote != nil {
			seen.quotes[offer.Peer] = quote
		}
	}
	return nil
}

// hearPeer notes what the peer has offered, and whether that is believed.
func (a *applications) hearPeer(ctx context.Context, seen *scene, name string) error {
	quote, _ := a.quoteAt(name, seen.app)
	if quote == nil {
		return nil
	}
	peer, err := local.Find(ctx, a.Client, client.ObjectKey{Name: name}, &v1alpha1.Peer{})
	if err != nil || peer == nil {
		return err
	}
	seen.quotes[name] = quote.DeepCopy()
	seen.quotes[name].Spec.Signed = nil // what was asked is compared with it
	if seen.hasOffered(seen.app.Status.Auction, name) {
		if why := a.doubtOffer(peer, quote); why != nil {
			seen.offerDoubts[name] = why
		}
	}
	return nil
}

// quoteAt returns our Quote for the application at the peer, nil if there is none, and whether that is known.
func (a *applications) quoteAt(peer string, app *v1alpha1.Application) (there *v1alpha1.Quote, known bool) {
	mirror := a.follow(peer, quotes)
	if mirror == nil {
		return nil, false
	}
	object, _ := mirror.Named(offload.RequestName(app))
	there, _ = object.(*v1alpha1.Quote)
	return there, true
}

// invite asks the peers for offers that were not asked yet. One that cannot be asked is one that is silent.
func (a *applications) invite(ctx context.Context, seen *scene, status *v1alpha1.ApplicationStatus) {
	if !seen.awaitsOffers(status) {
		return
	}
	auction, spec := status.Auction, seen.quote(status.Auction)
	ctx, cancel := context.WithTimeout(ctx, min(inviteTime, max(auction.Deadline.Sub(seen.now), time.Millisecond)))
	defer cancel()
	group, failed := errgroup.Group{}, atomic.Bool{}
	group.SetLimit(invitesAtOnce)
	for _, offer := range auction.Offers {
		group.Go(func() error {
			err := a.inviteOne(ctx, seen.app, &offer, spec.DeepCopy())
			if err != nil {
				failed.Store(true)
				ctrl.LoggerFrom(ctx).Info("No Quote", "Peer", offer.Peer, "cause", err.Error())
			}
			return nil
		})
	}
	_ = group.Wait()
	seen.uninvited = failed.Load()
}

// inviteOne asks one for an offer, unless it was asked.
func (a *applications) inviteOne(ctx context.Context, app *v1alpha1.Application, offer *v1alpha1.AuctionOffer, spec *v1alpha1.QuoteSpec) error {
	name := offload.RequestName(app)
	if offer.Broker != "" {
		return a.Members.Quote(ctx, offer.Broker, offer.Peer, name, spec)
	}
	there, known := a.quoteAt(offer.Peer, app)
	if !known || there != nil && there.Spec.Deadline.Equal(&spec.Deadline) {
		return nil // when it is known what is there, this is looked at again
	}
	wanted := &v1alpha1.Quote{}
	if there != nil { // of an earlier round
		wanted = there.DeepCopy()
	}
	before := wanted.Spec.Signed
	wanted.Name, wanted.Spec = name, *spec
	if err := a.signQuote(ctx, offer.Peer, wanted, before); err != nil {
		return fmt.Errorf("sign the Quote: %w", err)
	}
	return a.sendQuote(ctx, offer.Peer, wanted)
}

// sendQuote makes the Quote, or changes the one that is there.
func (a *applications) sendQuote(ctx context.Context, peer string, wanted *v1alpha1.Quote) error {
	link, ok := a.Links.Get(peer)
	if !ok {
		return nil
	}
	wanted.Namespace = link.TenantNamespace()
	var err error
	if wanted.UID == "" {
		err = link.Client().Create(ctx, wanted)
	} else {
		err = link.Client().Update(ctx, wanted)
	}
	if local.IgnoreStale(err) != nil {
		return fmt.Errorf("ask for an offer: %w", err)
	}
	return nil
}

// tell has the user hear of an auction that begins or ends.
func (a *applications) tell(app *v1alpha1.Application, status *v1alpha1.ApplicationStatus) {
	was, is := app.Status.Auction, status.Auction
	if is == nil {
		return
	}
	if was == nil || was.Round != is.Round {
		a.Events.Eventf(app, nil, corev1.EventTypeNormal, v1alpha1.ReasonAuction, "Auction", "%d clusters are asked for offers until %s",
			len(is.Offers), is.Deadline.UTC().Format(time.TimeOnly))
		was = &v1alpha1.ApplicationAuction{}
	}
	if is.Phase == v1alpha1.AuctionClosed && is.Message != was.Message {
		a.Events.Eventf(app, nil, corev1.EventTypeNormal, v1alpha1.ReasonAuctionEnded, "Auction", "%s", is.Message)
	}
}
