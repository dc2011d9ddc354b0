// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/overlay"
)

// localPeriod is for how long it is believed which ranges this cluster itself uses.
const localPeriod = time.Minute

// addressStep chooses the ranges in which we see a peer's. The objects are the record; what is kept here only bridges
// the moment until the cache shows our own writes, so that two peers never get the same range.
type addressStep struct {
	*deps

	mu      sync.Mutex
	given   map[string]overlay.Grant   // peer → its ranges
	settled map[string]overlay.Request // peer → what its ranges were chosen for; no range chosen later overlaps them
	local   []netip.Prefix             // ranges of this cluster itself
	localAt time.Time
}

// An assignment is how we see the ranges of one peer, and what stands against some of them. The zero value is that of a peer
// whose ranges are not known yet.
type assignment struct {
	overlay.Grant

	conflict *overlay.Conflict
}

// Reconcile implements step.
func (a *addressStep) Reconcile(ctx context.Context, o *observation) (result, error) {
	if o.deleted() {
		return result{}, nil
	}
	if !o.peer.HasRole(v1alpha1.RoleProvider) && !o.wantsTunnel() {
		a.forget(o.peer.Name)
		return result{}, nil
	}
	request := overlay.Request{Peer: o.peer.Name, Asked: asked(o.peer), Has: overlay.Mappings(o.peer.Status.Mappings), HasDirect: overlay.ClusterRanges(o.peer.Status.Direct)}
	if network := o.theirs; network != nil {
		request.Pods, request.Services = overlay.Ranges(network.PodCIDRs), overlay.Ranges(network.ServiceCIDRs)
		request.Relayed = overlay.Ranges(network.RelayedCIDRs)
	}
	if o.ours != nil && o.wantsTunnel() {
		request.Homes = o.ours.HomesOf(o.peer.Spec.ClusterID)
	}
	got, err := a.assign(ctx, request)
	if err != nil {
		got = assignment{Grant: overlay.Grant{Mappings: request.Has, Direct: request.HasDirect}, conflict: &overlay.Conflict{
			Reason: v1alpha1.ReasonNoAddressRange, Message: fmt.Sprintf("It cannot be found out which ranges are free: %v", err),
		}}
	}
	o.addresses = got
	return result{}, err
}

// asked returns the ranges in which the administrator wants the peer to be seen.
func asked(peer *v1alpha1.Peer) []overlay.Mapping {
	return overlay.Mappings(ptr.Deref(peer.Spec.Network, v1alpha1.PeerNetwork{}).Mappings)
}

// assign returns the ranges of the peer.
func (a *addressStep) assign(ctx context.Context, request overlay.Request) (assignment, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.observe(ctx); err != nil {
		return assignment{}, err
	}
	if was, settled := a.settled[request.Peer]; settled && reflect.DeepEqual(was, request) {
		return assignment{Grant: a.given[request.Peer]}, nil
	}
	taken := a.local[:len(a.local):len(a.local)]
	for name, grant := range a.given {
		if name != request.Peer {
			taken = append(taken, grant.Seen()...)
		}
	}
	pools := overlay.Pools{Pods: a.config.AddressPools, Services: a.config.ServicePools}
	grants, conflicts := overlay.Allocate(taken, pools, []overlay.Request{request})
	got := assignment{Grant: grants[0]}
	if len(conflicts) > 0 {
		got.conflict = &conflicts[0]
		delete(a.settled, request.Peer)
	} else {
		a.settled[request.Peer] = request
	}
	a.given[request.Peer] = got.Grant
	return got, nil
}

// forget frees the ranges of a peer that is gone.
func (a *addressStep) forget(peer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.given, peer)
	delete(a.settled, peer)
}

// observe looks which ranges are taken, unless it did a moment ago.
func (a *addressStep) observe(ctx context.Context) error {
	if a.given == nil {
		if err := a.seed(ctx); err != nil {
			return err
		}
	}
	now := a.config.Clock.Now()
	if !a.localAt.IsZero() && now.Sub(a.localAt) < localPeriod {
		return nil
	}
	local, err := a.localRanges(ctx)
	if err != nil {
		return err
	}
	if !slices.Equal(a.local, local) {
		clear(a.settled)
	}
	a.local, a.localAt = local, now
	return nil
}

func (a *addressStep) seed(ctx context.Context) error {
	list := &v1alpha1.PeerList{}
	if err := a.client.List(ctx, list); err != nil {
		return fmt.Errorf("list Peers: %w", err)
	}
	a.given, a.settled = map[string]overlay.Grant{}, map[string]overlay.Request{}
	for _, peer := range list.Items {
		a.given[peer.Name] = overlay.Grant{
			Mappings: append(asked(&peer), overlay.Mappings(peer.Status.Mappings)...), Direct: overlay.ClusterRanges(peer.Status.Direct),
		}
	}
	return nil
}

// localRanges returns the ranges of our own pods, nodes and Services.
func (a *addressStep) localRanges(ctx context.Context) ([]netip.Prefix, error) {
	nodes, err := a.realNodes(ctx)
	if err != nil {
		return nil, err
	}
	services, err := a.serviceRanges(ctx)
	if err != nil {
		return nil, err
	}
	ranges := slices.Concat(a.config.podRanges(nodes, services), services)
	for _, node := range nodes {
		ranges = append(ranges, nodeRanges(node)...)
	}
	return ranges, nil
}

func nodeRanges(node *corev1.Node) []netip.Prefix {
	ranges := parseRanges(append([]string{node.Spec.PodCIDR}, node.Spec.PodCIDRs...)...)
	for _, address := range node.Status.Addresses {
		ip, err := netip.ParseAddr(address.Address)
		if err == nil && address.Type == corev1.NodeInternalIP {
			ranges = append(ranges, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	return ranges
}

// parseRanges returns those of the texts that are ranges.
func parseRanges(texts ...string) []netip.Prefix {
	var ranges []netip.Prefix
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			ranges = append(ranges, p.Masked())
		}
	}
	return ranges
}
