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

const dnsPort = 53

// gatewayTable is what the gateway translates and lets through. Its rules depend on the number of openings alone. All else is
// in sets, because a pod that comes or goes must not cost more than one element.
//
// What may pass is asked for each packet and not only for the first one of a connection, so what is closed is closed at once.
func gatewayTable(layout overlay.Layout) table {
	prerouting := base("prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, *nftables.ChainPriorityNATDest)
	forward := base("forward", nftables.ChainTypeFilter, nftables.ChainHookForward, *nftables.ChainPriorityFilter)
	forward.policy = nftables.ChainPolicyDrop
	input := base("input", nftables.ChainTypeFilter, nftables.ChainHookInput, *nftables.ChainPriorityFilter)
	postrouting := base("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource)
	t := table{family: nftables.TableFamilyINet, chains: []*chain{prerouting, forward, input, postrouting}}

	// A packet of no known connection would pass untranslated.
	forward.add(rule(state(expr.CtStateBitINVALID), drop()), clampMSS())
	for _, f := range families {
		t.sets = append(t.sets, f.translationSets(layout)...)
		t.sets = append(t.sets, f.permissionSets(layout)...)
		prerouting.add(f.translateDestinations()...)
		postrouting.add(f.translateSources()...)
		forward.add(f.permit()...)
	}
	for i, o := range openings(layout.Permissions) {
		for _, f := range families {
			opened := f.opening(i, o)
			t.sets = append(t.sets, opened.sets...)
			forward.add(opened.permit()...)
		}
	}
	input.add(permitToGateway()...)
	return t
}

func openings(all []overlay.Permissions) []overlay.Opening {
	var found []overlay.Opening
	for _, p := range all {
		found = append(found, p.Open...)
	}
	return found
}

// translationSets are maps of pairs: the range of a peer, and one of ours as one of the two calls it, which gives the first and
// the last address of that range as the other calls it. alike pairs those that both call the same.
func (f family) translationSets(layout overlay.Layout) []*set {
	inward := f.newSet("inward").ofPrefixes().ofPairs().toAddresses(2)
	outward := f.newSet("outward").ofPrefixes().ofPairs().toAddresses(2)
	alike := f.newSet("alike").ofPrefixes().ofPairs()
	hosts := f.newSet("hosts").ofPrefixes().toAddresses(1)
	for _, t := range layout.Translations {
		host := f.first(t.Hosts)
		alike.addPairs(f.prefixes(t.From), f.prefixes(untranslated(layout.Permissions, t)))
		for _, peer := range f.prefixes(t.From) {
			for _, m := range t.Ours {
				if f.is(m.Own.Addr()) {
					inward.addPair(peer, m.Seen, m.Own.Masked().Addr(), last(m.Own))
					outward.addPair(peer, m.Own, m.Seen.Masked().Addr(), last(m.Seen))
				}
			}
			if host.IsValid() {
				hosts.addPrefix(peer, host)
			}
		}
	}
	return []*set{inward, outward, alike, hosts, f.resolvers(layout)}
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

// resolvers maps the name servers of peers to the gateway itself.
func (f family) resolvers(layout overlay.Layout) *set {
	resolvers := f.newSet("resolvers").toAddresses(1)
	if own := f.first(layout.Addresses); own.IsValid() {
		for _, r := range layout.Resolvers {
			if f.is(r) {
				resolvers.addAddress(r, own)
			}
		}
	}
	return resolvers
}

// translateDestinations also drops what is for an address that is not one of ours as the peer sees us.
func (f family) translateDestinations() []expression {
	in := rule(f.packet(), from(tunnelLink))
	rules := []expression{
		rule(in, expression{f.source(0), f.destination(1), f.mapped("inward", 0), f.toPrefix(expr.NATTypeDestNAT)}),
		rule(in, expression{f.source(0), f.destination(1), f.in("alike")}, accept()),
		rule(in, drop()),
	}
	for _, protocol := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		rules = append(rules, rule(f.packet(), from(vxlanLink), transport(protocol), destinationPort(dnsPort), expression{
			f.destination(0), f.mapped("resolvers", 0), f.toAddress(expr.NATTypeDestNAT),
		}))
	}
	return rules
}

// translateSources has whatever has no address that the peer sees show that of the gateway, or drops it if that has none.
func (f family) translateSources() []expression {
	out := rule(f.packet(), to(tunnelLink))
	return []expression{
		rule(out, expression{f.destination(0), f.source(1), f.mapped("outward", 0), f.toPrefix(expr.NATTypeSourceNAT)}),
		rule(out, expression{f.destination(0), f.source(1), f.in("alike")}, accept()),
		rule(out, expression{f.destination(0), f.mapped("hosts", 0), f.toAddress(expr.NATTypeSourceNAT)}),
		rule(out, drop()),
	}
}

// permissionSets say who is who: theirs are our pods at peers, and reached pairs the ranges of a peer with those of ours that
// our pods there reach.
func (f family) permissionSets(layout overlay.Layout) []*set {
	theirs := f.newSet("theirs")
	reached := f.newSet("reached").ofPrefixes().ofPairs()
	ranges := map[string][]netip.Prefix{} // Peer → ranges in which we see it
	for _, t := range layout.Translations {
		ranges[t.Peer] = t.From
	}
	var guests []overlay.Guests
	for _, p := range layout.Permissions {
		theirs.addAddresses(f, p.Theirs)
		reached.addPairs(f.prefixes(ranges[p.Peer]), f.prefixes(p.Reached))
		guests = append(guests, overlay.Guests{Peer: p.Peer, Pods: p.Guests, Home: ranges[p.Peer]})
	}
	return append(f.tenantSets(guests), theirs, reached)
}

// permit lets guests and their home talk, and our pods at peers with all that is ours. What comes from a peer has an address
// of that peer, because WireGuard drops all else.
func (f family) permit() []expression {
	in, out, ours := rule(f.packet(), from(tunnelLink)), rule(f.packet(), to(tunnelLink)), rule(from(vxlanLink))
	theirs := func(address expr.Any) expression { return expression{address, f.in("theirs")} }
	return []expression{
		// An error about a connection comes from whatever router found it, to who sent what cannot go on.
		rule(f.packet(), transport(f.icmp), state(expr.CtStateBitRELATED), accept()),

		rule(in, f.mates(f.atHome(f.source), f.guest(f.destination)), accept()),
		rule(out, f.mates(f.guest(f.source), f.atHome(f.destination)), accept()),
		rule(f.packet(), f.guest(f.source)(0), drop()),
		rule(f.packet(), f.guest(f.destination)(0), drop()),

		rule(in, theirs(f.source(0)), expression{f.source(0), f.destination(1), f.in("reached")}, accept()),
		rule(in, theirs(f.source(0)), direction(reply), accept()),
		rule(in, theirs(f.source(0)), theirs(f.destination(0)), accept()),
		rule(out, ours, theirs(f.destination(0)), accept()),
	}
}

// permitToGateway lets peers and pods ask the gateway itself for an echo, and pods for a name.
func permitToGateway() []expression {
	const echo4, echo6, discovery, discovered = 8, 128, 133, 136
	var rules []expression
	for _, link := range []string{tunnelLink, vxlanLink} {
		rules = append(rules,
			rule(from(link), direction(reply), accept()),
			rule(from(link), state(expr.CtStateBitRELATED), accept()),
			rule(from(link), ipv4.icmpType(echo4, echo4), accept()),
			rule(from(link), ipv6.icmpType(echo6, echo6), accept()),
		)
	}
	for _, protocol := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		rules = append(rules, rule(from(vxlanLink), transport(protocol), destinationPort(dnsPort), accept()))
	}
	return append(rules,
		rule(from(vxlanLink), ipv6.icmpType(discovery, discovered), accept()),
		rule(from(tunnelLink), drop()),
		rule(from(vxlanLink), drop()),
	)
}
