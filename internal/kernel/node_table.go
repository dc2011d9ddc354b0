//go:build linux

package kernel

import (
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/hanse-dev/hanse/internal/overlay"
)

// Neighbour discovery has ICMPv6 types of its own, which guests must be able to exchange with their node.
const solicitation, redirect = 133, 137

// nodeTable is what a node translates, and what it keeps guests from. The packets of guests are judged before kube-proxy
// translates them, so that no Service leads them elsewhere, and again after that.
func nodeTable(layout overlay.NodeLayout) table {
	prerouting := base("prerouting", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, *nftables.ChainPriorityNATDest-10)
	forward := base("forward", nftables.ChainTypeFilter, nftables.ChainHookForward, *nftables.ChainPriorityFilter)
	input := base("input", nftables.ChainTypeFilter, nftables.ChainHookInput, *nftables.ChainPriorityFilter)
	postrouting := base("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource-10)
	t := table{family: nftables.TableFamilyINet, chains: []*chain{prerouting, forward, input, postrouting}}
	for _, f := range families {
		openings := f.openings(layout.Guarded)
		leave, enter := f.leave(openings), f.enter(openings)
		t.chains = append(t.chains, leave, enter)
		t.sets = append(t.sets, f.sourceSets(layout)...)
		t.sets = append(t.sets, f.guardSets(layout, openings)...)

		leaving := rule(f.packet(), f.guest(f.source)(0), jump(leave.name))
		prerouting.add(leaving)
		input.add(leaving)
		forward.add(leaving, rule(f.packet(), f.guest(f.destination)(0), jump(enter.name)))
		postrouting.add(f.keepSources()...)
	}
	return t
}

// bridgeTable is what a node keeps guests from that are on one bridge with others: such packets pass no other table. There
// are no connections on a bridge, so both ways are judged alike.
func bridgeTable(layout overlay.NodeLayout) table {
	forward := base("forward", nftables.ChainTypeFilter, nftables.ChainHookForward, *nftables.ChainPriorityFilter)
	t := table{family: nftables.TableFamilyBridge, chains: []*chain{forward}}
	for _, f := range families {
		openings := f.openings(layout.Guarded)
		t.sets = append(t.sets, f.guardSets(layout, openings)...)
		forward.add(rule(f.packet(), f.mates(f.guest(f.source), f.guest(f.destination)), accept()))
		for _, o := range openings {
			forward.add(rule(f.packet(), o.forth, accept()), rule(f.packet(), o.back, accept()))
		}
		forward.add(
			rule(f.packet(), f.guest(f.source)(0), expression{f.destination(0), f.in("closed")}, drop()),
			rule(f.packet(), f.guest(f.destination)(0), expression{f.source(0), f.in("closed")}, drop()),
		)
	}
	return t
}

// leave judges what a guest sends: to its home and its own tenant, to what is open, to the Internet, but not to this cluster.
func (f family) leave(openings []opening) *chain {
	c := &chain{name: "leave" + f.suffix, rules: f.tenantsOwn()}
	for _, o := range openings {
		c.add(o.permit()...)
	}
	c.add(
		rule(f.icmpType(solicitation, redirect), accept()),
		rule(expression{f.destination(0), f.in("closed")}, drop()),
		rule(toThisMachine(), drop()),
	)
	return c
}

// enter judges what is sent to a guest, but for what its own node sends, which is not forwarded.
func (f family) enter(openings []opening) *chain {
	c := &chain{name: "enter" + f.suffix, rules: f.tenantsOwn()}
	for _, o := range openings {
		c.add(o.permit()...)
	}
	c.add(drop())
	return c
}

// tenantsOwn accepts answers, errors, and what the guests of a peer and their home say to each other.
func (f family) tenantsOwn() []expression {
	return []expression{
		rule(direction(reply), accept()),
		rule(transport(f.icmp), state(expr.CtStateBitRELATED), accept()),
		rule(f.mates(f.guest(f.source), f.guest(f.destination)), accept()),
		rule(f.mates(f.guest(f.source), f.atHome(f.destination)), accept()),
		rule(f.mates(f.atHome(f.source), f.guest(f.destination)), accept()),
	}
}

func (f family) openings(all []overlay.Guests) []opening {
	var found []opening
	for _, g := range all {
		for _, o := range g.Open {
			found = append(found, f.opening(len(found), o))
		}
	}
	return found
}

func (f family) guardSets(layout overlay.NodeLayout, openings []opening) []*set {
	closed := f.newSet("closed").ofPrefixes()
	for _, p := range f.prefixes(slices.Concat(layout.Closed, layout.Own, layout.Routes)) {
		closed.addPrefix(p)
	}
	sets := append(f.tenantSets(layout.Guarded), closed)
	for _, o := range openings {
		sets = append(sets, o.sets...)
	}
	return sets
}

// sourceSets are pairs of ranges: kept are those between which sources stay as they are, and served those from which
// Services are asked.
func (f family) sourceSets(layout overlay.NodeLayout) []*set {
	kept := f.newSet("kept").ofPrefixes().ofPairs()
	served := f.newSet("served").ofPrefixes().ofPairs()
	routes, own := f.prefixes(layout.Routes), f.prefixes(layout.Own)
	kept.addPairs(routes, own)
	kept.addPairs(own, routes)
	served.addPairs(routes, f.prefixes(layout.Services))
	return []*set{kept, served}
}

// keepSources runs before the CNI translates sources. What is for a Service must come back through this node, where
// kube-proxy chose an endpoint. All else between our pods and peers keeps its source: it is translated into itself, and what
// is translated already is left alone by others.
func (f family) keepSources() []expression {
	return []expression{
		rule(f.packet(), expression{
			f.begun(0, expr.CtKeySRC), f.begun(1, expr.CtKeyDST), f.in("served"), &expr.Masq{},
		}),
		rule(f.packet(), expression{
			f.source(0), f.destination(1), f.in("kept"), f.toAddress(expr.NATTypeSourceNAT),
		}),
	}
}
