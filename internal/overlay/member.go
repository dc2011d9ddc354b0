// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A member is a peer of which it is decided what of it can be used.
type member struct {
	Peer

	seen      []netip.Prefix // in which we see it, as far as that harms nobody: only the tunnel may ever lead there
	direct    []netip.Prefix // of TheirDirect, as far as they are its alone
	connected bool           // whether there may be a tunnel
	relays    []*member      // that pass on packets between it and us; none unless they must
}

// A muster checks all peers against this cluster and against each other, in the order of their names.
type muster struct {
	State

	own       []netip.Prefix
	taken     space
	seenIn    map[netip.Prefix]*member // → the one that is seen there
	keys      map[[32]byte]string      // → whose it is
	members   []*member
	conflicts []Conflict
}

// assemble returns the peers, sorted by name, and what of them cannot be used.
func assemble(s State) *muster {
	m := &muster{
		State: s, own: sortedRanges(s.Pods, s.Services), seenIn: map[netip.Prefix]*member{},
		keys: map[[32]byte]string{s.Gateway.PublicKey: ""},
	}
	m.taken = newSpace(slices.Concat(m.own, unusable)...)
	for _, p := range slices.SortedFunc(slices.Values(s.Peers), func(x, y Peer) int { return cmp.Compare(x.Name, y.Name) }) {
		m.members = append(m.members, &member{Peer: p, connected: true})
	}
	for _, p := range m.members {
		m.takeRanges(p)
	}
	for _, p := range m.members {
		m.takeDirect(p)
	}
	m.checkSentOn()
	for _, p := range m.members {
		m.checkKey(p)
		m.checkOurs(p)
		m.checkEndpoints(p)
	}
	m.findRelays()
	return m
}

// leaveOut says that there is no tunnel to the peer, and why. The first reason is told.
func (m *muster) leaveOut(p *member, reason, format string, args ...any) {
	if p.connected {
		m.conflicts = append(m.conflicts, Conflict{p.Name, reason, fmt.Sprintf(format, args...)})
	}
	p.connected = false
}

// takeRanges gives the peer the ranges that are its alone.
func (m *muster) takeRanges(p *member) {
	for _, theirs := range p.Theirs {
		if !theirs.wellFormed() {
			m.leaveOut(p, v1alpha1.ReasonNetworkRefused, "The peer's range %s cannot be seen in %s", theirs.Own, theirs.Seen)
			continue
		}
		if other, clash := m.taken.overlapping(theirs.Seen); clash {
			m.leaveOut(p, v1alpha1.ReasonNoAddressRange, "The range %s, in which the peer is seen, overlaps %s, which is in use", theirs.Seen, other)
			continue
		}
		m.taken.add(theirs.Seen)
		m.seenIn[theirs.Seen] = p
		p.seen = append(p.seen, theirs.Seen)
	}
	slices.SortFunc(p.seen, netip.Prefix.Compare)
	if len(p.seen) == 0 {
		m.leaveOut(p, v1alpha1.ReasonPending, "No range is known in which the peer could be seen")
	}
}

// departed returns the ranges of peers that are gone, as far as nobody has them now.
func (m *muster) departed() []netip.Prefix {
	return slices.DeleteFunc(sortedRanges(m.Departed), func(p netip.Prefix) bool {
		_, inUse := m.taken.overlapping(p)
		return inUse
	})
}

func (m *muster) checkKey(p *member) {
	if p.PublicKey == [32]byte{} {
		m.leaveOut(p, v1alpha1.ReasonNoPeerGateway, "The peer has told of no key of its gateway")
		return
	}
	if holder, taken := m.keys[p.PublicKey]; taken {
		whose := "our own"
		if holder != "" {
			whose = fmt.Sprintf("that of peer %q", holder)
		}
		m.leaveOut(p, v1alpha1.ReasonKeyTaken, "The key of the peer's gateway is %s: one of the two is not who it says", whose)
		return
	}
	m.keys[p.PublicKey] = p.Name
}

