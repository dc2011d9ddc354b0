// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/kernel"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/overlay"
	"github.com/hanse-dev/hanse/internal/relay"
	"github.com/hanse-dev/hanse/internal/topology"
)

const (
	// beat is how often it is asked whether there is something to do. What changes in between is done at once.
	beat = 200 * time.Millisecond
	// lookAfter is how often peers are dialled and the tunnels judged.
	lookAfter = time.Second
	// planAfter is how often the kernel is compared with the plan although nothing seems to have changed, and the key is read.
	planAfter = 10 * time.Second
	// retryAfter is how soon what failed is tried again.
	retryAfter = time.Second
	// redialAfter is how long an endpoint may take to bring back a peer that has fallen silent.
	redialAfter = 5 * time.Second
	// requestTimeout is how long a request to the API server may keep the tunnels waiting.
	requestTimeout = 2 * time.Second
)

const fieldOwner = client.FieldOwner("hanse-gateway")

// plane is what makes the kernel look like a plan: kernel.Gateway.
type plane interface {
	Apply(kernel.Identity, overlay.Layout) error
	Forward6() error
	Dial(now time.Time) (again time.Time, err error)
	Redial(peer string, now time.Time) error
	Tunnels() ([]kernel.TunnelState, error)
	Remove() error
}

// A Gateway is one gateway of this cluster, active or standing by.
type Gateway struct {
	config   Config
	client   client.Client // not from a cache
	reader   topology.Reader
	plane    plane
	lease    *lease
	names    *names
	probes   *prober
	forward  *forwarder
	relay    *relay.Relay
	departed topology.Departed
	dirty    atomic.Bool // something has changed since the last plan

	active current
}

// current is what an active gateway has made. It is thrown away when another one takes over.
type current struct {
	network   topology.Network
	layout    overlay.Layout
	conflicts []overlay.Conflict
	failed    error // why the kernel does not look like the layout
	identity  kernel.Identity
	rates     map[string]*rate     // peer → how much goes through its tunnel
	moves     map[string]moves     // peer → the endpoints from which it answered
	redialled map[string]time.Time // peer → when it was last given up at an endpoint
	announced bool
	planAt    time.Time // when to plan at the latest
	lookAt    time.Time
	dialAt    time.Time // when to dial peers that do not answer until then; zero if there are none
	complaint string    // what the log was last told
}

// New returns a gateway that makes the network of this process. It starts nothing.
func New(config Config, c client.Client, reader client.Reader, p plane) *Gateway {
	config.Default()
	g := &Gateway{
		config: config, client: c, reader: topology.Reader{Client: reader, Namespace: config.Namespace}, plane: p,
		probes: newProber(config.Clock), forward: newForwarder(), relay: relay.New(config.Clock.Now), departed: topology.Departed{Clock: config.Clock},
	}
	g.names = newNames(config.Clock, g.changed)
	g.lease = &lease{
		client: c, namespace: v1alpha1.NetworkNamespace(config.Namespace), self: config.Pod,
		duration: config.LeaseDuration, renewal: config.LeaseRenewal, clock: config.Clock,
	}
	return g
}

// SetupWithManager has the manager run the gateway.
func SetupWithManager(mgr ctrl.Manager, config Config, p plane) error {
	if err := config.Validate(); err != nil {
		return err
	}
	g := New(config, local.Uncached(mgr.GetClient(), mgr.GetAPIReader()), mgr.GetCache(), p)
	for _, run := range []func(context.Context) error{g.lease.Run, g.names.Run, g.probes.Run, g.Run} {
		if err := mgr.Add(manager.RunnableFunc(run)); err != nil {
			return err
		}
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return topology.Watch(ctx, mgr.GetCache(), g.changed) }))
}

// changed has a new plan made soon.
func (g *Gateway) changed() { g.dirty.Store(true) }

// Run does what an active gateway does as long as this is the one, until ctx ends.
func (g *Gateway) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := g.plane.Remove(); err != nil { // what a process before this one has left
		ctrl.LoggerFrom(ctx).Error(err, "Cannot remove what an earlier gateway has left")
	}
	ticker := g.config.Clock.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			g.handOver(context.WithoutCancel(ctx))
			g.stopServing()
			return g.plane.Remove()
		case <-ticker.C():
			g.complain(ctx, g.step(ctx))
		}
	}
}

// step does what is due.
func (g *Gateway) step(ctx context.Context) error {
	if !g.lease.held.Load() {
		return g.standBy(ctx)
	}
	now := g.config.Clock.Now()
	var failed []error
	if g.dirty.Swap(false) || !now.Before(g.active.planAt) {
		failed = append(failed, g.plan(ctx, now))
	}
	switch due := g.active.dialAt; {
	case !now.Before(g.active.lookAt):
		g.active.lookAt = now.Add(lookAfter)
		failed = append(failed, g.look(ctx, now))
	case !due.IsZero() && !now.Before(due):
		failed = append(failed, g.dial(now))
	}
	return errors.Join(failed...)
}

