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

func TestNothingElseIsReachedByDefault(t *testing.T) {
	l := newLeague(t)
	check(t, []question{
		{"home to own pod of the provider", l.home1, l.lubeck.seen(l.hamburg, podAddress(1, 40)), false, netip.Addr{}},
	})
}
