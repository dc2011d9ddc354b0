// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
)

// Config is what an administrator may set. What is not set has the default that is named.
type Config struct {
	// Self is what this cluster says of itself.
	Self Announcement
	// Multicast says whether to announce and look on the local network.
	Multicast bool
	// Address is the address of the machine that announces, as multicast DNS wants one.
	Address net.IP
	// Domains are those whose SRV records are looked up.
	Domains []string
	// Period is how often it is looked. Default 1 min.
	Period time.Duration
	// ForgetAfter is how long a cluster is remembered that is not seen any more and that nobody has accepted. Default 1 h.
	ForgetAfter time.Duration
	// MaxPeers is how many clusters that nobody has accepted are remembered. Default 64.
	MaxPeers int
	// Clock is the time. Default the real one.
	Clock clock.WithTicker
}

// Default fills in what was not set.
func (c *Config) Default() {
	c.Period = cmp.Or(c.Period, time.Minute)
	c.ForgetAfter = cmp.Or(c.ForgetAfter, time.Hour)
	c.MaxPeers = cmp.Or(c.MaxPeers, 64)
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
}

// Validate reports everything that is wrong with the configuration.
func (c *Config) Validate() error {
	var problems []error
	if !c.Multicast && len(c.Domains) == 0 {
		problems = append(problems, errors.New("there is nowhere to look: neither multicast DNS nor a domain is set"))
	}
	if c.Multicast && c.Address == nil {
		problems = append(problems, errors.New("multicast DNS needs the address of this machine"))
	}
	if c.Period < 0 || c.ForgetAfter < 0 || c.MaxPeers < 0 {
		problems = append(problems, errors.New("the period, the time after which a cluster is forgotten, and the number of peers must be positive"))
	}
	return errors.Join(append(problems, c.Self.check())...)
}

// fieldOwner is who writes what was found into the status of Peers.
const fieldOwner = client.FieldOwner("hanse-discovery")

// Discovery announces this cluster and keeps a Peer for each that it finds.
type Discovery struct {
	config  Config
	client  client.Client
	sources []source
	lan     *multicast           // nil if the local network is not asked
	seen    map[string]time.Time // cluster id → when it was seen last, since this process runs
}

// New returns the discovery. It starts nothing. The resolver is net.DefaultResolver but in tests.
func New(config Config, c client.Client) *Discovery {
	config.Default()
	d := &Discovery{config: config, client: c, seen: map[string]time.Time{}}
	if config.Multicast {
		d.lan = &multicast{self: config.Self, address: config.Address}
		d.sources = append(d.sources, d.lan)
	}
	for _, name := range config.Domains {
		d.sources = append(d.sources, &domain{name: name, resolver: net.DefaultResolver})
	}
	return d
}

// SetupWithManager has the manager run the discovery.
func (d *Discovery) SetupWithManager(mgr ctrl.Manager) error {
	if err := d.config.Validate(); err != nil {
		return err
	}
	if d.lan != nil {
		if err := mgr.Add(manager.RunnableFunc(d.lan.announce)); err != nil {
			return err
		}
	}
	return mgr.Add(manager.RunnableFunc(d.Run))
}

// Run looks again and again until ctx ends.
func (d *Discovery) Run(ctx context.Context) error {
	ticker := d.config.Clock.NewTicker(d.config.Period)
	defer ticker.Stop()
	for {
		if err := d.look(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "Cannot keep what was found")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// look asks all sources and brings the Peers in line with what they tell.
func (d *Discovery) look(ctx context.Context) error {
	var all []Announcement
	for _, s := range d.sources {
		found, err := s.find(ctx)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Cannot look for other clusters")
		}
		all = append(all, found...)
	}
	peers := &v1alpha1.PeerList{}
	if err := d.client.List(ctx, peers); err != nil {
		return fmt.Errorf("list Peers: %w", err)
	}
	found := merge(all, d.config.Self.ClusterID, d.config.MaxPeers)
	for _, a := range found {
		d.seen[a.ClusterID] = d.config.Clock.Now()
		if err := d.keep(ctx, peers, a); err != nil {
			return err
		}
	}
	return d.forget(ctx, peers)
}

// keep makes a Peer for a cluster that none stands for, and tells its addresses.
func (d *Discovery) keep(ctx context.Context, peers *v1alpha1.PeerList, a Announcement) error {
	at := slices.IndexFunc(peers.Items, func(p v1alpha1.Peer) bool { return p.Spec.ClusterID == a.ClusterID })
	if at >= 0 {
		return d.tell(ctx, &peers.Items[at], a)
	}
	if countDiscovered(peers) >= d.config.MaxPeers {
		return nil
	}
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: a.ClusterID}, Spec: v1alpha1.PeerSpec{ClusterID: a.ClusterID}}
	err := d.client.Create(ctx, peer)
	if apierrors.IsAlreadyExists(err) {
		return nil // an administrator's, of another cluster
	}
	if err != nil {
		return fmt.Errorf("create Peer %s: %w", peer.Name, err)
	}
	peers.Items = append(peers.Items, *peer)
	ctrl.LoggerFrom(ctx).Info("Discovered a cluster", "Peer", peer.Name, "servers", a.Servers)
	return d.tell(ctx, peer, a)
}

// discovered reports whether nobody has accepted the peer yet.
func discovered(peer *v1alpha1.Peer) bool {
	return len(peer.Spec.Roles) == 0 && peer.DeletionTimestamp.IsZero()
}

func countDiscovered(peers *v1alpha1.PeerList) int {
	count := 0
	for i := range peers.Items {
		if discovered(&peers.Items[i]) {
			count++
		}
	}
	return count
}

// tell writes the addresses of a discovered cluster into the status of its Peer.
func (d *Discovery) tell(ctx context.Context, peer *v1alpha1.Peer, a Announcement) error {
	if !discovered(peer) || slices.Equal(peer.Status.DiscoveredServers, a.Servers) {
		return nil
	}
	found := &v1alpha1.PeerStatus{DiscoveredServers: a.Servers}
	return client.IgnoreNotFound(local.ApplyStatus(ctx, d.client, fieldOwner, peer, found))
}

// forget deletes Peers that nobody has accepted and that were not seen for a while.
func (d *Discovery) forget(ctx context.Context, peers *v1alpha1.PeerList) error {
	now := d.config.Clock.Now()
	for i := range peers.Items {
		peer := &peers.Items[i]
		if !discovered(peer) {
			continue
		}
		seen, ok := d.seen[peer.Spec.ClusterID]
		if !ok { // by a process before this one
			d.seen[peer.Spec.ClusterID] = now
			continue
		}
		if now.Sub(seen) < d.config.ForgetAfter {
			continue
		}
		// An administrator may have accepted it a moment ago.
		precondition := client.Preconditions{UID: &peer.UID, ResourceVersion: &peer.ResourceVersion}
		if err := local.IgnoreStale(d.client.Delete(ctx, peer, precondition)); err != nil {
			return fmt.Errorf("delete Peer %s: %w", peer.Name, err)
		}
		delete(d.seen, peer.Spec.ClusterID)
	}
	return nil
}
