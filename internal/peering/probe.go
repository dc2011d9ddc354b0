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
	// retryPeriods bounds the time between two attempts, in probe periods.
	retryPeriods = 3
	// retryJitter keeps peers from being greeted in step, as a share of the time between two attempts.
	retryJitter = 0.2
	// roundTripWeight is how much a new measurement counts against those before.
	roundTripWeight = 0.25
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

// A probe is how the last greeting of one peer went, and when the next one is due.
type probe struct {
	link  Link
	hello peers.Hello
	err   error
	// tombstone is what a peer that forbids us everything has left for us to find.
	tombstone string
	failures  int
	due       time.Time
	// roundTrip is the smoothed round-trip time, 0 until it was measured.
	roundTrip time.Duration
}

// greet greets the peer if that is due or the link is a new one.
func (p *probe) greet(ctx context.Context, links Links, peer *v1alpha1.Peer, config Config) {
	early := config.Clock.Now().Before(p.due)
	link, err := links.Ensure(ctx, peer)
	if err != nil {
		if !early || p.link != nil {
			p.conclude(peers.Hello{}, err, config)
		}
		p.link, p.err, p.roundTrip = nil, err, 0
		return
	}
	isNew := p.link != link
	if !isNew && early {
		return
	}
	if isNew {
		p.link, p.failures, p.roundTrip = link, 0, 0
	}
	hello, err := greeting(ctx, peer, link, config)
	if isNew && err == nil {
		hello, err = greeting(ctx, peer, link, config) // the first one paid for the handshakes too
	}
	if peer.Agentless() {
		config.ProbePeriod = max(config.ProbePeriod, agentlessPeriod)
	}
	p.conclude(hello, err, config)
	if errors.Is(err, peers.ErrForbidden) {
		p.tombstone = tombstoneAt(ctx, link)
	}
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
		p.measure(hello.RoundTrip)
	} else {
		pause = min(firstRetry<<min(p.failures, 10), retryPeriods*config.ProbePeriod)
		p.failures++
	}
	p.due = config.Clock.Now().Add(wait.Jitter(pause, retryJitter))
}

func (p *probe) measure(roundTrip time.Duration) {
	if p.roundTrip == 0 {
		p.roundTrip = roundTrip
		return
	}
	p.roundTrip += time.Duration(roundTripWeight * float64(roundTrip-p.roundTrip))
}

// interrupted reports whether the probe says nothing about the peer, because we ourselves ended it.
func (p *probe) interrupted() bool {
	return errors.Is(p.err, peers.ErrClosed) || errors.Is(p.err, context.Canceled)
}

// steadyRoundTrip returns what to show for a round-trip time: what is shown already, unless the measured one differs
// by so much that somebody would care. 0 is unknown.
func steadyRoundTrip(shown, measured time.Duration) time.Duration {
	difference := (measured - shown).Abs()
	if measured == 0 || shown != 0 && (difference <= time.Millisecond || difference*4 <= shown) {
		return shown
	}
	return max(measured.Round(100*time.Microsecond), 100*time.Microsecond)
}
