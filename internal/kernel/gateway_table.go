// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/hanse-dev/hanse/internal/overlay"
)

const dnsPort = 53

// gatewayTable is what the gateway translates and lets through. Its rules depend on the peers and on the number of openings.
// Pods are in sets alone, because one that comes or goes must not cost more than a few elements.
//
// What may pass is asked for each packet and not only for the first one of a connection, so what is closed is closed at once.
// The ports are those of UDP by which WireGuard and the VXLAN talk.
func gatewayTable(layout overlay.Layout, ports ...int) table {
	prerouting := base("prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, *nftables.ChainPriorityNATDest)
	forward := base("forward", nftables.ChainTypeFilter, nftables.ChainHookForward, *nftables.ChainPriorityFilter)
	forward.policy = nftables.ChainPolicyDrop
	input := base("input", nftables.ChainTypeFilter, nftables.ChainHookInput, *nftables.ChainPriorityFilter)
	postrouting := base("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource)
	t := table{family: nftables.TableFamilyINet, chains: []*chain{prerouting, forward, input, postrouting}}

	// A packet of no known connection would pass untranslated.
	forward.add(rule(state(expr.CtStateBitINVALID|expr.CtStateBitUNTRACKED), drop()), clampMSS())
	for _, f := range families {
		relaying := f.newSet("relaying")
		relaying.addAddresses(f, layout.Relaying, "")
		t.sets = append(t.sets, relaying)
		peers := f.newSet("peers").ofPrefixes()
		peers.addPrefixes(f, layout.Blackholes, "")
		t.sets = append(t.sets, peers)
		// It would go to peers with an address of ours. The kernel itself drops it for IPv4 alone.
		forward.add(rule(f.packet(), from(vxlanLink), f.in("peers", source), drop()))
		prerouting.add(rule(f.packet(), from(tunnelLinks), f.dispatch("inward", source)))
		prerouting.add(f.takeQuestions()...)
		postrouting.add(rule(f.packet(), to(tunnelLinks), f.dispatch("outward", destination)))
		permitted := t.branch(forward, f)
		permitted.add(f.permit()...)
		f.addTranslation(&t, layout)
		f.addPermissions(&t, layout)
		for i, o := range openings(layout.Permissions) {
			permitted.add(f.addOpening(&t, i, o).permit()...)
		}
	}
	// What is not for an address that the peer sees goes no further, and what has none shows not its own.
	prerouting.add(rule(from(tunnelLinks), drop()))
	postrouting.add(rule(to(tunnelLinks), drop()))
	permitToGateway(&t, input)
	addDirect(&t, layout.Direct)
	untrack(&t, ports...)
	return t
}

func openings(all []overlay.Permissions) []overlay.Opening {
	var found []overlay.Opening
	for _, p := range all {
		found = append(found, p.Open...)
	}
	return found
}

// addTranslation adds a chain for each peer and way, and the maps that lead there. The first rule of a chain that knows the
// address translates it, or leaves it alone if both clusters call it the same.
func (f family) addTranslation(t *table, layout overlay.Layout) {
	inward, outward := f.newSet("inward").ofPrefixes().toChains(), f.newSet("outward").ofPrefixes().toChains()
	resolvers := f.newSet("resolvers").toAddresses()
	t.sets = append(t.sets, inward, outward, resolvers)
	own := f.first(layout.Addresses)
	for i, peer := range layout.Translations {
		in, out := &chain{name: fmt.Sprintf("inward-%d-%s", i, f.suffix)}, &chain{name: fmt.Sprintf("outward-%d-%s", i, f.suffix)}
		t.chains = append(t.chains, in, out)
		inward.addPrefixes(f, peer.From, in.name)
		outward.addPrefixes(f, peer.From, out.name)
		if own.IsValid() {
			in.add(f.takeQuestionsFor(peer.Questions, own)...)
		}
		for _, m := range peer.Ours {
			if f.is(m.Own.Addr()) {
				in.add(rule(f.within(m.Seen, destination), f.move(expr.NATTypeDestNAT, m.Seen, m.Own)))
				out.add(rule(f.within(m.Own, source), f.move(expr.NATTypeSourceNAT, m.Own, m.Seen)))
			}
		}
		for _, p := range f.prefixes(untranslated(layout.Permissions, peer)) {
			in.add(rule(f.within(p, destination), accept()))
			out.add(rule(f.within(p, source), accept()))
		}
		if host := f.first(peer.Hosts); host.IsValid() {
			out.add(f.toAddress(expr.NATTypeSourceNAT, host))
		}
	}
	if own.IsValid() {
		resolvers.addAddresses(f, layout.Resolvers, string(own.AsSlice()))
	}
}

// move translates from one range into another, and leaves alone what is the same in both.
func (f family) move(kind expr.NATType, from, to netip.Prefix) expression {
	if from == to {
		return accept()
	}
	return f.toPrefix(kind, to)
}

// untranslated returns those of our ranges that the peer sees as they are.
func untranslated(all []overlay.Permissions, t overlay.Translation) []netip.Prefix {
	var found []netip.Prefix
	for _, p := range all {
		if p.Peer == t.Peer {
			found = append(found, p.Reached...)
		}
	}
	return slices.DeleteFunc(found, func(p netip.Prefix) bool {
		return slices.ContainsFunc(t.Ours, func(m overlay.Mapping) bool { return m.Own.Overlaps(p) })
	})
}

// takeQuestions has the gateway itself answer what pods ask name servers of peers.
func (f family) takeQuestions() []expression {
	var rules []expression
	for _, protocol := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		rules = append(rules, rule(f.packet(), from(vxlanLink), transport(protocol), destinationPort(dnsPort), f.toMapped("resolvers")))
	}
	return rules
}

// takeQuestionsFor has the gateway itself answer what pods that were sent on ask name servers of their home.
func (f family) takeQuestionsFor(servers []netip.Addr, own netip.Addr) []expression {
	var rules []expression
	for _, server := range f.addresses(servers) {
		for _, protocol := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
			rules = append(rules, rule(
				f.within(netip.PrefixFrom(server, server.BitLen()), destination), transport(protocol), destinationPort(dnsPort),
				f.toAddress(expr.NATTypeDestNAT, own),
			))
		}
	}
	return rules
}

