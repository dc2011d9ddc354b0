// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/hanse-dev/hanse/internal/overlay"
)

// Neighbour discovery has ICMPv6 types of its own, which guests must be able to exchange with their node.
const (
	solicitation, redirect                        = 133, 137 // the first and the last
	neighbourSolicitation, neighbourAdvertisement = 135, 136
)

// table is what a node translates, and what it keeps guests from. The packets of guests are judged before kube-proxy
// translates them, so that no Service leads them elsewhere, and again after that.
func (n *Node) table(layout overlay.NodeLayout) table {
	prerouting := base("prerouting", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, *nftables.ChainPriorityNATDest-10)
	forward := base("forward", nftables.ChainTypeFilter, nftables.ChainHookForward, *nftables.ChainPriorityFilter)
	input := base("input", nftables.ChainTypeFilter, nftables.ChainHookInput, *nftables.ChainPriorityFilter)
	postrouting := base("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource-10)
	t := table{family: nftables.TableFamilyINet, chains: []*chain{prerouting, forward, input, postrouting}}

	// What came out of the tunnel for a Service must come back through this node, where kube-proxy chose an endpoint.
	postrouting.add(rule(from(vxlanLink), translatedDestination(), expression{&expr.Masq{}}))
	for _, f := range families {
		leave, enter := f.guard(&t, layout)
		for _, o := range f.addOpenings(&t, layout.Guarded) {
			leave.add(o.permit()...)
			enter.add(o.permit()...)
		}
		leave.add(
			rule(f.icmpTypes(solicitation, redirect), accept()),
			rule(f.in("closed", destination), drop()),
			rule(toThisMachine(), drop()),
		)
		enter.add(drop())
		leaving := f.dispatch("leaving", source)
		t.branch(prerouting, f).add(leaving)
		arriving, passing := t.branch(input, f), t.branch(forward, f)
		for _, c := range []*chain{arriving, passing} {
			c.add(n.intrusions(f, nil, layout)...)
			c.add(leaving)
		}
		passing.add(f.dispatch("entering", destination))
		postrouting.add(f.keepSources(&t, layout)...)
	}
	return t
}

// bridgeTable is what a node keeps guests from that are on one bridge with others: such packets pass no other table. There
// are no connections on a bridge, so both ways are judged alike.
func (n *Node) bridgeTable(layout overlay.NodeLayout) table {
	forward := base("forward", nftables.ChainTypeFilter, nftables.ChainHookForward, *nftables.ChainPriorityFilter)
	t := table{family: nftables.TableFamilyBridge, chains: []*chain{forward}}
	for _, f := range families {
		leave, enter := f.guard(&t, layout)
		for _, o := range f.addOpenings(&t, layout.Guarded) {
			leave.add(o.forth, o.back)
			enter.add(o.forth, o.back)
		}
		leave.add(rule(f.in("closed", destination), drop()))
		enter.add(rule(f.in("closed", source), drop()))
		forward.add(n.intrusions(f, f.frame(), layout)...)
		forward.add(rule(f.frame(), f.dispatch("leaving", source)), rule(f.frame(), f.dispatch("entering", destination)))
	}
	return t
}

// intrusions drop what pods of this node send into the VXLAN, where it would seem to come from a peer. The active gateway alone
// talks to nodes there.
func (n *Node) intrusions(f family, packet expression, layout overlay.NodeLayout) []expression {
	vxlan := rule(packet, transport(unix.IPPROTO_UDP), destinationPort(uint16(n.config.VXLANPort))) //nolint:gosec // a port
	var rules []expression
	if g := layout.Gateway; g.IsValid() && f.is(g) {
		rules = append(rules, rule(vxlan, f.within(netip.PrefixFrom(g, g.BitLen()), source), accept()))
	}
	for _, p := range f.prefixes(layout.Here) {
		rules = append(rules, rule(vxlan, f.within(p, source), drop()))
	}
	return rules
}

// guard adds a chain for each tenant and way, which accepts what the guests of a tenant and their home say to each other and
// goes on with the chain that it returns, for what a guest sends or for what is sent to one.
func (f family) guard(t *table, layout overlay.NodeLayout) (leave, enter *chain) {
	leave, enter = &chain{name: "leave" + f.suffix}, &chain{name: "enter" + f.suffix}
	leaving, entering := f.newSet("leaving").toChains(), f.newSet("entering").toChains()
	closed := f.newSet("closed").ofPrefixes()
	closed.addPrefixes(f, slices.Concat(layout.Closed, layout.Own, layout.Routes), "")
	t.sets = append(t.sets, leaving, entering, closed)
	t.chains = append(t.chains, leave, enter)
	for i, tenant := range f.tenants(layout.Guarded) {
		out, in := tenant.chain("leave"), tenant.chain("enter")
		if t.family != nftables.TableFamilyBridge {
			out.add(f.answers()...)
			in.add(f.answers()...)
		}
		out.add(rule(tenant.isGuest(destination), accept()), rule(tenant.isHome(destination), accept()), jump(leave.name))
		in.add(rule(tenant.isGuest(source), accept()), rule(tenant.isHome(source), accept()), jump(enter.name))
		leaving.addAddresses(f, layout.Guarded[i].Pods, out.name)
		entering.addAddresses(f, layout.Guarded[i].Pods, in.name)
		t.sets = append(t.sets, tenant.homes, tenant.guests)
		t.chains = append(t.chains, out, in)
	}
	return leave, enter
}

// answers accepts answers and errors of connections that were accepted.
func (f family) answers() []expression {
	return []expression{
		rule(direction(reply), accept()),
		rule(transport(f.icmp), state(expr.CtStateBitRELATED), accept()),
	}
}

func (f family) addOpenings(t *table, all []overlay.Guests) []opening {
	var found []opening
	for _, g := range all {
		for _, o := range g.Open {
			found = append(found, f.addOpening(t, len(found), o))
		}
	}
	return found
}

// keepSources keeps the sources of what our pods and peers say to each other, before the CNI would translate them: each is
// translated into itself, and what is translated already is left alone by others.
func (f family) keepSources(t *table, layout overlay.NodeLayout) []expression {
	own, peers := f.newSet("own").ofPrefixes(), f.newSet("peers").ofPrefixes()
	own.addPrefixes(f, layout.Own, "")
	peers.addPrefixes(f, layout.Routes, "")
	t.sets = append(t.sets, own, peers)
	return []expression{
		rule(f.packet(), f.in("own", source), f.in("peers", destination), f.toItself()),
		rule(f.packet(), f.in("peers", source), f.in("own", destination), f.toItself()),
	}
}
