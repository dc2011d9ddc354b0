// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A Conflict says what is left out of the network of a peer, and why, in words for the condition of an object: a reason of
// the API and a message, which is the same each time that the same is wrong.
type Conflict struct {
	Peer, Reason, Message string
}

// The widest ranges that a cluster may have. Nothing real is wider, and one that took more would leave nothing to others. For the
// same reason all of its ranges together have at most mostWidest times as many addresses.
const widest4, widest6, mostWidest = 8, 40, 4

// unusable are ranges in which no pods and no Services are: of this network, of hosts themselves, of links, of groups.
var unusable = newSpace(prefixes(
	"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32", "::/8", "fe80::/10", "ff00::/8",
)...)

// kept are ranges in which a peer may be seen by its own addresses: private ones. Whatever else a peer announces, it might be
// somebody's on the Internet whom our pods want to reach, so it is seen in a range of a pool.
var kept = newSpace(prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")...)

// never are ranges in which no peer is seen although they are private: clouds answer their own machines there.
var never = prefixes("100.100.0.0/16", "fd00:ec2::/32", "fd20:ce::/32")

// checkRanges returns what is wrong with the ranges that a peer announces, if anything. That they are ours as well is not
// wrong: most clusters use the same.
func checkRanges(r Request) error {
	for _, list := range []struct {
		what   string
		ranges []netip.Prefix
		most   int
	}{{"pods", r.Pods, v1alpha1.MaxCIDRs}, {"Services", r.Services, v1alpha1.MaxCIDRs}, {"others", r.Relayed, v1alpha1.MaxRelayedCIDRs}} {
		if len(list.ranges) > list.most {
			return fmt.Errorf("it has %d ranges of %s: at most %d are taken", len(list.ranges), list.what, list.most)
		}
	}
	var seen space
	together := map[int]float64{} // widest range of the family → how many times as wide all are
	for _, p := range slices.Concat(r.Pods, r.Services, r.Relayed) {
		if err := checkRange(p); err != nil {
			return err
		}
		if other, clash := seen.overlapping(p); clash {
			return fmt.Errorf("its ranges %s and %s overlap", other, p)
		}
		seen.add(p)
		widest := widestOf(p)
		if together[widest] += math.Ldexp(1, widest-p.Bits()); together[widest] > mostWidest {
			return fmt.Errorf("its ranges are too wide together: at most as much as %d times a /%d is taken", mostWidest, widest)
		}
	}
	return nil
}

func widestOf(p netip.Prefix) int {
	if p.Addr().Is6() {
		return widest6
	}
	return widest4
}

func checkRange(p netip.Prefix) error {
	if !isRange(p) {
		return fmt.Errorf("its range %s is none, or has host bits", p)
	}
	if widest := widestOf(p); p.Bits() < widest {
		return fmt.Errorf("its range %s is too wide: at most a /%d is taken", p, widest)
	}
	if other, clash := unusable.overlapping(p); clash {
		return fmt.Errorf("its range %s overlaps %s, in which there are no pods and no Services", p, other)
	}
	return nil
}

// Ours returns how a peer sees our ranges, by what it says: one mapping for each, in our order, and then one for each range
// that we relay as far as the peer sees it. Others that it names are left out. A conflict says what is missing or wrong; then
// there is nothing that our gateway could do for the peer.
func Ours(peer string, own, relayed []netip.Prefix, said []Mapping) ([]Mapping, *Conflict) {
	var ours []Mapping
	var seen space
	for i, p := range slices.Concat(own, relayed) {
		at := slices.IndexFunc(said, func(m Mapping) bool { return m.Own == p })
		if at < 0 && i >= len(own) {
			continue
		}
		if at < 0 {
			return nil, &Conflict{peer, v1alpha1.ReasonPending, fmt.Sprintf("The peer has not said yet in which range it sees %s", p)}
		}
		m := said[at]
		_, bad := unusable.overlapping(m.Seen)
		if !m.wellFormed() || bad {
			return nil, refuse(peer, "it says that it sees %s as %s, which cannot be", p, m.Seen)
		}
		if other, clash := seen.overlapping(m.Seen); clash {
			return nil, refuse(peer, "it says that it sees two of our ranges in %s and %s, which overlap", other, m.Seen)
		}
		seen.add(m.Seen)
		ours = append(ours, m)
	}
	return ours, nil
}

// refuse says that what a peer tells of its network cannot be used.
func refuse(peer, format string, args ...any) *Conflict {
	return &Conflict{peer, v1alpha1.ReasonNetworkRefused, "What the peer tells of its network cannot be used: " + fmt.Sprintf(format, args...)}
}
