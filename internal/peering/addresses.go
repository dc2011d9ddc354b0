package peering

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// localPeriod is for how long it is believed which ranges this cluster itself uses.
const localPeriod = time.Minute

// addressStep chooses the range in which we see a provider's pods. The objects are the record; what is kept here only bridges
// the moment until the cache shows our own writes, so that two peers never get the same range.
type addressStep struct {
	*deps

	mu      sync.Mutex
	given   map[string]netip.Prefix // peer → its range
	settled map[string]rangeRequest // peer → what its range was chosen for; no range chosen later overlaps it
	local   []netip.Prefix          // ranges of this cluster itself
	localAt time.Time
}

// A rangeRequest is what decides about the range of one peer besides the ranges of others.
type rangeRequest struct {
	asked, current string // by the Peer
	podCIDR        netip.Prefix
}

// An assignment is the range of one peer, or the reason why it has none. The zero value is that of a peer whose pods
// have no known range yet.
type assignment struct {
	cidr    netip.Prefix
	problem string
}

// Reconcile implements step.
func (a *addressStep) Reconcile(ctx context.Context, o *observation) (result, error) {
	if o.deleted() {
		return result{}, nil
	}
	if !o.peer.HasRole(v1alpha1.RoleProvider) {
		a.forget(o.peer.Name)
		return result{}, nil
	}
	var theirs netip.Prefix
	// Before the offer is accepted nothing runs there. So the range is told together with Ready, in one write.
	if advertised(o).ok() {
		theirs = podCIDR(o.offer)
	}
	got, err := a.assign(ctx, o.peer, theirs)
	if err != nil {
		got.cidr, _ = netip.ParsePrefix(o.peer.Status.RemappedPodCIDR)
		got.problem = fmt.Sprintf("It cannot be found out which ranges are free: %v", err)
	}
	o.addresses = got
	return result{}, err
}

// assign returns the range of the peer: the one that its spec asks for, else the one that it has, else a free one.
func (a *addressStep) assign(ctx context.Context, peer *v1alpha1.Peer, podCIDR netip.Prefix) (assignment, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.observe(ctx); err != nil {
		return assignment{}, err
	}
	wanted := rangeRequest{peer.Spec.RemappedPodCIDR, peer.Status.RemappedPodCIDR, podCIDR}
	if was, settled := a.settled[peer.Name]; settled && was == wanted {
		return assignment{cidr: a.given[peer.Name]}, nil
	}
	taken := a.local[:len(a.local):len(a.local)]
	for name, cidr := range a.given {
		if name != peer.Name {
			taken = append(taken, cidr)
		}
	}
	got := choose(peer, podCIDR, a.config.AddressPools, taken)
	if got.cidr.IsValid() {
		a.given[peer.Name], a.settled[peer.Name] = got.cidr, wanted
	} else {
		a.drop(peer.Name)
	}
	return got, nil
}

// forget frees the range of a peer that is gone.
func (a *addressStep) forget(peer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(peer)
}

func (a *addressStep) drop(peer string) {
	delete(a.given, peer)
	delete(a.settled, peer)
}

// choose decides which range the peer gets.
func choose(peer *v1alpha1.Peer, podCIDR netip.Prefix, pools, taken []netip.Prefix) assignment {
	if peer.Spec.RemappedPodCIDR != "" {
		return chooseAsked(peer.Spec.RemappedPodCIDR, podCIDR, taken)
	}
	current, err := netip.ParsePrefix(peer.Status.RemappedPodCIDR)
	if err == nil && fits(current, podCIDR) {
		if _, clash := overlapping(current, taken); !clash {
			return assignment{cidr: current}
		}
	}
	if !podCIDR.IsValid() {
		return assignment{}
	}
	for _, pool := range pools {
		if pool.Addr().Is4() != podCIDR.Addr().Is4() {
			continue
		}
		if cidr, ok := pickRange(pool, podCIDR.Bits(), taken); ok {
			return assignment{cidr: cidr}
		}
	}
	return assignment{problem: fmt.Sprintf("No range as large as %s is free for the pods of the peer: "+
		"set spec.remappedPodCIDR to one that this cluster does not use, or give the manager a larger --address-pool", podCIDR)}
}

