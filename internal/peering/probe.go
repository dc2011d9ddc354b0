package peering

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

const (
	// firstRetry is how soon a peer that did not answer is greeted again. The time doubles with every failure.
	firstRetry = time.Second
	// lastRetry bounds the time between two attempts.
	lastRetry = 30 * time.Second
	// retryJitter keeps peers from being greeted in step, as a share of the time between two attempts.
	retryJitter = 0.2
	// credentialsPeriod is how long a link that works may go on with credentials that are not the newest. To compare them
	// takes a request to our own API server.
	credentialsPeriod = 5 * time.Minute
)

// A Link is a link to a peer, as far as this package needs it.
type Link interface {
	// Hello asks the peer to introduce itself.
	Hello(ctx context.Context) (peers.Hello, error)
	// Tombstone returns what the peer has left for us to find after it has parted from us by force.
	Tombstone(ctx context.Context) (string, error)
	// Server is where the peer's API server is.
	Server() string
	// Invitation is the id of the invitation by which we joined, "" if the link was made by hand.
	Invitation() string
	// TenantNamespace is our namespace over there.
	TenantNamespace() string
	// Client reads and writes at the peer.
	Client() client.Client
}

// Links gives the links to peers.
type Links interface {
	// Ensure returns the link to the peer, made from its newest credentials: the same one as long as they are the same.
	Ensure(ctx context.Context, peer *v1alpha1.Peer) (Link, error)
	// Bandwidth measures how fast data comes over the link to the peer, in bytes per second.
	Bandwidth(ctx context.Context, peer string) (int64, error)
	// Close ends the link to the peer.
	Close(peer string)
}

// OverLinks makes Links of those of package peers.
func OverLinks(links *peers.Links) Links { return overLinks{links} }

type overLinks struct{ *peers.Links }

func (o overLinks) Ensure(ctx context.Context, peer *v1alpha1.Peer) (Link, error) {
	link, err := o.Links.Ensure(ctx, peer)
	if err != nil {
		return nil, err
	}
	return link, nil
}

func (o overLinks) Bandwidth(ctx context.Context, peer string) (int64, error) {
	link, open := o.Get(peer)
	if !open {
		return 0, peers.ErrClosed
	}
	return link.Bandwidth(ctx)
}

// A probe is how the last greeting of one peer went, and when the next one is due.
type probe struct {
	link  Link
	hello peers.Hello
	err   error
	// tombstone is what a peer that forbids us everything has left for us to find.
	tombstone string
	failures  int
	due       time.Time
	// fresh is until when the credentials of a link that works need not be compared.
	fresh     time.Time
	roundTrip roundTrip
	shown     roundTripShown
	bandwidth bandwidth
}

// greet greets the peer if that is due or the link is a new one. While all is well, that is one request.
func (p *probe) greet(ctx context.Context, links Links, peer *v1alpha1.Peer, config Config) {
	if peer.Agentless() {
		config.ProbePeriod = max(config.ProbePeriod, agentlessPeriod)
	}
	now := config.Clock.Now()
	early := now.Before(p.due)
	if !early && now.Before(p.fresh) && p.greetAgain(ctx, peer, config) {
		return
	}
	link, err := links.Ensure(ctx, peer)
	switch {
	case err != nil:
		if !early || p.link != nil {
			p.conclude(peers.Hello{}, err, config)
		}
		p.link, p.err, p.roundTrip = nil, err, roundTrip{}
	case p.link != link || !early:
		p.fresh = now.Add(credentialsPeriod)
		p.greetOver(ctx, link, peer, config)
	}
}

// greetOver greets the peer over the link, which may be a new one.
func (p *probe) greetOver(ctx context.Context, link Link, peer *v1alpha1.Peer, config Config) {
	isNew := p.link != link
	if isNew {
		p.link, p.failures, p.roundTrip = link, 0, roundTrip{}
	}
	hello, err := greeting(ctx, peer, link, config)
	if isNew && err == nil {
		hello, err = greeting(ctx, peer, link, config) // the first one paid for the handshakes too
	}
	p.conclude(hello, err, config)
	if errors.Is(err, peers.ErrForbidden) {
		p.tombstone = tombstoneAt(ctx, link)
	}
}

// greetAgain greets the peer over the link that there is. It reports whether that says how the peer is: where the peer
// takes exception to us, newer credentials may help.
func (p *probe) greetAgain(ctx context.Context, peer *v1alpha1.Peer, config Config) bool {
	hello, err := greeting(ctx, peer, p.link, config)
	if err != nil && !errors.Is(err, peers.ErrUnreachable) {
		return false
	}
	p.conclude(hello, err, config)
	return true
}

// tombstoneAt returns the tombstone that can be read over the link, or "". Most peers have none, and the rest is asked
// again with the next probe.
func tombstoneAt(ctx context.Context, link Link) string {
	text, err := link.Tombstone(ctx)
	if err != nil {
		return ""
	}
	return text
}

func (p *probe) conclude(hello peers.Hello, err error, config Config) {
	p.hello, p.err, p.tombstone = hello, err, ""
	pause := config.ProbePeriod
	if err == nil {
		p.failures = 0
		p.roundTrip = p.roundTrip.with(hello.RoundTrip)
		roundTrips.Observe(hello.RoundTrip.Seconds())
	} else {
		pause = min(firstRetry<<min(p.failures, 10), lastRetry)
		p.failures++
		p.fresh = time.Time{}
	}
	p.due = config.Clock.Now().Add(wait.Jitter(pause, retryJitter))
}

// interrupted reports whether the probe says nothing about the peer, because we ourselves ended it.
func (p *probe) interrupted() bool {
	return errors.Is(p.err, peers.ErrClosed) || errors.Is(p.err, context.Canceled)
}
