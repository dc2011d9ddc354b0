// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"net/netip"
	"testing"
)

// A voyage is a league in which hamburg has sent a pod of lubeck on to bremen, where a pod of hamburg's own runs too.
type voyage struct {
	*league
	sent, theirs *space
}

func newVoyage(t *testing.T) *voyage {
	t.Helper()
	l := newLeague(t)
	v := &voyage{l, l.bremen.newPod("sent", 2, 50).serve(), l.bremen.newPod("theirs", 1, 60).serve()}
	l.bremen.guests["hamburg"] = []netip.Addr{podAddress(2, 50), podAddress6(2, 50), podAddress(1, 60), podAddress6(1, 60)}
	l.hamburg.sentOn["lubeck"] = []netip.Addr{l.hamburg.seen(l.bremen, podAddress(2, 50)), l.hamburg.seen(l.bremen, podAddress6(2, 50))}
	l.apply()
	return v
}

// atBremen returns how bremen sees what hamburg knows by that address, and atLubeck how lubeck does.
func (v *voyage) atBremen(a netip.Addr) netip.Addr { return v.bremen.seen(v.hamburg, a) }

func (v *voyage) atLubeck(a netip.Addr) netip.Addr { return v.lubeck.seen(v.hamburg, a) }

func TestPodsThatWereSentOnAreReachedByTheirHomeAndReachIt(t *testing.T) {
	t.Parallel()
	v := newVoyage(t)
	var questions []question
	for _, address := range []func(node, last int) netip.Addr{podAddress, podAddress6} {
		sent, home := v.hamburg.seen(v.bremen, address(2, 50)), v.hamburg.seen(v.lubeck, address(1, 10)) // as hamburg sees both
		questions = append(questions,
			question{"home to a pod two hops away", v.home1, v.atLubeck(sent), true, v.atBremen(home)},
			question{"a pod two hops away to home", v.sent, v.atBremen(home), true, v.atLubeck(sent)},
			question{"a pod of its home in the middle", v.guest1, sent, true, v.atBremen(address(1, 20))},
			question{"to that pod", v.sent, v.atBremen(address(1, 20)), true, sent},
		)
	}
	check(t, questions)
}

func TestPodsThatWereSentOnOpenNothingElse(t *testing.T) {
	t.Parallel()
	v := newVoyage(t)
	other := v.bremen.newPod("other", 1, 70).serve()
	sent, none := v.hamburg.seen(v.bremen, podAddress(2, 50)), netip.Addr{}
	check(t, []question{
		{"the middle to its own pod there", v.own1, v.hamburg.seen(v.bremen, podAddress(1, 60)), true, v.atBremen(podAddress(1, 40))},

		{"home to a pod of the middle", v.home1, v.atLubeck(v.hamburg.seen(v.bremen, podAddress(1, 60))), false, none},
		{"home to a pod of the last cluster", v.home1, v.atLubeck(v.hamburg.seen(v.bremen, podAddress(1, 70))), false, none},
		{"a pod of the middle", v.own1, sent, false, none},
		{"a node of the middle", v.hamburg.nodes[0].space, sent, false, none},
		{"a guest of another home in the middle", v.foreign, sent, false, none},
		{"a pod of the last cluster", other, podAddress(2, 50), false, none},
		{"to a pod of the middle", v.sent, v.atBremen(podAddress(1, 40)), false, none},
		{"to a guest of another home in the middle", v.sent, v.atBremen(podAddress(2, 30)), false, none},
		{"to a pod of the last cluster", v.sent, podAddress(1, 70), false, none},
		{"a pod of the middle to a home that is not its", v.theirs, v.atBremen(v.hamburg.seen(v.lubeck, podAddress(1, 10))), false, none},
	})
}

func TestTheGatewayInTheMiddleTakesQuestionsOfPodsThatWereSentOn(t *testing.T) {
	t.Parallel()
	v := newVoyage(t)
	layout := v.hamburg.layout()
	at := 1 // bremen
	for _, server := range []netip.Addr{podAddress(1, 10), podAddress6(1, 10)} {
		layout.Translations[at].Questions = append(layout.Translations[at].Questions, v.atBremen(v.hamburg.seen(v.lubeck, server)))
	}
	v.hamburg.applyGateway(layout)
	for _, a := range gatewayAddresses {
		v.hamburg.pod.serveAt(netip.AddrPortFrom(a, dnsPort))
	}
	for _, server := range layout.Translations[at].Questions {
		want := v.hamburg.seen(v.bremen, podAddress(2, 50))
		if server.Is6() {
			want = v.hamburg.seen(v.bremen, podAddress6(2, 50))
		}
		for _, network := range []string{"tcp", "udp"} {
			seen, err := v.sent.askAt(network, netip.AddrPortFrom(server, dnsPort), 100, patient)
			if err != nil || seen != want {
				t.Errorf("%s by %s: the gateway sees %s (%v), want %s", server, network, seen, err, want)
			}
			if _, err := v.theirs.askAt(network, netip.AddrPortFrom(server, dnsPort), 100, impatient); err == nil {
				t.Errorf("%s by %s: a pod of the middle is answered", server, network)
			}
		}
	}
}
