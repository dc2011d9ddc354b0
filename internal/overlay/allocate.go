// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Pools are where the ranges come from in which peers are seen whose own ranges are taken here. They are tried in this order.
type Pools struct {
	Pods, Services []netip.Prefix
}

// DefaultPools returns ranges that seldom clash. RFC 6598 keeps the first for what lies between networks: it has room for the
// pods of 64 clusters of the usual size. The second is reserved for ever, and Linux routes it; pods get it where the first
// is used up, since not every program takes it for an address. The third stands for hanse, within the unique local addresses
// of IPv6.
func DefaultPools() Pools {
	return Pools{
		Pods: prefixes("100.64.0.0/10", reserved, "fd68:616e::/32"), Services: prefixes(reserved, "fd68:616e::/32"),
	}
}

// reserved is the range in which peers see Services unless an administrator says otherwise.
const reserved = "240.0.0.0/4"

var reservedRange = netip.MustParsePrefix(reserved)

// A Request is what decides about the ranges in which one peer is seen.
type Request struct {
	Peer           string
	Pods, Services []netip.Prefix // as the peer announces them; none at all if that is not known (yet)
	Relayed        []netip.Prefix // ranges of others to which it passes traffic on, as it sees them
	Asked          []Mapping      // what our administrator wants; of a range that the peer does not have it means nothing
	Has            []Mapping      // what was allocated before: it stays while the peer's ranges are not known
	Homes          []string       // ids of clusters whose pods run at the peer and here, and reach each other directly
	HasDirect      []ClusterRange // what was allocated before for Homes
}

// A Grant is how this cluster sees one peer.
type Grant struct {
	Peer     string
	Mappings []Mapping // in the order of the announcement: of pods, of Services, and of what is relayed
	// Direct are ranges from which pods at the peer send directly to pods of the same home here: one for each home and range of pods, as
	// far as there are free ones, sorted by home.
	Direct []ClusterRange
}

// Seen returns all ranges that are granted.
func (g Grant) Seen() []netip.Prefix {
	var seen []netip.Prefix
	for _, m := range g.Mappings {
		seen = append(seen, m.Seen)
	}
	for _, r := range g.Direct {
		seen = append(seen, r.Seen)
	}
	return seen
}

// Allocate decides in which ranges peers are seen. Ranges that are taken are what this cluster uses itself. A peer keeps what
// it has, unless the cluster has taken it for itself or the administrator asks for another. Then come those that are
// asked for, and then those that are new: as the peer itself sees them if nothing of it is taken, else the first of a pool
// that is free. The order of the requests does not matter.
//
// There is a grant for each request, sorted by name. What could not be granted, the conflicts say. An announcement that is
// refused changes nothing: what the peer has stays reserved, and must not be connected.
func Allocate(taken []netip.Prefix, pools Pools, requests []Request) ([]Grant, []Conflict) {
	a := allocation{taken: newSpace(slices.Concat(taken, never, unusable)...), pools: pools}
	for _, r := range requests {
		a.peers = append(a.peers, newApplicant(r))
	}
	slices.SortFunc(a.peers, func(x, y *applicant) int { return cmp.Compare(x.Peer, y.Peer) })
	for _, step := range []func(*allocation, *applicant){
		(*allocation).keep, (*allocation).keepDirect, (*allocation).grantAsked, (*allocation).grantNew, (*allocation).grantDirect,
	} {
		for _, p := range a.peers {
			step(&a, p)
		}
	}
	var grants []Grant
	var conflicts []Conflict
	for _, p := range a.peers {
		grants = append(grants, p.grant())
		if p.conflict != nil {
			conflicts = append(conflicts, *p.conflict)
		}
	}
	return grants, conflicts
}

// An allocation is one run of Allocate.
type allocation struct {
	taken space
	pools Pools
	peers []*applicant
}

// An applicant is a peer while its ranges are allocated.
type applicant struct {
	Request

	own      []netip.Prefix // its ranges
	seen     []netip.Prefix // in which each of them is seen, if it is yet
	failed   []bool         // which of them cannot be seen, as the conflict says
	direct   []ClusterRange
	conflict *Conflict // the first
}

