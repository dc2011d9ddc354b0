// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
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
	// credentialsPeriod is for how long a link that works goes on with the credentials that were read last, because to read
	// them takes a request to our own API server.
	credentialsPeriod = 5 * time.Minute
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
	case !o.uses() || o.tenant == tenantTaken:
		c.links.Close(o.peer.Name)
		*p = probe{}
		return result{}, nil
	case o.namespace == nil:
		return result{}, nil
	case o.tenant != tenantReady:
		return result{again: o.now.Add(settlePause)}, nil
	case p.link == nil && errors.Is(p.err, peers.ErrCredentialsMissing) && o.contact.session.without():
		return result{}, nil // the session step looks for the same Secret
	}
	if disputed(o.node, p) {
		p.due = time.Time{}
	}
	config := *c.config
	config.ProbePeriod = max(config.ProbePeriod, spread(c.peers()))
	before := *p
	p.ask(ctx, c.links, o.peer, config)
	if interrupted(p.err) {
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

// spread returns how often each of so many peers may be probed, or asked for.
func spread(peers int) time.Duration { return time.Duration(peers) * time.Second / probesPerSecond }

// disputed reports whether the virtual node of the peer shows another answer than the last probe to the question whether
// the peer can be reached: `hanse kubelet` has streams open there, and notices at once when they break.
func disputed(node *corev1.Node, p *probe) bool {
	return node != nil && p.link != nil && v1alpha1.IsCutOff(node) != errors.Is(p.err, peers.ErrUnreachable)
}

// A probe is how the last probe of one peer went, and when the next one is due.
type probe struct {
	link *peers.Link
	info peers.ClusterInfo
	err  error
	// asked is for which parts of the protocol the peer was asked: at an agentless one they need rights.
	asked v1alpha1.Protocol
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
func (p *probe) ask(ctx context.Context, links *peers.Links, peer *v1alpha1.Peer, config Config) {
	if !peer.Protocol().Identity {
		config.ProbePeriod = max(config.ProbePeriod, agentlessPeriod)
	}
	early, age := config.Clock.Now().Before(p.due), time.Duration(0)
	if !early && p.link != nil && p.err == nil {
		age = credentialsPeriod
	}
	link, err := links.EnsureWithin(ctx, peer, age)
	if p.err = cmp.Or(err, p.err); early && link == p.link {
		return
	}
	info, err := introduction(ctx, peer, link, err, config)
	if age > 0 && err != nil && !errors.Is(err, peers.ErrUnreachable) {
		link, err = links.Ensure(ctx, peer) // there may be newer credentials
		info, err = introduction(ctx, peer, link, err, config)
	}
	if link != p.link {
		p.link, p.failures, p.roundTrip = link, 0, roundTrip{}
		info, err = introduction(ctx, peer, link, err, config) // the first one paid for the handshakes too
	}
	p.conclude(info, err, config)
	p.asked = peer.Protocol()
	p.dropCopies(ctx, peer, config.ClusterID)
	if errors.Is(err, peers.ErrForbidden) {
		p.tombstone = tombstoneAt(ctx, link)
	}
}

// dropCopies deletes copies that are at an agentless peer from when it was to have some. What another home calls by the same id is not
// ours to delete.
func (p *probe) dropCopies(ctx context.Context, peer *v1alpha1.Peer, home string) {
	if p.err != nil || peer.Protocol().Copies || peer.Spec.ClusterID != v1alpha1.AgentlessClusterID(home, peer.Name) {
		return
	}
	if _, err := endCopies(ctx, peer, p.link); err != nil {
		ctrl.LoggerFrom(ctx).Info("Copies of ConfigMaps and Secrets at the peer cannot be deleted", "cause", err.Error())
	}
}

// introduction asks the peer to introduce itself, unless there is an error already.
func introduction(
	ctx context.Context, peer *v1alpha1.Peer, link *peers.Link, err error, config Config,
) (peers.ClusterInfo, error) {
	if err != nil {
		return peers.ClusterInfo{}, err
	}
	return clusterInfoOf(ctx, peer, link, config)
}

// tombstoneAt returns the tombstone that can be read over the link, or "". Most peers have none, and the rest is asked
// again with the next probe.
func tombstoneAt(ctx context.Context, link *peers.Link) string {
	text, err := link.Tombstone(ctx)
	if err != nil {
		return ""
	}
	return text
}

func (p *probe) conclude(info peers.ClusterInfo, err error, config Config) {
	p.info, p.err, p.tombstone = info, err, ""
	pause := config.ProbePeriod
	if err == nil {
		p.failures = 0
		p.roundTrip = p.roundTrip.with(info.RoundTrip)
		roundTrips.Observe(info.RoundTrip.Seconds())
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

// interrupted reports whether the error says nothing about the peer, because we ourselves ended the request.
func interrupted(err error) bool {
	return errors.Is(err, peers.ErrClosed) || errors.Is(err, context.Canceled)
}

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

// with returns what is known after one more measurement, as section 2 of RFC 6298 has it, but with the weight 1/4 for the mean
// too, which is not measured many times a second.
func (r roundTrip) with(measured time.Duration) roundTrip {
	if r.mean == 0 {
		return roundTrip{mean: measured, deviation: measured / 2}
	}
	difference := measured - r.mean
	return roundTrip{mean: r.mean + difference/4, deviation: r.deviation + (difference.Abs()-r.deviation)/4}
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

// choose decides what to show, now that the peer was probed. Another process may have shown something before us.
func (p *probe) choose(status *v1alpha1.PeerStatus, now time.Time) {
	p.shown.roundTrip = roundTrip{
		ptr.Deref(status.RoundTripTime, metav1.Duration{}).Duration, ptr.Deref(status.RoundTripDeviation, metav1.Duration{}).Duration,
	}
	p.shown = p.shown.next(p.roundTrip, now)
}

// show puts the round trip into the status, and takes it out where there is no link.
func (p *probe) show(status *v1alpha1.PeerStatus) {
	status.RoundTripTime, status.RoundTripDeviation = nil, nil
	if p.link != nil && p.shown.mean != 0 {
		status.RoundTripTime, status.RoundTripDeviation = &metav1.Duration{Duration: p.shown.mean}, &metav1.Duration{Duration: p.shown.deviation}
	}
}

// maxTransfers is from how many peers samples are read at the same time.
const maxTransfers = 2

func newTransfers() *semaphore.Weighted { return semaphore.NewWeighted(maxTransfers) }

// A bandwidth is how fast data comes from a peer, and when that is measured next.
type bandwidth struct {
	rate int64 // bytes per second as measured last, 0 if it is not known
	due  time.Time
}

// measure measures how fast data comes from the peer, if that is due, the peer is well, and few others are measured now:
// otherwise there is time with the next probe.
func (c *probeStep) measure(ctx context.Context, peer *v1alpha1.Peer, p *probe) {
	now, next := c.config.Clock.Now(), wait.Jitter(c.config.BandwidthInterval, retryJitter)
	b := &p.bandwidth
	if c.config.BandwidthInterval == 0 || p.link == nil || !peer.Protocol().Identity {
		b.rate = 0
		return
	}
	if shown := peer.Status.Bandwidth; b.due.IsZero() && shown != nil {
		*b = bandwidth{shown.Value(), now.Add(next)} // a restart is no reason to measure
	}
	if p.err != nil || now.Before(b.due) || !c.transfers.TryAcquire(1) {
		return
	}
	defer c.transfers.Release(1)
	var err error
	if b.rate, err = p.link.Bandwidth(ctx); err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("The bandwidth cannot be measured", "reason", err.Error())
	}
	b.due = c.config.Clock.Now().Add(next)
}

// show puts the bandwidth into the status. What is shown there already stays, unless it has moved by more than a quarter.
func (b bandwidth) show(status *v1alpha1.PeerStatus) {
	shown := status.Bandwidth
	switch {
	case b.rate == 0:
		status.Bandwidth = nil
	case shown == nil || max(b.rate-shown.Value(), shown.Value()-b.rate) > shown.Value()/4:
		status.Bandwidth = resource.NewQuantity(exchange.Rounded(b.rate), resource.DecimalSI)
	}
}

// sample is what a peer reads to measure how fast data comes from here: text that nothing on its way can compress by much.
var sample = sync.OnceValue(func() string {
	noise := make([]byte, base64.RawStdEncoding.DecodedLen(v1alpha1.BandwidthSampleSize))
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails; the same each time, so that it is written once
	return base64.RawStdEncoding.EncodeToString(noise)
})

var (
	roundTrips = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "hanse_peer_round_trip_seconds",
		Help:    "How long the API servers of peers took to answer a probe.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	})
	smoothedRoundTrip = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "hanse_peer_smoothed_round_trip_seconds",
		Help: "How long the API server of a peer takes to answer, smoothed.",
	}, []string{"peer"})
	measuredBandwidth = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "hanse_peer_bandwidth_bytes_per_second",
		Help: "How fast a sample came from the API server of a peer when it was read last.",
	}, []string{"peer"})
	renewals = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hanse_session_renewals_total", Help: "Sessions at providers that were renewed.",
	})
	renewalFailures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hanse_session_renewal_failures_total", Help: "Attempts to renew a session that failed, by reason.",
	}, []string{"reason"})
)

func init() { //nolint:gochecknoinits // the registry of controller-runtime is global, as its documentation has it
	metrics.Registry.MustRegister(roundTrips, smoothedRoundTrip, measuredBandwidth, renewals, renewalFailures)
}

// show tells the value for the peer, and nothing while it is 0, which stands for unknown.
func show(gauge *prometheus.GaugeVec, peer string, value float64) {
	if value == 0 {
		gauge.DeleteLabelValues(peer)
		return
	}
	gauge.WithLabelValues(peer).Set(value)
}