func (m *muster) checkOurs(p *member) {
	var relayed []netip.Prefix
	for _, said := range p.Ours {
		if other := m.seenIn[said.Own]; other != nil && other != p {
			relayed = append(relayed, said.Own)
		}
	}
	ours, conflict := Ours(p.Name, m.own, sortedRanges(relayed), p.Ours)
	if conflict != nil {
		m.leaveOut(p, conflict.Reason, "%s", conflict.Message)
	}
	p.Ours = ours
}

// checkSentOn leaves to each peer those of its pods that are seen at another one, sorted. An address of pods of two peers is
// nobody's: the cluster where they run is wrong about one of them.
func (m *muster) checkSentOn() {
	claimed := map[netip.Addr]int{} // → by how many
	for _, p := range m.members {
		if len(p.SentOn) == 0 {
			continue
		}
		var others []netip.Prefix
		for _, other := range m.members {
			if other != p {
				others = append(others, other.seen...)
			}
		}
		p.SentOn = sortedWithin(others, p.SentOn)
		for _, address := range p.SentOn {
			claimed[address]++
		}
	}
	for _, p := range m.members {
		p.SentOn = slices.DeleteFunc(p.SentOn, func(address netip.Addr) bool { return claimed[address] > 1 })
	}
}

// checkEndpoints leaves out those that must not be dialled. The peer may still dial us. Those of a family that our gateway has come
// first.
func (m *muster) checkEndpoints(p *member) {
	var good []netip.AddrPort
	for _, endpoint := range p.Endpoints {
		if why := m.refused(endpoint); why != "" {
			m.conflicts = append(m.conflicts, Conflict{
				p.Name, v1alpha1.ReasonEndpointRefused, fmt.Sprintf("The endpoint %s of the peer's gateway is not dialled: it %s", endpoint, why),
			})
			continue
		}
		good = append(good, endpoint)
	}
	slices.SortStableFunc(good, func(x, y netip.AddrPort) int { return m.rank(x) - m.rank(y) })
	p.Endpoints = good
}

// rank is lower for endpoints of a family that our gateway has.
func (m *muster) rank(endpoint netip.AddrPort) int {
	if anyOfFamily(single(m.Gateway.Addresses), endpoint) {
		return 0
	}
	return 1
}

// refused says why an endpoint must not be dialled, if that is so.
func (m *muster) refused(endpoint netip.AddrPort) string {
	address := endpoint.Addr().Unmap()
	if !endpoint.IsValid() || endpoint.Port() == 0 {
		return "is no address and port"
	}
	if slices.Contains(m.Gateway.Endpoints, endpoint) {
		return "is our own gateway"
	}
	if slices.Contains(m.Gateway.Addresses, address) || slices.ContainsFunc(m.Nodes, func(h Host) bool { return slices.Contains(h.Addresses, address) }) {
		return "lies in this cluster"
	}
	if other, clash := m.taken.overlapping(netip.PrefixFrom(address, address.BitLen())); clash {
		return fmt.Sprintf("lies in %s, where no gateway can be", other)
	}
	return ""
}

// sortedRanges returns all of them sorted and without host bits, each once.
func sortedRanges(lists ...[]netip.Prefix) []netip.Prefix {
	var all []netip.Prefix
	for _, p := range slices.Concat(lists...) {
		if p.IsValid() {
			all = append(all, p.Masked())
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// sortedWithin returns those of the addresses that lie in the ranges, sorted, each once.
func sortedWithin(ranges []netip.Prefix, addresses []netip.Addr) []netip.Addr {
	s := newSpace(ranges...)
	var all []netip.Addr
	for _, address := range addresses {
		if !address.IsValid() {
			continue
		}
		if _, inside := s.overlapping(netip.PrefixFrom(address, address.BitLen())); inside {
			all = append(all, address)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// single returns a range for each address.
func single(addresses []netip.Addr) []netip.Prefix {
	ranges := make([]netip.Prefix, 0, len(addresses))
	for _, address := range addresses {
		ranges = append(ranges, netip.PrefixFrom(address, address.BitLen()))
	}
	return ranges
}
