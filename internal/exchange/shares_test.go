// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// The sums are kept while everything comes, changes and goes in any order.
func TestSharesAreWhatASumWouldSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := NewLedger()
		peer := rapid.SampledFrom([]string{"lubeck", "kiel", "riga"})
		amount := rapid.Custom(func(t *rapid.T) corev1.ResourceList {
			return corev1.ResourceList{
				corev1.ResourceCPU:  drawnQuantity(t, "cpu", 0, 6000),
				corev1.ResourcePods: *resource.NewQuantity(rapid.Int64Range(0, 5).Draw(t, "pods"), resource.DecimalSI),
			}
		})
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			s := drawnSnapshot(t)
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0:
				for _, n := range s.Nodes {
					l.SetNode(n)
				}
			case 1:
				l.RemoveNode(fmt.Sprint("node-", rapid.IntRange(0, 3).Draw(t, "node")))
			case 2:
				for _, pod := range s.Pods {
					l.SetPod(pod, whose(pod))
				}
			case 3:
				l.RemovePod(types.NamespacedName{Namespace: "ns", Name: fmt.Sprint("pod-", rapid.IntRange(0, 11).Draw(t, "pod"))})
			case 4:
				l.SetOwner("ns", rapid.SampledFrom([]string{"", "lubeck", "kiel"}).Draw(t, "owner"))
			case 5:
				l.Guarantee(peer.Draw(t, "peer"), amount.Draw(t, "guarantee"))
			default:
				stepOfRequests(t, l, peer.Draw(t, "peer"), amount)
			}
			checkShares(t, l)
		}
	})
}

func stepOfRequests(t *rapid.T, l *Ledger, peer string, amount *rapid.Generator[corev1.ResourceList]) {
	request := rapid.SampledFrom([]string{"", "shop", "stock"}).Draw(t, "request")
	switch rapid.IntRange(0, 2).Draw(t, "step of a Request") {
	case 0:
		l.Claim(peer, Claim{All: amount.Draw(t, "claim"), Request: request, Taken: amount.Draw(t, "taken")})
	case 1:
		l.SetReserved(peer, request, amount.Draw(t, "reserved"))
	default:
		l.Reserve(peer, request, amount.Draw(t, "asked"), amount.Draw(t, "margin"))
	}
}

func checkShares(t *rapid.T, l *Ledger) {
	t.Helper()
	free, held := amounts{}, map[string]amounts{}
	for name, node := range l.nodes {
		if schedulable(node) {
			free.book(l.room(l.nodes[name]), 1)
		}
	}
	for _, byPeer := range l.held {
		for peer, sum := range byPeer {
			if held[peer] == nil {
				held[peer] = amounts{}
			}
			held[peer].book(sum, 1)
		}
	}
	underway, locked, promised := amounts{}, amounts{}, amounts{}
	for peer, of := range l.byPeer {
		expectSum(t, "held by "+peer, held[peer], of.held)
		underway.book(of.underway(), 1)
		locked.book(of.lacks(), 1)
		promised.book(of.guaranteed, 1)
		reserved, untaken := amounts{}, amounts{}
		for _, r := range of.requests {
			reserved.book(r.reserved, 1)
			untaken.book(r.untaken(), 1)
		}
		expectSum(t, "reserved for "+peer, reserved, of.reserved)
		expectSum(t, "not taken by "+peer, untaken, of.untaken)
		promised.book(reserved, 1)
	}
	expectSum(t, "free", free, l.free)
	expectSum(t, "underway", underway, l.underway)
	expectSum(t, "locked", locked, l.locked)
	expectSum(t, "promised", promised, l.promised)
}

func expectSum(t *rapid.T, what string, want, got amounts) {
	t.Helper()
	bare := func(a amounts) amounts {
		a = maps.Clone(a)
		maps.DeleteFunc(a, func(_ corev1.ResourceName, amount int64) bool { return amount == 0 })
		return a
	}
	if !maps.Equal(bare(want), bare(got)) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// One that asks for all that it may have leaves the others what they are guaranteed, as far as it is there.
func TestNobodyTakesWhatOthersAreGuaranteed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := NewLedger()
		l.SetNode(node("a"))
		cpu := func(name string, most int64) corev1.ResourceList {
			return corev1.ResourceList{corev1.ResourceCPU: drawnQuantity(t, name, 0, most)}
		}
		guaranteed := cpu("guaranteed", 4000)
		l.Guarantee("kiel", guaranteed)
		margin, asked := cpu("margin", 500), cpu("asked", 5000)
		kept := amountOf(corev1.ResourceCPU, guaranteed[corev1.ResourceCPU])
		room := 4000 - amountOf(corev1.ResourceCPU, margin[corev1.ResourceCPU]) - kept
		_, short := l.Short("lubeck", "", asked, margin)
		wants := amountOf(corev1.ResourceCPU, asked[corev1.ResourceCPU])
		if want := kept > 0 && wants > 0 && wants > room; short != want {
			t.Fatalf("short: %t, want %t", short, want)
		}
		if _, short := l.Short("kiel", "", asked, margin); short {
			t.Fatal("what is guaranteed to nobody else is refused")
		}
	})
}
