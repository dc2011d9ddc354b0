// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/hanse-dev/hanse/internal/overlay"
)

// addDirect gives packets on direct ways other addresses: those that come in before anything else looks at them, and those that go
// out after everything else has. In between they are what they would be on the way through home. So connections, and what may pass,
// do not depend on the way, and each packet of a connection may take another one. Addresses are replaced without a connection, hence
// in errors of ICMP too.
func addDirect(t *table, all []overlay.Direct) {
	if len(all) == 0 {
		return
	}
	const last = 10 // after the translation of sources
	in := base("direct-in", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, *nftables.ChainPriorityRaw)
	out := base("direct-out", nftables.ChainTypeFilter, nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource+last)
	t.chains = append(t.chains, in, out)
	for _, f := range families {
		incoming, outgoing := f.newSet("direct-in").ofPrefixes().toChains(), f.newSet("direct-out").ofPrefixes().toChains()
		t.sets = append(t.sets, incoming, outgoing)
		in.add(rule(f.packet(), from(tunnelLinks), f.dispatch("direct-in", source)))
		out.add(rule(f.packet(), to(tunnelLinks), f.dispatch("direct-out", destination)))
		for i, d := range all {
			w := directWay{family: f, Direct: d, number: i}
			arrive, depart := w.add(t, "arrive", w.guests(w.In.Destinations), destination), w.add(t, "depart", w.Guests, source)
			arrive.add(drop()) // from there comes nothing else
			for _, m := range d.In.Sources {
				incoming.addPrefixes(f, []netip.Prefix{m.Own}, arrive.name)
			}
			for _, m := range d.Out.Destinations {
				outgoing.addPrefixes(f, []netip.Prefix{m.Own}, depart.name)
			}
			w.replace(t, "arrive", d.In)
			w.replace(t, "depart", d.Out)
		}
	}
}

// A directWay is one direct way for the packets of one family.
type directWay struct {
	family
	overlay.Direct

	number int
}

func (w directWay) name(name string) string { return fmt.Sprintf("direct-%s-%d-", name, w.number) }

// guests returns the guests as the peer sees them, which home sees in the ranges that these mappings lead to.
func (w directWay) guests(mappings []overlay.Mapping) []netip.Addr {
	var there []netip.Addr
	for _, g := range w.Guests {
		if a, ok := overlay.Own(mappings, g); ok {
			there = append(there, a)
		}
	}
	return there
}

// add adds a chain for one direction, that passes on what has one of the guests on that side.
func (w directWay) add(t *table, name string, guests []netip.Addr, where side) *chain {
	name = w.name(name)
	s, c := w.newSet(name), &chain{name: name + w.suffix}
	s.addAddresses(w.family, guests, "")
	c.add(rule(w.in(name, where), jump(name+"addresses"+w.suffix)))
	t.sets, t.chains = append(t.sets, s), append(t.chains, c)
	return c
}

// replace adds the chain that replaces the addresses of packets, and those of the packet that is quoted if one is an error: that went
// the other way. Both addresses are replaced by one rule, because where one range leads another may begin.
func (w directWay) replace(t *table, name string, r overlay.Rewriting) {
	c := &chain{name: w.name(name) + "addresses" + w.suffix}
	quoted := &chain{name: w.name(name) + "quoted" + w.suffix}
	t.chains = append(t.chains, c, quoted)
	for _, types := range w.errors {
		c.add(rule(w.icmpTypes(types[0], types[1]), jump(quoted.name)))
	}
	for _, from := range w.mappings(r.Sources) {
		for _, to := range w.mappings(r.Destinations) {
			c.add(rule(
				w.within(from.Own, source), w.within(to.Own, destination), w.rewrite(source, from.Seen), w.rewrite(destination, to.Seen), accept(),
			))
			quoted.add(rule(
				within(to.Own, w.quote(source)), within(from.Own, w.quote(destination)),
				w.rewriteQuote(source, to.Seen), w.rewriteQuote(destination, from.Seen), verdict(expr.VerdictReturn),
			))
		}
	}
}

func (f family) mappings(all []overlay.Mapping) []overlay.Mapping {
	return slices.DeleteFunc(slices.Clone(all), func(m overlay.Mapping) bool { return !f.is(m.Own.Addr()) })
}

// quote loads an address of the packet that an error is about.
func (f family) quote(where side) *expr.Payload {
	address := f.load(where)
	address.Base = expr.PayloadBaseTransportHeader
	address.Offset += quoteOffset
	return address
}

// Offsets in an error of ICMP of the packet that it is about, in a header of IPv4 of its checksum, and of that of ICMPv6 in its own.
const quoteOffset, checksum4, checksum6 = 8, 10, 2

// rewrite replaces the front part of an address by that of the range, and keeps all checksums right.
func (f family) rewrite(where side, to netip.Prefix) expression {
	checksum := expr.Payload{CsumFlags: unix.NFT_PAYLOAD_L4CSUM_PSEUDOHDR}
	if f.af == unix.AF_INET {
		checksum.CsumType, checksum.CsumOffset = expr.CsumTypeInet, checksum4
	}
	return replaceFront(f.load(where), to, checksum)
}

// rewriteQuote does so in the packet that an error is about. ICMP of IPv4 sums up the quoted header, in which a change of an address
// and that of the checksum make up for each other.
func (f family) rewriteQuote(where side, to netip.Prefix) expression {
	checksum := expr.Payload{CsumType: expr.CsumTypeInet, CsumOffset: checksum6}
	if f.af == unix.AF_INET {
		checksum.CsumOffset = quoteOffset + checksum4
	}
	return replaceFront(f.quote(where), to, checksum)
}

func replaceFront(address *expr.Payload, to netip.Prefix, checksum expr.Payload) expression {
	rest := net.CIDRMask(to.Bits(), to.Addr().BitLen())
	for i := range rest {
		rest[i] = ^rest[i]
	}
	write := checksum
	write.OperationType, write.SourceRegister = expr.PayloadWrite, unix.NFT_REG_1
	write.Base, write.Offset, write.Len = address.Base, address.Offset, address.Len
	return expression{address, masked(rest, to.Masked().Addr().AsSlice()), &write}
}