// addPermissions adds the sets of pods, and a chain for each peer and way: with what arrives from it, and what departs to it.
func (f family) addPermissions(t *table, layout overlay.Layout) {
	ranges := map[string][]netip.Prefix{} // Peer → ranges in which we see it
	for _, t := range layout.Translations {
		ranges[t.Peer] = t.From
	}
	theirs, guests, sent := f.newSet("theirs"), f.newSet("guests"), f.newSet("sent")
	arriving, departing := f.newSet("arriving").ofPrefixes().toChains(), f.newSet("departing").ofPrefixes().toChains()
	arrivingSent, departingSent := f.newSet("arriving-sent").toChains(), f.newSet("departing-sent").toChains()
	t.sets = append(t.sets, theirs, guests, sent, arriving, departing, arrivingSent, departingSent)
	for i, p := range layout.Permissions {
		peer := tenant{f: f, number: i, guests: f.newSet(fmt.Sprintf("guests-%d-", i))}
		for _, s := range []*set{peer.guests, guests} {
			s.addAddresses(f, p.Guests, "")
			s.addAddresses(f, p.SentOn, "")
		}
		sent.addAddresses(f, p.SentOn, "")
		theirs.addAddresses(f, p.Theirs, "")
		arrive, depart := peer.chain("arrive"), peer.chain("depart")
		arrive.add(rule(peer.isGuest(destination), accept()), rule(f.in("guests", destination), drop()))
		for _, r := range f.prefixes(p.Reached) {
			arrive.add(rule(f.in("theirs", source), f.within(r, destination), accept()))
		}
		depart.add(rule(peer.isGuest(source), accept()))
		arriving.addPrefixes(f, ranges[p.Peer], arrive.name)
		departing.addPrefixes(f, ranges[p.Peer], depart.name)
		arrivingSent.addAddresses(f, p.SentOn, arrive.name)
		departingSent.addAddresses(f, p.SentOn, depart.name)
		t.sets = append(t.sets, peer.guests)
		t.chains = append(t.chains, arrive, depart)
	}
}

