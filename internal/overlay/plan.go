// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Plan returns what the active gateway must have. A peer of which something cannot be used has no tunnel, and another one
// never suffers from that; the conflicts, sorted by peer, say what is left out. An endpoint that is refused costs no tunnel.
func Plan(s State) (Layout, []Conflict) {
	m := assemble(s)
	layout := Layout{Nodes: m.nodes(), Blackholes: m.departed(), Addresses: GatewayAddresses(s.Services), MTU: mtu(s.Gateway)}
	for _, p := range m.members {
		layout.Blackholes = append(layout.Blackholes, p.ranges()...)
		if !p.connected {
			continue
		}
		m.checkNames(p)
		layout.Tunnels = append(layout.Tunnels, m.tunnel(p, layout.MTU))
		layout.Translations = append(layout.Translations, Translation{
			Peer: p.Name, From: p.seen, Ours: m.translated(p.Ours), Hosts: hosts(p.Ours, layout.Addresses),
			Questions: m.resolversBehind(p),
		})
		layout.Permissions = append(layout.Permissions, m.permissions(p))
		layout.Resolvers = append(layout.Resolvers, sortedWithin(p.seen, p.Resolvers)...)
	}
	layout.Relayed, layout.Direct = m.relayed(), m.directWays()
	layout.Relaying = relaying(layout)
	slices.SortFunc(layout.Blackholes, netip.Prefix.Compare)
	slices.SortFunc(layout.Resolvers, netip.Addr.Compare)
	slices.SortStableFunc(m.conflicts, func(x, y Conflict) int { return cmp.Compare(x.Peer, y.Peer) })
	return layout, m.conflicts
}

// GatewayAddresses returns the addresses of a cluster's gateway within its Service ranges: the first of the first range of each
// family, which Kubernetes gives to no Service. They stay when another gateway takes over.
func GatewayAddresses(services []netip.Prefix) []netip.Addr {
	var first []netip.Addr
	for _, p := range sortedRanges(services) {
		first = append(first, p.Masked().Addr())
	}
	return oneOfEach(first)
}

func (m *muster) tunnel(p *member, most int) Tunnel {
	t := Tunnel{
		Peer: p.Name, PublicKey: p.PublicKey, Endpoints: p.Endpoints, Apart: m.apart(p), AllowedIPs: p.ranges(),
		Keepalive: len(p.Endpoints) == 0 || len(m.Gateway.Endpoints) == 0,
		Connected: p.Connected,
		MTU:       p.fitting(most), Probes: sortedWithin(p.seen, p.Probes),
	}
	m.leadThrough(&t, p, most)
	return t
}

// apart reports whether there are endpoints, and none of a family that the gateway at the other end has.
func (m *muster) apart(p *member) bool {
	known := len(p.Endpoints)+len(m.Gateway.Endpoints) > 0 && len(m.Gateway.Addresses) > 0
	return known && !anyOfFamily(single(m.Gateway.Addresses), p.Endpoints...) && !anyOfFamily(p.seen, m.Gateway.Endpoints...)
}

// fitting returns the largest packet that gets to the peer whole, if it is at most that.
func (p *member) fitting(most int) int {
	if p.Fits > 0 {
		return min(most, p.Fits)
	}
	return most
}

// translated returns those mappings that change anything, and those of what we relay, sorted.
func (m *muster) translated(mappings []Mapping) []Mapping {
	var changing []Mapping
	for _, mapping := range mappings {
		if mapping.Own != mapping.Seen || !slices.Contains(m.own, mapping.Own) {
			changing = append(changing, mapping)
		}
	}
	slices.SortFunc(changing, func(x, y Mapping) int { return x.Own.Compare(y.Own) })
	return changing
}

// hosts returns the gateway's addresses as the peer sees them.
func hosts(ours []Mapping, addresses []netip.Addr) []netip.Addr {
	var seen []netip.Addr
	for _, address := range addresses {
		if there, ok := Seen(ours, address); ok {
			seen = append(seen, there)
		}
	}
	return seen
}

