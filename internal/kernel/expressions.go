//go:build linux

package kernel

import (
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
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

// iif name.
func from(link string) expression {
	return expression{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: unix.NFT_REG_1}, equals(linkName(link))}
}

// oif name.
func to(link string) expression {
	return expression{&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: unix.NFT_REG_1}, equals(linkName(link))}
}

func linkName(name string) []byte {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return padded
}

// packet matches those of the family, whatever the table is for: meta protocol.
func (f family) packet() expression {
	return expression{&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: unix.NFT_REG_1}, equals(binaryutil.BigEndian.PutUint16(f.ethertype))}
}

func transport(protocol byte) expression {
	return expression{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: unix.NFT_REG_1}, equals([]byte{protocol})}
}

func destinationPort(port uint16) expression {
	return expression{
		&expr.Payload{DestRegister: unix.NFT_REG_1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		equals(binaryutil.BigEndian.PutUint16(port)),
	}
}

// icmpType matches types from the lowest to the highest.
func (f family) icmpType(lowest, highest byte) expression {
	return rule(transport(f.icmp), expression{
		&expr.Payload{DestRegister: unix.NFT_REG_1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
		&expr.Range{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, FromData: []byte{lowest}, ToData: []byte{highest}},
	})
}

// source loads the source address into a slot.
func (f family) source(slot uint32) expr.Any { return f.header(slot, f.saddr) }

// destination loads the destination address into a slot.
func (f family) destination(slot uint32) expr.Any { return f.header(slot, f.daddr) }

func (f family) header(slot, offset uint32) expr.Any {
	return &expr.Payload{DestRegister: f.register(slot), Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.address.Bytes}
}

// begun loads an address of the packet that began the connection, before any translation: ct original saddr, daddr.
func (f family) begun(slot uint32, key expr.CtKey) expr.Any {
	return &expr.Ct{Register: f.register(slot), Key: key, Direction: uint32(original)}
}

// in matches if what is in the first slot, or in the first two if it is a set of pairs, is in the set.
func (f family) in(set string) expr.Any {
	return &expr.Lookup{SourceRegister: f.register(0), SetName: set + f.suffix}
}

// mapped replaces what is in the slot by the value that the map has for it, and matches if there is one.
func (f family) mapped(set string, slot uint32) expr.Any {
	return &expr.Lookup{SourceRegister: f.register(slot), DestRegister: f.register(slot), IsDestRegSet: true, SetName: set + f.suffix}
}

func direction(is byte) expression {
	return expression{&expr.Ct{Key: expr.CtKeyDIRECTION, Register: unix.NFT_REG_1}, equals([]byte{is})}
}

func state(bits uint32) expression {
	return expression{
		&expr.Ct{Key: expr.CtKeySTATE, Register: unix.NFT_REG_1},
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

// toPrefix translates into the range whose first and last address are in the first two slots: dnat, snat prefix to.
func (f family) toPrefix(kind expr.NATType) expr.Any {
	return &expr.NAT{Type: kind, Family: uint32(f.af), RegAddrMin: f.register(0), RegAddrMax: f.register(1), Prefix: true} //nolint:gosec // address families are small
}

// toAddress translates into the address in the first slot: dnat, snat to.
func (f family) toAddress(kind expr.NATType) expr.Any {
	return &expr.NAT{Type: kind, Family: uint32(f.af), RegAddrMin: f.register(0)} //nolint:gosec // address families are small
}

func verdict(kind expr.VerdictKind) expression { return expression{&expr.Verdict{Kind: kind}} }

func accept() expression { return verdict(expr.VerdictAccept) }

func drop() expression { return verdict(expr.VerdictDrop) }

func jump(chain string) expression {
	return expression{&expr.Verdict{Kind: expr.VerdictJump, Chain: chain}}
}

// base makes a chain that the kernel itself calls.
func base(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority nftables.ChainPriority) *chain {
	return &chain{name: name, kind: kind, hook: hook, priority: priority, policy: nftables.ChainPolicyAccept}
}