// dial says hello to peers that do not answer.
func (g *Gateway) dial(now time.Time) (err error) {
	g.active.dialAt, err = g.plane.Dial(now)
	return err
}

// complain logs an error unless that was the last thing said.
func (g *Gateway) complain(ctx context.Context, err error) {
	if err == nil {
		return
	}
	if text := err.Error(); text != g.active.complaint {
		g.active.complaint = text
		ctrl.LoggerFrom(ctx).Error(err, "The network is not as it should be")
	}
}

// standBy takes away what an active gateway has made, because there is another one, or seems to be.
func (g *Gateway) standBy(ctx context.Context) error {
	if reflect.ValueOf(g.active).IsZero() {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("This gateway stands by")
	g.stopServing()
	g.probes.watch(nil, 0)
	if err := g.plane.Remove(); err != nil {
		return fmt.Errorf("stand by: %w", err)
	}
	g.active = current{}
	return nil
}

// stopServing ends what answers at the addresses of an active gateway.
func (g *Gateway) stopServing() {
	g.forward.stop()
	g.relay.Stop()
}

// plan makes the kernel look like what the objects ask for, and tells nodes and peers that this is the active gateway.
func (g *Gateway) plan(ctx context.Context, now time.Time) error {
	a := &g.active
	a.planAt = now.Add(retryAfter)
	if err := g.observe(ctx); err != nil {
		return err
	}
	a.layout, a.conflicts = overlay.Plan(a.network.State)
	a.failed = g.plane.Apply(a.identity, a.layout)
	a.conflicts = append(a.conflicts, g.forward6(a.network.State, a.layout)...)
	g.forward.update(a.layout, a.network.Peers, a.network.Nameservers)
	g.probes.watch(probed(a.layout), a.layout.MTU)
	err := errors.Join(a.failed, g.forward.listen(ctx, a.layout.Addresses), g.relay.Update(a.layout.Relayed, a.layout.Addresses), g.announce(ctx))
	if a.failed == nil {
		err = errors.Join(err, g.dial(now)) // a new peer that is to say hello first has its time from now on
	}
	if err != nil {
		return err
	}
	a.planAt = now.Add(planAfter)
	return nil
}

// observe reads what the plan is made of.
func (g *Gateway) observe(ctx context.Context) error {
	network, err := g.reader.Read(ctx)
	if err != nil {
		return err
	}
	if network.Own == nil || network.Own.Gateway == nil {
		return errors.New("wait for the manager to write what the network of this cluster is")
	}
	if g.active.identity, err = g.readIdentity(ctx); err != nil {
		return err
	}
	endpoints := map[string][]v1alpha1.HostPort{"": network.Own.Gateway.Endpoints} // ours have no name
	for peer, c := range network.Connections {
		endpoints[peer] = c.Spec.Endpoints
	}
	resolved := g.names.resolve(endpoints)
	for i := range network.Peers {
		network.Peers[i].Endpoints = resolved[network.Peers[i].Name]
		network.Peers[i].Fits, network.Peers[i].Answers = g.measured(network.Peers[i].Probes)
	}
	network.Departed = g.departed.Of(network.Peers)
	network.Gateway = overlay.Gateway{Node: g.config.Node, Addresses: g.config.Addresses, MTU: g.config.MTU, Endpoints: resolved[""]}
	network.Gateway.PublicKey, _ = overlay.ParseKey(network.Own.Gateway.PublicKey)
	g.active.network = network
	return nil
}

// readIdentity reads the private key. While the API server does not answer, the one that is known stays.
func (g *Gateway) readIdentity(ctx context.Context) (kernel.Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: g.config.Namespace, Name: v1alpha1.GatewayName}
	err := g.client.Get(ctx, key, secret)
	if err != nil && g.active.identity != (kernel.Identity{}) {
		return g.active.identity, nil
	}
	if err != nil {
		return kernel.Identity{}, fmt.Errorf("read Secret %s: %w", key, err)
	}
	private, ok := overlay.ParseKey(string(secret.Data[v1alpha1.GatewaySecretKey]))
	if !ok {
		return kernel.Identity{}, fmt.Errorf("key %s of Secret %s is no private key of Curve25519", v1alpha1.GatewaySecretKey, key)
	}
	return kernel.Identity{PrivateKey: private, Port: g.config.Port}, nil
}

func probed(layout overlay.Layout) []netip.Addr {
	var all []netip.Addr
	for _, t := range layout.Tunnels {
		all = append(all, t.Probes...)
	}
	return all
}