func (m *muster) permissions(p *member) Permissions {
	return Permissions{
		Peer: p.Name, Theirs: sortedWithin(p.seen, p.There), Guests: m.guests(p, everyNamespace),
		SentOn: p.SentOn, Reached: m.own,
		Open: slices.Concat(m.questions(p), m.openings(p, whole(p))),
	}
}

// resolversBehind returns the name servers of others to which we relay, as the peer sees them.
func (m *muster) resolversBehind(p *member) []netip.Addr {
	var seen []netip.Addr
	for _, ours := range p.Ours {
		other := m.seenIn[ours.Own]
		if other == nil || !other.connected {
			continue
		}
		for _, resolver := range sortedWithin([]netip.Prefix{ours.Own}, other.Resolvers) {
			seen = append(seen, move(resolver, ours.Seen))
		}
	}
	slices.SortFunc(seen, netip.Addr.Compare)
	return seen
}

// questions lets the gateway of a peer at which pods of ours run ask our name servers.
func (m *muster) questions(p *member) []Opening {
	askers, servers := sortedWithin(p.seen, p.Probes), sortedWithin(m.own, m.Nameservers)
	if len(p.There) == 0 || len(askers) == 0 || len(servers) == 0 {
		return nil
	}
	return []Opening{{From: single(askers), To: single(servers)}}
}

// checkNames says that pods get no answers from the DNS of their home, because that has no address of a family of both clusters.
func (m *muster) checkNames(p *member) {
	shared := slices.DeleteFunc(slices.Clone(p.seen), func(r netip.Prefix) bool { return !hasFamily(m.own, r.Addr()) })
	deaf := func(servers []netip.Addr) bool {
		return len(servers) > 0 && !slices.ContainsFunc(servers, func(a netip.Addr) bool { return hasFamily(shared, a) })
	}
	const remedy = "needs both families (ipFamilyPolicy: PreferDualStack)"
	switch {
	case len(p.There) > 0 && deaf(m.Nameservers):
		m.conflicts = append(m.conflicts, Conflict{
			p.Name, v1alpha1.ReasonNoCommonFamily, "Our pods at the peer do not reach the DNS of this cluster, which has an address of " +
				family(m.Nameservers[0]) + " alone: its Service " + remedy,
		})
	case len(p.Guests) > 0 && deaf(p.Resolvers):
		m.conflicts = append(m.conflicts, Conflict{
			p.Name, v1alpha1.ReasonNoCommonFamily, "Pods of the peer here do not reach the DNS of their home, which has an address of " +
				family(p.Resolvers[0]) + " alone: its Service there " + remedy,
		})
	}
}

// nodes returns our nodes as the gateway sees them. One without an address of the family of the gateway's VXLAN is left out.
func (m *muster) nodes() []Node {
	var nodes []Node
	for _, h := range m.Nodes {
		address, ok := m.underlay(h.Addresses)
		if !ok {
			continue
		}
		node := Node{Name: h.Name, Address: address, Inner: oneOfEach(h.Addresses), Ranges: sortedRanges(h.PodCIDRs)}
		if h.Name == m.Gateway.Node {
			node.Ranges = sortedRanges(node.Ranges, m.own)
		}
		nodes = append(nodes, node)
	}
	slices.SortFunc(nodes, func(x, y Node) int { return cmp.Compare(x.Name, y.Name) })
	return nodes
}

// underlay returns the address that packets of the VXLAN go to: the first that is of the family of the gateway's.
func (m *muster) underlay(addresses []netip.Addr) (netip.Addr, bool) {
	if len(m.Gateway.Addresses) == 0 {
		return netip.Addr{}, false
	}
	if m.Gateway.Addresses[0].Is4() {
		return ofFamily(addresses, netip.Addr.Is4)
	}
	return ofFamily(addresses, netip.Addr.Is6)
}