// permit lets guests and their home talk, and our pods at peers with all that is ours. What comes from a peer has an address
// of that peer, because WireGuard drops all else. A guest that was sent on counts as one here, and all that comes from it or goes
// to it, as if that were of its home.
func (f family) permit() []expression {
	in, out := from(tunnelLinks), to(tunnelLinks)
	return []expression{
		// An error about a connection comes from whatever router found it, to who sent what cannot go on.
		rule(transport(f.icmp), state(expr.CtStateBitRELATED), accept()),

		rule(in, f.dispatch("arriving-sent", source)),
		rule(out, f.dispatch("departing-sent", destination)),
		rule(in, f.dispatch("arriving", source)),
		rule(out, f.in("sent", destination), drop()),
		rule(out, f.dispatch("departing", destination)),
		rule(f.in("guests", source), drop()),
		rule(out, from(vxlanLink), f.in("theirs", destination), accept()), // most packets; none of these is for a guest
		rule(f.in("guests", destination), drop()),

		rule(in, f.in("theirs", source), direction(reply), accept()),
		rule(in, f.in("theirs", source), f.in("theirs", destination), accept()),
	}
}

// permitToGateway lets peers and pods ask the gateway itself for an echo, and pods for a name, also those that were sent on, and
// gateways send what is passed on. Each of our interfaces has a chain of its own, because everything that WireGuard and the VXLAN
// take in passes here too: two rules see that it is from elsewhere.
func permitToGateway(t *table, input *chain) {
	const echo4, echo6, discovery, discovered = 8, 128, 133, 136
	peers, pods := &chain{name: "input-" + tunnelLink}, &chain{name: "input-" + vxlanLink}
	for _, c := range []*chain{peers, pods} {
		c.add(
			rule(direction(reply), accept()),
			rule(state(expr.CtStateBitRELATED), accept()),
			rule(ipv4.icmpType(echo4), accept()),
			rule(ipv6.icmpType(echo6), accept()),
		)
	}
	for _, protocol := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		pods.add(rule(transport(protocol), destinationPort(dnsPort), accept()))
		for _, f := range families {
			peers.add(rule(f.packet(), f.in("sent", source), transport(protocol), destinationPort(dnsPort), accept()))
		}
	}
	for _, f := range families {
		peers.add(rule(
			f.packet(), f.in("relaying", source), transport(unix.IPPROTO_UDP), portsAt(destination, overlay.RelayedPort, overlay.LastRelayPort), accept(),
		))
	}
	pods.add(rule(ipv6.icmpTypes(discovery, discovered), accept()), drop())
	peers.add(drop())
	input.add(rule(from(tunnelLinks), jump(peers.name)), rule(from(vxlanLink), jump(pods.name)))
	t.chains = append(t.chains, peers, pods)
}

// untrack keeps what WireGuard and the VXLAN themselves send and take in from being tracked, which nobody needs. What is in them
// must be: without a connection there is no translation.
func untrack(t *table, ports ...int) {
	in := base("untracked-in", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, *nftables.ChainPriorityRaw)
	out := base("untracked-out", nftables.ChainTypeFilter, nftables.ChainHookOutput, *nftables.ChainPriorityRaw)
	for _, port := range ports {
		port := uint16(port) //nolint:gosec // a port
		in.add(rule(transport(unix.IPPROTO_UDP), destinationPort(port), notFrom(tunnelLinks), notFrom(vxlanLink), notrack()))
		out.add(rule(transport(unix.IPPROTO_UDP), destinationPort(port), notTo(tunnelLinks), notTo(vxlanLink), notrack()))
		out.add(rule(transport(unix.IPPROTO_UDP), sourcePort(port), notTo(tunnelLinks), notTo(vxlanLink), notrack()))
	}
	t.chains = append(t.chains, in, out)
}
