package peering

import (
	"cmp"
	"context"
	"errors"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

const (
	// firstRetry is how soon a peer that did not answer is probed again. The time doubles with every failure.
	firstRetry = time.Second
	// lastRetry bounds the time between two attempts.
	lastRetry = 30 * time.Second
	// retryJitter keeps peers from being probed in step, as a share of the time between two attempts.
	retryJitter = 0.2
	// probesPerSecond bounds how many peers are probed in a second while all are well: with more than that in a
	// ProbePeriod, each is probed less often. What is urgent about a peer, its virtual node knows long before a probe.
	probesPerSecond = 10
)

// probeStep asks a provider from time to time to introduce itself, and measures how near the provider is.
type probeStep struct {
	*deps

	transfers *semaphore.Weighted // how many samples may be read at the same time
	peers     func() int          // how many peers there are
}

// Reconcile implements step. Credentials in a namespace that is not ours are nobody's.
func (c *probeStep) Reconcile(ctx context.Context, o *observation) (result, error) {
	p := &o.contact.probe
	switch {
	case o.deleted():
		return result{}, nil
	case !o.peer.HasRole(v1alpha1.RoleProvider) || o.tenant == tenantTaken:
		c.links.Close(o.peer.Name)
		*p = probe{}
		return result{}, nil
	case o.namespace == nil:
		return result{}, nil
	case o.tenant != tenantReady:
		return result{again: o.now.Add(settlePause)}, nil
	}
	if disputed(o.node, p) {
		p.due = time.Time{}
	}
	config := *c.config
	config.ProbePeriod = max(config.ProbePeriod, spread(c.peers()))
	before := *p
	p.ask(ctx, c.links, o.peer, config)
	if p.interrupted() {
		err := p.err
		*p = before
		p.due = o.now // the next look is with new credentials
		return result{}, err
	}
	c.measure(ctx, o.peer, p)
	p.choose(&o.peer.Status, c.config.Clock.Now())
	show(smoothedRoundTrip, o.peer.Name, p.roundTrip.mean.Seconds())
	show(measuredBandwidth, o.peer.Name, float64(p.bandwidth.rate))
	return result{again: p.due}, nil
}

// spread returns how often each of so many peers may be probed.
func spread(peers int) time.Duration { return time.Duration(peers) * time.Second / probesPerSecond }

// disputed reports whether the virtual node of the peer shows another answer than the last probe to the question whether
// the peer can be reached: `hanse kubelet` has streams open there, and notices at once when they break.
func disputed(node *corev1.Node, p *probe) bool {
	return node != nil && p.link != nil && v1alpha1.IsCutOff(node) != errors.Is(p.err, peers.ErrUnreachable)
}

// A probe is how the last probe of one peer went, and when the next one is due.
type probe struct {
	link  Link
	hello peers.ClusterInfo
	err   error
	// tombstone is what a peer that forbids us everything has left for us to find.
	tombstone string
	// unknownAt is when the peer was first found not to know us any more, zero while it does.
	unknownAt time.Time
	failures  int
	due       time.Time
	roundTrip roundTrip
	shown     roundTripShown
	bandwidth bandwidth
}

// ask probes the peer if that is due or the link is a new one. While all is well, that is one request to the peer.
func (p *probe) ask(ctx context.Context, links Links, peer *v1alpha1.Peer, config Config) {
	if !peer.Protocol().Identity {
		config.ProbePeriod = max(config.ProbePeriod, agentlessPeriod)
	}
	link, err := links.Ensure(ctx, peer)
	isNew := link != p.link
	if p.err = cmp.Or(err, p.err); !isNew && config.Clock.Now().Before(p.due) {
		return
	}
	if isNew {
		p.link, p.failures, p.roundTrip = link, 0, roundTrip{}
	}
	hello := peers.ClusterInfo{}
	if err == nil {
		hello, err = clusterInfoOf(ctx, peer, link, config)
	}
	if isNew && err == nil {
		hello, err = clusterInfoOf(ctx, peer, link, config) // the first one paid for the handshakes too
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

func (p *probe) conclude(hello peers.ClusterInfo, err error, config Config) {
	p.hello, p.err, p.tombstone = hello, err, ""
	pause := config.ProbePeriod
	if err == nil {
		p.failures = 0
		p.roundTrip = p.roundTrip.with(hello.RoundTrip)
		roundTrips.Observe(hello.RoundTrip.Seconds())
	} else {
		pause = min(firstRetry<<min(p.failures, 10), lastRetry)
		p.failures++
	}
	switch {
	case !errors.Is(err, peers.ErrUnauthorized):
		p.unknownAt = time.Time{}
	case p.unknownAt.IsZero():
		p.unknownAt = config.Clock.Now()
	}
	p.due = config.Clock.Now().Add(wait.Jitter(pause, retryJitter))
}

// interrupted reports whether the probe says nothing about the peer, because we ourselves ended it.
func (p *probe) interrupted() bool {
	return errors.Is(p.err, peers.ErrClosed) || errors.Is(p.err, context.Canceled)
}
