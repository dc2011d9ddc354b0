// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"net/netip"
	"testing"
)

// A league is three clusters: lubeck has pods at hamburg and bremen, and bremen has one at hamburg.
type league struct {
	*internet
	lubeck, hamburg, bremen *cluster
	home1, home2            *space // of lubeck, at home
	guest1, guest2          *space // of lubeck, at hamburg
	far                     *space // of lubeck, at bremen
	foreign                 *space // of bremen, at hamburg, on the node of guest2
	own1, own2              *space // of hamburg, at home
}

func newLeague(t testing.TB) *league {
	t.Helper()
	w := newInternet(t, 3)
	l := &league{internet: w, lubeck: w.clusters[0], hamburg: w.clusters[1], bremen: w.clusters[2]}
	l.home1, l.home2 = l.lubeck.newPod("home1", 1, 10).serve(), l.lubeck.newPod("home2", 2, 10).serve()
	l.guest1, l.guest2 = l.hamburg.newPod("guest1", 1, 20).serve(), l.hamburg.newPod("guest2", 2, 20).serve()
	l.foreign = l.hamburg.newPod("foreign", 2, 30).serve()
	l.own1, l.own2 = l.hamburg.newPod("own1", 1, 40).serve(), l.hamburg.newPod("own2", 2, 40).serve()
	l.far = l.bremen.newPod("far", 2, 20).serve()
	l.hamburg.guests["lubeck"] = []netip.Addr{podAddress(1, 20), podAddress6(1, 20), podAddress(2, 20), podAddress6(2, 20)}
	l.hamburg.guests["bremen"] = []netip.Addr{podAddress(2, 30), podAddress6(2, 30)}
	l.bremen.guests["lubeck"] = []netip.Addr{podAddress(2, 20), podAddress6(2, 20)}
	l.apply()
	return l
}

func TestPodsOfTwoClustersReachEachOther(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	var questions []question
	for _, address := range []func(node, last int) netip.Addr{podAddress, podAddress6} {
		for i, home := range []*space{l.home1, l.home2} {
			for j, guest := range []*space{l.guest1, l.guest2} {
				homeAddress, guestAddress := address(i+1, 10), address(j+1, 20)
				questions = append(questions,
					question{"home to guest", home, l.lubeck.seen(l.hamburg, guestAddress), true, l.hamburg.seen(l.lubeck, homeAddress)},
					question{"guest to home", guest, l.hamburg.seen(l.lubeck, homeAddress), true, l.lubeck.seen(l.hamburg, guestAddress)},
				)
			}
		}
	}
	check(t, questions)
}

func TestOurPodsAtTwoPeersReachEachOtherThroughHome(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	guestSeesFar := l.hamburg.seen(l.lubeck, l.lubeck.seen(l.bremen, podAddress(2, 20)))
	farSeesGuest := l.bremen.seen(l.lubeck, l.lubeck.seen(l.hamburg, podAddress(1, 20)))
	check(t, []question{
		{"leaf to leaf", l.guest1, guestSeesFar, true, farSeesGuest},
		{"leaf to leaf", l.far, farSeesGuest, true, guestSeesFar},
	})
}

func TestOnlyWhatIsAllowedIsReached(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	l.serve()
	for _, c := range l.clusters {
		for _, n := range c.nodes {
			n.space.serve()
		}
	}
	l.hamburg.service(addr("10.96.0.10"), podAddress(2, 40))
	l.address("br0", "169.254.169.254/32")
	none := netip.Addr{}
	check(t, []question{
		{"node of home to guest", l.lubeck.nodes[0].space, l.lubeck.seen(l.hamburg, podAddress(1, 20)), true, l.hamburg.seen(l.lubeck, gatewayAddresses[0])},
		{"other node of home to guest", l.lubeck.nodes[1].space, l.lubeck.seen(l.hamburg, podAddress6(2, 20)), true, l.hamburg.seen(l.lubeck, gatewayAddresses[1])},
		{"guest to guest of its tenant", l.guest1, podAddress(2, 20), true, podAddress(1, 20)},
		{"guest to the Internet", l.guest1, addr("192.0.2.1"), true, none},
		{"guest behind another node to the Internet", l.guest2, addr("192.0.2.1"), true, none},
		{"node to its guest", l.hamburg.nodes[0].space, podAddress(1, 20), true, none},
		{"own pod to own pod", l.own1, podAddress(2, 40), true, podAddress(1, 40)},
		{"own pod to a Service", l.own1, addr("10.96.0.10"), true, none},

		{"home to own pod of the provider", l.home1, l.lubeck.seen(l.hamburg, podAddress(1, 40)), false, none},
		{"home to own pod of the provider", l.home2, l.lubeck.seen(l.hamburg, podAddress6(2, 40)), false, none},
		{"home to a Service of the provider", l.home1, l.lubeck.seen(l.hamburg, addr("10.96.0.10")), false, none},
		{"home to the guest of another", l.home1, l.lubeck.seen(l.hamburg, podAddress(2, 30)), false, none},
		{"own pod to a home", l.own1, l.hamburg.seen(l.lubeck, podAddress(1, 10)), false, none},
		{"guest to the home of another", l.foreign, l.hamburg.seen(l.lubeck, podAddress(1, 10)), false, none},
		{"guest to our pod there of another", l.foreign, l.hamburg.seen(l.bremen, podAddress(2, 20)), false, none},

		{"guest to own pod on its bridge", l.guest1, podAddress(1, 40), false, none},
		{"guest to own pod on its bridge", l.guest1, podAddress6(1, 40), false, none},
		{"guest to own pod on another node", l.guest1, podAddress(2, 40), false, none},
		{"guest to guest of another tenant on its bridge", l.guest2, podAddress(2, 30), false, none},
		{"guest to guest of another tenant on another node", l.foreign, podAddress(1, 20), false, none},
		{"guest to its node", l.guest1, l.hamburg.nodes[0].inner[0], false, none},
		{"guest to its node", l.guest1, addr("10.244.1.1"), false, none},
		{"guest to its node", l.guest1, addr("fd10:0:0:1::1"), false, none},
		{"guest to another node", l.guest1, l.hamburg.nodes[1].inner[0], false, none},
		{"guest to a Service", l.guest1, addr("10.96.0.10"), false, none},
		{"guest to metadata", l.guest1, addr("169.254.169.254"), false, none},
		{"own pod to guest on its bridge", l.own1, podAddress(1, 20), false, none},
		{"own pod to guest on another node", l.own1, podAddress6(2, 20), false, none},
		{"another node to a guest", l.hamburg.nodes[1].space, podAddress(1, 20), false, none},
	})
}
