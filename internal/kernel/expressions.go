// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/hanse-dev/hanse/internal/overlay"
)

// An expression is a part of a rule: what it matches or does. The words of nft are beside those that are not obvious.
type expression = []expr.Any

// Directions of a packet in its connection, as conntrack numbers them.
const (
	original byte = 0
	reply    byte = 1
)

// A rule does what its last part says with packets that match all the others.
func rule(parts ...expression) expression { return slices.Concat(parts...) }

func equals(value []byte) expr.Any {
	return &expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: value}
}

// ranging compares with all from the lowest to the highest.
func ranging(lowest, highest []byte) expr.Any {
	if bytes.Equal(lowest, highest) {
		return equals(lowest)
	}
	return &expr.Range{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, FromData: lowest, ToData: highest}
}

// iif name.
func from(link string) expression {
	return expression{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: unix.NFT_REG_1}, equals(linkName(link))}
}

// oif name.
func to(link string) expression {
	return expression{&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: unix.NFT_REG_1}, equals(linkName(link))}
}

// iif name != name.
func notFrom(link string) expression { return not(from(link)) }

// oif name != name.
func notTo(link string) expression { return not(to(link)) }

// not turns a comparison around, which must be the last part.
func not(e expression) expression {
	last := len(e) - 1
	compared := *e[last].(*expr.Cmp) //nolint:forcetypeassert // see above
	compared.Op = expr.CmpOpNeq
	return append(slices.Clone(e[:last]), &compared)
}

// linkName returns what to compare a name with. One that ends with an asterisk stands for all that begin so.
func linkName(name string) []byte {
	if start, ok := strings.CutSuffix(name, "*"); ok {
		return []byte(start)
	}
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return padded
}

// packet matches those of the family in a table for both: meta nfproto.
func (f family) packet() expression {
	return expression{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: unix.NFT_REG_1}, equals([]byte{byte(f.af)})} //nolint:gosec // address families are small
}

// frame matches those of the family in a table of bridges: meta protocol.
func (f family) frame() expression {
	return expression{&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: unix.NFT_REG_1}, equals(binaryutil.BigEndian.PutUint16(f.ethertype))}
}

func transport(protocol byte) expression {
	return expression{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: unix.NFT_REG_1}, equals([]byte{protocol})}
}

func sourcePort(port uint16) expression { return portsAt(source, port, port) }

func destinationPort(port uint16) expression { return portsAt(destination, port, port) }

// portsAt matches ports from the lowest to the highest.
func portsAt(where side, lowest, highest uint16) expression {
	port := &expr.Payload{DestRegister: unix.NFT_REG_1, Base: expr.PayloadBaseTransportHeader, Len: 2}
	if where == destination {
		port.Offset = 2
	}
	return expression{port, ranging(binaryutil.BigEndian.PutUint16(lowest), binaryutil.BigEndian.PutUint16(highest))}
}

// laterFragment matches fragments of a packet but for the first: ip frag-off & 0x1fff != 0, frag frag-off != 0.
func (f family) laterFragment() expression {
	offset := expression{&expr.Payload{DestRegister: unix.NFT_REG_1, Base: expr.PayloadBaseNetworkHeader, Offset: 6, Len: 2}}
	mask := []byte{0x1f, 0xff}
	if f.af == unix.AF_INET6 {
		offset = expression{&expr.Exthdr{DestRegister: unix.NFT_REG_1, Op: expr.ExthdrOpIpv6, Type: unix.IPPROTO_FRAGMENT, Offset: 2, Len: 2}}
		mask = []byte{0xff, 0xf8}
	}
	return rule(offset, expression{
		&expr.Bitwise{SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: 2, Mask: mask, Xor: []byte{0, 0}},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: unix.NFT_REG_1, Data: []byte{0, 0}},
	})
}

func (f family) icmpType(is byte) expression { return f.icmpTypes(is, is) }

// icmpTypes matches types from the lowest to the highest.
func (f family) icmpTypes(lowest, highest byte) expression {
	kind := rule(transport(f.icmp), expression{
		&expr.Payload{DestRegister: unix.NFT_REG_1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
	})
	return append(kind, ranging([]byte{lowest}, []byte{highest}))
}

// A side is where in a packet an address is.
type side bool

const (
	source      side = true
	destination side = false
)

// load loads the address of a side.
func (f family) load(where side) *expr.Payload {
	offset := f.daddr
	if where == source {
		offset = f.saddr
	}
	return &expr.Payload{DestRegister: unix.NFT_REG_1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.address.Bytes}
}

// in matches if the address is in the set.
func (f family) in(set string, where side) expression {
	return expression{f.load(where), &expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: set + f.suffix}}
}

// within matches if the address is in the range.
func (f family) within(p netip.Prefix, where side) expression { return within(p, f.load(where)) }