func newApplicant(r Request) *applicant {
	p := &applicant{Request: r, own: slices.Concat(r.Pods, r.Services, r.Relayed)}
	err := checkRanges(r)
	if err != nil {
		p.conflict = refuse(r.Peer, "%v", err)
	}
	if err != nil || len(p.own) == 0 {
		p.own = nil
		for _, m := range slices.Concat(r.Has, r.Asked) {
			if !slices.Contains(p.own, m.Own) {
				p.own = append(p.own, m.Own)
			}
		}
	}
	p.seen, p.failed = make([]netip.Prefix, len(p.own)), make([]bool, len(p.own))
	return p
}

// grant returns what there is for the applicant now.
func (p *applicant) grant() Grant {
	g := Grant{Peer: p.Peer, Direct: p.direct}
	for i, own := range p.own {
		if p.seen[i].IsValid() {
			g.Mappings = append(g.Mappings, Mapping{Own: own, Seen: p.seen[i]})
		}
	}
	return g
}

// fail notes that the applicant gets nothing for its range of that index.
func (p *applicant) fail(index int, format string, args ...any) {
	p.failed[index] = true
	if p.conflict == nil {
		p.conflict = &Conflict{p.Peer, v1alpha1.ReasonNoAddressRange, fmt.Sprintf(format, args...)}
	}
}

// keep grants what the peer has.
func (a *allocation) keep(p *applicant) {
	for i, own := range p.own {
		had := of(p.Has, own)
		asked := of(p.Asked, own)
		if !(Mapping{own, had}).wellFormed() || asked.IsValid() && asked != had {
			continue
		}
		if _, clash := a.taken.overlapping(had); !clash {
			a.take(p, i, had)
		}
	}
}

// grantAsked grants what the administrator wants.
func (a *allocation) grantAsked(p *applicant) {
	for i, own := range p.own {
		asked := of(p.Asked, own)
		if !asked.IsValid() || p.seen[i].IsValid() {
			continue
		}
		if !(Mapping{own, asked}).wellFormed() {
			p.fail(i, "spec.network.mappings of the Peer asks for %s: it must be of the same family and length as %s", asked, own)
			continue
		}
		if other, clash := a.taken.overlapping(asked); clash {
			p.fail(i, "spec.network.mappings of the Peer asks for %s, which overlaps %s: choose one that neither this cluster nor another peer uses",
				asked, other)
			continue
		}
		a.take(p, i, asked)
	}
}

// grantNew grants the peer its own ranges where nothing of them is taken, and others in their place where something is. A
// peer whose announcement is refused, or is not known, gets nothing new.
func (a *allocation) grantNew(p *applicant) {
	if len(p.Pods)+len(p.Services)+len(p.Relayed) == 0 || p.conflict != nil && p.conflict.Reason == v1alpha1.ReasonNetworkRefused {
		return
	}
	for i, own := range p.own {
		if p.seen[i].IsValid() || p.failed[i] {
			continue
		}
		seen, ok := a.choose(own, p.ofPods(i))
		if !ok {
			p.fail(i, "No range as large as %s is free in which this cluster could see the peer: give the manager a larger "+
				"--address-pool, or set spec.network.mappings of the Peer to one that this cluster does not use", own)
			continue
		}
		a.take(p, i, seen)
	}
}

// ofPods says whether the range of that index comes from the pools of pods. What is relayed does, unless the peer itself sees it
// where Services are seen.
func (p *applicant) ofPods(index int) bool {
	if index < len(p.Pods)+len(p.Services) {
		return index < len(p.Pods)
	}
	return !reservedRange.Overlaps(p.own[index])
}

func (a *allocation) choose(own netip.Prefix, ofPods bool) (netip.Prefix, bool) {
	_, taken := a.taken.overlapping(own)
	if private, ok := kept.overlapping(own); ok && !taken && private.Bits() <= own.Bits() {
		return own, true
	}
	pools := a.pools.Services
	if ofPods {
		pools = a.pools.Pods
	}
	for _, pool := range pools {
		if pool.Addr().BitLen() != own.Addr().BitLen() {
			continue
		}
		if seen, ok := a.taken.pick(pool, own.Bits()); ok {
			return seen, true
		}
	}
	return netip.Prefix{}, false
}

func (a *allocation) take(p *applicant, index int, seen netip.Prefix) {
	p.seen[index] = seen
	a.taken.add(seen)
}

// of returns the range in which the mappings have the own range seen, and none if they do not name it.
func of(mappings []Mapping, own netip.Prefix) netip.Prefix {
	at := slices.IndexFunc(mappings, func(m Mapping) bool { return m.Own == own })
	if at < 0 {
		return netip.Prefix{}
	}
	return mappings[at].Seen
}
