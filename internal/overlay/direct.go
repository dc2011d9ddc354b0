// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// wantsDirect returns for which homes and ranges of the peer's pods there should be a range from which they send directly: as
// many as a message has room for. Nothing new is wanted of a peer whose announcement is refused or not known.
func (p *applicant) wantsDirect() []ClusterRange {
	if len(p.Pods) == 0 || p.conflict != nil && p.conflict.Reason == v1alpha1.ReasonNetworkRefused {
		return p.HasDirect
	}
	var wanted []ClusterRange
	for _, home := range slices.Compact(slices.Sorted(slices.Values(p.Homes))) {
		for _, pods := range p.Pods {
			wanted = append(wanted, ClusterRange{home, Mapping{Own: pods, Seen: directSeen(p.HasDirect, home, pods)}})
		}
	}
	return wanted[:min(len(wanted), v1alpha1.MaxDirect)]
}

// directSeen returns what the ranges have for one of a cluster, and none if they have nothing.
func directSeen(ranges []ClusterRange, clusterID string, own netip.Prefix) netip.Prefix {
	at := slices.IndexFunc(ranges, func(r ClusterRange) bool { return r.ClusterID == clusterID && r.Own == own })
	if at < 0 {
		return netip.Prefix{}
	}
	return ranges[at].Seen
}

// keepDirect grants what the peer has and still wants.
func (a *allocation) keepDirect(p *applicant) {
	for _, r := range p.wantsDirect() {
		if _, clash := a.taken.overlapping(r.Seen); r.wellFormed() && !clash {
			a.taken.add(r.Seen)
			p.direct = append(p.direct, r)
		}
	}
}

// grantDirect grants what is missing, from the pools of Services, because no pod ever sees one of these ranges. Where they are used
// up there is no direct way.
func (a *allocation) grantDirect(p *applicant) {
	for _, r := range p.wantsDirect() {
		if directSeen(p.direct, r.ClusterID, r.Own).IsValid() {
			continue
		}
		for _, pool := range a.pools.Services {
			if pool.Addr().BitLen() != r.Own.Addr().BitLen() {
				continue
			}
			if seen, ok := a.taken.pick(pool, r.Own.Bits()); ok {
				a.taken.add(seen)
				p.direct = append(p.direct, ClusterRange{r.ClusterID, Mapping{Own: r.Own, Seen: seen}})
				break
			}
		}
	}
	slices.SortStableFunc(p.direct, func(x, y ClusterRange) int { return strings.Compare(x.ClusterID, y.ClusterID) })
}

// takeDirect gives the peer the ranges from which it sends directly, as far as they are its alone.
func (m *muster) takeDirect(p *member) {
	for _, r := range p.TheirDirect {
		if _, clash := m.taken.overlapping(r.Seen); r.wellFormed() && !clash {
			m.taken.add(r.Seen)
			p.direct = append(p.direct, r.Seen)
		}
	}
}

// ranges returns all ranges from which the peer sends, sorted.
func (p *member) ranges() []netip.Prefix { return sortedRanges(p.seen, p.direct) }

// directWays returns the ways between guests here and those at other providers of their homes.
func (m *muster) directWays() []Direct {
	var all []Direct
	for _, home := range m.members {
		named := home.named()
		for _, peer := range m.members {
			var there []ClusterRange
			named = slices.DeleteFunc(named, func(r ClusterRange) bool {
				if r.ClusterID == peer.ClusterID {
					there = append(there, r)
				}
				return r.ClusterID == peer.ClusterID // nobody else is there too
			})
			if !home.connected || !peer.connected || home == peer {
				continue
			}
			if d := m.directWay(home, peer, there); len(d.In.Sources)+len(d.Out.Sources) > 0 {
				all = append(all, d)
			}
		}
	}
	return all
}

// DirectThrough returns the homes whose guests send through the tunnel to the peer now, and not through their home, sorted.
func (l *Layout) DirectThrough(peer string) []string {
	var homes []string
	for _, d := range l.Direct {
		if d.Peer == peer && len(d.Out.Sources) > 0 {
			homes = append(homes, d.Home)
		}
	}
	return homes
}

// named returns what the peer says of the ranges behind it, sorted, of each range once.
func (p *member) named() []ClusterRange {
	named := slices.DeleteFunc(slices.Clone(p.Behind), func(r ClusterRange) bool {
		return r.ClusterID == "" || !r.wellFormed() || !slices.Contains(p.seen, of(p.Theirs, r.Seen))
	})
	slices.SortStableFunc(named, func(x, y ClusterRange) int { return x.Seen.Compare(y.Seen) })
	return slices.CompactFunc(named, func(x, y ClusterRange) bool { return x.Seen == y.Seen })
}

// directWay returns the way between guests of the home here and those at the peer, as far as there is one. What the home says of
// ranges of the peer matters to its own guests alone.
func (m *muster) directWay(home, peer *member, behind []ClusterRange) Direct {
	d := Direct{Home: home.Name, Peer: peer.Name}
	for _, guest := range m.guests(home, everyNamespace) {
		if seen, ok := Seen(home.Ours, guest); ok {
			d.Guests = append(d.Guests, seen)
		}
	}
	for _, own := range sortedRanges(m.Pods) {
		atHome := of(home.Ours, own)
		d.In.Destinations = append(d.In.Destinations, Mapping{Own: of(peer.Ours, own), Seen: atHome})
		if as := (Mapping{Own: atHome, Seen: directSeen(peer.OurDirect, home.ClusterID, own)}); as.wellFormed() && peer.Answers && len(peer.relays) == 0 {
			d.Out.Sources = append(d.Out.Sources, as)
		}
	}
	for _, r := range behind {
		here, there := of(home.Theirs, r.Seen), of(peer.Theirs, r.Own)
		if from := directSeen(peer.TheirDirect, home.ClusterID, r.Own); slices.Contains(peer.direct, from) {
			d.In.Sources = append(d.In.Sources, Mapping{Own: from, Seen: here})
		}
		if slices.Contains(peer.seen, there) && slices.ContainsFunc(d.Out.Sources, func(as Mapping) bool { return sameFamily(as.Seen, there) }) {
			d.Out.Destinations = append(d.Out.Destinations, Mapping{Own: here, Seen: there})
		}
	}
	if len(d.Out.Destinations) == 0 {
		d.Out = Rewriting{}
	}
	return d
}

func sameFamily(x, y netip.Prefix) bool { return x.Addr().BitLen() == y.Addr().BitLen() }