// within matches if the address that is loaded is in the range.
func within(p netip.Prefix, address *expr.Payload) expression {
	mask := net.CIDRMask(p.Bits(), p.Addr().BitLen())
	return expression{address, masked(mask, make([]byte, len(mask))), equals(p.Masked().Addr().AsSlice())}
}

// masked keeps some bits of what is loaded, and turns others around.
func masked(keep, turn []byte) expr.Any {
	return &expr.Bitwise{
		SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: uint32(len(keep)), Mask: keep, Xor: turn, //nolint:gosec // of an address
	}
}

// dispatch jumps to the chain that the map has for the address, if there is one: vmap.
func (f family) dispatch(set string, where side) expression {
	return expression{f.load(where), &expr.Lookup{
		SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true, SetName: set + f.suffix,
	}}
}

func direction(is byte) expression {
	return expression{&expr.Ct{Key: expr.CtKeyDIRECTION, Register: unix.NFT_REG_1}, equals([]byte{is})}
}

func state(bits uint32) expression { return connection(expr.CtKeySTATE, bits) }

// translatedDestination matches what another has translated, such as kube-proxy: ct status dnat.
func translatedDestination() expression {
	const dnat = 1 << 5
	return connection(expr.CtKeySTATUS, dnat)
}

// connection matches if one of the bits is set.
func connection(key expr.CtKey, bits uint32) expression {
	return expression{
		&expr.Ct{Key: key, Register: unix.NFT_REG_1},
		&expr.Bitwise{
			SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: unix.NFT_REG_1, Data: make([]byte, 4)},
	}
}

// toThisMachine matches what is for an address of it: fib daddr type local.
func toThisMachine() expression {
	return expression{
		&expr.Fib{Register: unix.NFT_REG_1, FlagDADDR: true, ResultADDRTYPE: true},
		equals(binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)),
	}
}

// clampMSS lowers the segment size that a new TCP connection announces to what the packet's route takes:
// tcp flags syn / syn,rst tcp option maxseg size set rt mtu.
func clampMSS() expression {
	const syn, rst, flagsOffset, mssOption = 0x02, 0x04, 13, 2
	return rule(transport(unix.IPPROTO_TCP), expression{
		&expr.Payload{DestRegister: unix.NFT_REG_1, Base: expr.PayloadBaseTransportHeader, Offset: flagsOffset, Len: 1},
		&expr.Bitwise{SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: 1, Mask: []byte{syn | rst}, Xor: []byte{0}},
		equals([]byte{syn}),
		&expr.Rt{Register: unix.NFT_REG_1, Key: expr.RtTCPMSS},
		&expr.Byteorder{SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Op: expr.ByteorderHton, Len: 2, Size: 2},
		&expr.Exthdr{SourceRegister: unix.NFT_REG_1, Op: expr.ExthdrOpTcpopt, Type: mssOption, Offset: 2, Len: 2},
	})
}

// toPrefix translates into the same place of another range: dnat, snat prefix to.
func (f family) toPrefix(kind expr.NATType, p netip.Prefix) expression {
	n := f.nat(kind)
	n.RegAddrMax, n.Prefix = unix.NFT_REG_2, true
	return expression{
		&expr.Immediate{Register: unix.NFT_REG_1, Data: p.Masked().Addr().AsSlice()},
		&expr.Immediate{Register: unix.NFT_REG_2, Data: overlay.Last(p).AsSlice()},
		n,
	}
}

// toAddress translates into one address.
func (f family) toAddress(kind expr.NATType, a netip.Addr) expression {
	return expression{&expr.Immediate{Register: unix.NFT_REG_1, Data: a.AsSlice()}, f.nat(kind)}
}

// toMapped translates destinations into what the map has for them: dnat to ip daddr map.
func (f family) toMapped(set string) expression {
	return expression{
		f.load(destination),
		&expr.Lookup{SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, IsDestRegSet: true, SetName: set + f.suffix},
		f.nat(expr.NATTypeDestNAT),
	}
}

// toItself translates sources into themselves: snat to ip saddr.
func (f family) toItself() expression {
	return expression{f.load(source), f.nat(expr.NATTypeSourceNAT)}
}

func (f family) nat(kind expr.NATType) *expr.NAT {
	return &expr.NAT{Type: kind, Family: uint32(f.af), RegAddrMin: unix.NFT_REG_1} //nolint:gosec // address families are small
}

func verdict(kind expr.VerdictKind) expression { return expression{&expr.Verdict{Kind: kind}} }

// notrack keeps a packet from being tracked.
func notrack() expression { return expression{&expr.Notrack{}} }

func accept() expression { return verdict(expr.VerdictAccept) }

func drop() expression { return verdict(expr.VerdictDrop) }

func jump(chain string) expression {
	return expression{&expr.Verdict{Kind: expr.VerdictJump, Chain: chain}}
}

// base makes a chain that the kernel itself calls.
func base(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority nftables.ChainPriority) *chain {
	return &chain{name: name, kind: kind, hook: hook, priority: priority, policy: nftables.ChainPolicyAccept}
}
