// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"net/netip"
	"slices"
)

// nodesOnly are addresses at which clouds answer their own machines and nobody else, and those of links.
var nodesOnly = prefixes(
	"169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", "fd00:ec2::254/128", "fd20:ce::254/128", "fe80::/10",
)

// NodePlan returns what the fabric on the node must have. Routes lead to a peer although its tunnel cannot be, because the
// gateway drops what is for it and nothing else does. A node that is not known has nothing but the guard.
func NodePlan(s State, node string) NodeLayout {
	m := assemble(s)
	layout := NodeLayout{
		Routes: m.departed(), Own: m.own, Services: sortedRanges(s.Services), Closed: m.closed(), Guarded: m.guarded(), MTU: mtu(s.Gateway),
	}
	for _, p := range m.members {
		layout.Routes = append(layout.Routes, p.ranges()...)
	}
	slices.SortFunc(layout.Routes, netip.Prefix.Compare)
	at := slices.IndexFunc(s.Nodes, func(h Host) bool { return h.Name == node })
	if at >= 0 {
		layout.Here = sortedRanges(s.Nodes[at].PodCIDRs)
	}
	if at < 0 || s.Gateway.Node == "" || len(s.Gateway.Addresses) == 0 {
		return layout
	}
	layout.Gateway = s.Gateway.Addresses[0]
	layout.Through = oneOfEach(s.Gateway.Addresses)
	layout.Inner = oneOfEach(s.Nodes[at].Addresses)
	return layout
}

// closed returns what guests do not reach.
func (m *muster) closed() []netip.Prefix {
	lists := [][]netip.Prefix{m.own, m.Closed, nodesOnly}
	for _, h := range m.Nodes {
		lists = append(lists, single(h.Addresses))
	}
	return sortedRanges(lists...)
}

// guarded returns the guests of each peer that has some, whether or not there is a tunnel to it. They talk with those that were
// sent on too.
func (m *muster) guarded() []Guests {
	var guarded []Guests
	for _, p := range m.members {
		pods := append(m.guests(p, everyNamespace), p.SentOn...)
		slices.SortFunc(pods, netip.Addr.Compare)
		if len(pods) > 0 {
			home := sortedRanges(p.seen, single(m.clusterIPs(p)))
			guarded = append(guarded, Guests{Peer: p.Name, Pods: pods, Home: home, Open: m.openings(p, m.here(p))})
		}
	}
	return guarded
}

// clusterIPs returns those of the copies of the peer's Services. What is sent to one is judged again when kube-proxy has chosen an
// endpoint, and that lies in a range of the peer or is a guest of it.
func (m *muster) clusterIPs(p *member) []netip.Addr {
	var all []netip.Addr
	for _, s := range p.Services {
		all = append(all, s.Addresses...)
	}
	return sortedWithin(m.Services, all)
}
