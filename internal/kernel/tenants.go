//go:build linux

package kernel

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables/expr"

	"github.com/hanse-dev/hanse/internal/overlay"
)

// A loaded value is a peer, as one address that stands for it, in the given slot.
type loaded func(slot uint32) expression

// tenantSets tell whose a packet is. Both homes, the ranges of peers, and guests, the pods of peers that run here, map to one
// address that stands for the peer. mates are all peers, each paired with itself, because nftables compares nothing with
// nothing else but constants, and looks up pairs in sets.
func (f family) tenantSets(all []overlay.Guests) []*set {
	homes := f.newSet("homes").ofPrefixes().toAddresses(1)
	guests := f.newSet("guests").toAddresses(1)
	mates := f.newSet("mates").ofPairs()
	for _, g := range all {
		peer := f.standIn(g)
		if !peer.IsValid() {
			continue
		}
		mates.add([]netip.Addr{peer, peer}, []netip.Addr{peer, peer}, nil)
		for _, p := range f.prefixes(g.Home) {
			homes.addPrefix(p, peer)
		}
		for _, pod := range g.Pods {
			if f.is(pod) {
				guests.addAddress(pod, peer)
			}
		}
	}
	return []*set{homes, guests, mates}
}

// standIn returns an address that no other peer has, or one that is not valid if the peer has none in this family.
func (f family) standIn(g overlay.Guests) netip.Addr {
	if homes := f.prefixes(g.Home); len(homes) > 0 {
		return homes[0].Addr()
	}
	return f.first(g.Pods)
}

// atHome loads the peer in whose ranges an address lies, and matches if there is one.
func (f family) atHome(address func(slot uint32) expr.Any) loaded {
	return func(slot uint32) expression { return expression{address(slot), f.mapped("homes", slot)} }
}

// guest loads the peer whose pod has that address, and matches if there is one.
func (f family) guest(address func(slot uint32) expr.Any) loaded {
	return func(slot uint32) expression { return expression{address(slot), f.mapped("guests", slot)} }
}

// mates matches if both are of the same peer.
func (f family) mates(one, other loaded) expression {
	return rule(one(0), other(1), expression{f.in("mates")})
}

// An opening lets what is in one set of addresses open connections to what is in another.
type opening struct {
	sets        []*set
	forth, back expression // match packets from the first to the second, and the other way around
	packet      expression
}

// opening makes the opening of that number.
func (f family) opening(number int, o overlay.Opening) opening {
	from, to := fmt.Sprintf("open%dfrom", number), fmt.Sprintf("open%dto", number)
	sets := []*set{f.newSet(from).ofPrefixes(), f.newSet(to).ofPrefixes()}
	for i, side := range [][]netip.Prefix{o.From, o.To} {
		for _, p := range f.prefixes(side) {
			sets[i].addPrefix(p)
		}
	}
	return opening{
		sets:   sets,
		packet: f.packet(),
		forth:  expression{f.source(0), f.in(from), f.destination(0), f.in(to)},
		back:   expression{f.destination(0), f.in(from), f.source(0), f.in(to)},
	}
}

// permit accepts connections, and answers to them.
func (o opening) permit() []expression {
	return []expression{
		rule(o.packet, o.forth, direction(original), accept()),
		rule(o.packet, o.back, direction(reply), accept()),
	}
}