func chooseAsked(asked string, podCIDR netip.Prefix, taken []netip.Prefix) assignment {
	cidr, err := netip.ParsePrefix(asked)
	if err != nil {
		return assignment{problem: fmt.Sprintf("spec.remappedPodCIDR %q is not a range such as 100.64.0.0/16", asked)}
	}
	cidr = cidr.Masked()
	if other, clash := overlapping(cidr, taken); clash {
		return assignment{problem: fmt.Sprintf("spec.remappedPodCIDR %s overlaps %s, which this cluster uses: choose another",
			cidr, other)}
	}
	if !fits(cidr, podCIDR) {
		return assignment{problem: fmt.Sprintf("spec.remappedPodCIDR %s must be of the same kind and as large as %s, "+
			"the range of the peer's pods", cidr, podCIDR)}
	}
	return assignment{cidr: cidr}
}

// fits reports whether the addresses of podCIDR, as far as it is known, map one to one to those of cidr.
func fits(cidr, podCIDR netip.Prefix) bool {
	return !podCIDR.IsValid() || cidr.Bits() == podCIDR.Bits() && cidr.Addr().Is4() == podCIDR.Addr().Is4()
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
	a.given, a.settled = map[string]netip.Prefix{}, map[string]rangeRequest{}
	for _, peer := range list.Items {
		for _, cidr := range parseRanges(peer.Status.RemappedPodCIDR, peer.Spec.RemappedPodCIDR) {
			a.given[peer.Name] = cidr
		}
	}
	return nil
}

// localRanges returns the ranges of our own pods, nodes and Services.
func (a *addressStep) localRanges(ctx context.Context) ([]netip.Prefix, error) {
	ranges := append([]netip.Prefix(nil), a.config.PodCIDRs...)
	nodes := &corev1.NodeList{}
	if err := a.client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	for i := range nodes.Items {
		if nodes.Items[i].Labels[v1alpha1.LabelType] != v1alpha1.TypeVirtualNode {
			ranges = append(ranges, nodeRanges(&nodes.Items[i])...)
		}
	}
	services := &networkingv1.ServiceCIDRList{}
	if err := a.direct.List(ctx, services); err != nil {
		return nil, fmt.Errorf("list ServiceCIDRs: %w", err)
	}
	for i := range services.Items {
		ranges = append(ranges, parseRanges(services.Items[i].Spec.CIDRs...)...)
	}
	slices.SortFunc(ranges, netip.Prefix.Compare) // a cache lists nodes in any order
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

// pickRange returns the first range of that length in the pool that overlaps none of those that are taken.
func pickRange(pool netip.Prefix, bits int, taken []netip.Prefix) (netip.Prefix, bool) {
	if bits < pool.Bits() || bits > pool.Addr().BitLen() {
		return netip.Prefix{}, false
	}
	candidate := netip.PrefixFrom(pool.Masked().Addr(), bits)
	for {
		other, clash := overlapping(candidate, taken)
		if !clash {
			return candidate, true
		}
		// Whichever of the two is larger ends where a candidate may begin.
		next := lastOf(netip.PrefixFrom(candidate.Addr(), min(bits, other.Bits()))).Next()
		if !next.IsValid() || !pool.Contains(next) {
			return netip.Prefix{}, false
		}
		candidate = netip.PrefixFrom(next, bits)
	}
}

// lastOf returns the last address of the range.
func lastOf(p netip.Prefix) netip.Addr {
	address := p.Masked().Addr().AsSlice()
	for i := range address {
		hostBits := min(max((i+1)*8-p.Bits(), 0), 8)
		address[i] |= byte(1<<hostBits - 1)
	}
	last, _ := netip.AddrFromSlice(address)
	return last
}

// overlapping returns the first of the ranges that overlaps p.
func overlapping(p netip.Prefix, ranges []netip.Prefix) (netip.Prefix, bool) {
	at := slices.IndexFunc(ranges, p.Overlaps)
	if at < 0 {
		return netip.Prefix{}, false
	}
	return ranges[at], true
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
