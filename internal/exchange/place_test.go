// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// pricedRow is a row with a price of a core and a round trip in milliseconds.
func pricedRow(peer, price string, trip int, changes ...func(*Row)) Row {
	ad := priced(peer, "8", price)
	row := NewTable([]v1alpha1.Advertisement{ad}, now).Rows[0]
	row.RoundTrip = time.Duration(trip) * time.Millisecond
	for _, change := range changes {
		change(&row)
	}
	return row
}

// passing is a row to which that was measured, in bytes per second.
func passing(bandwidth, throughput int64) func(*Row) {
	return func(r *Row) { r.Bandwidth, r.Throughput = bandwidth, throughput }
}

func TestPlace(t *testing.T) {
	type status = v1alpha1.PlacementStatus
	type nodes = []v1alpha1.NodePlacement
	type asked = v1alpha1.Placement
	// By price a, b and c; by latency c, a, and b is not measured.
	three := []Row{pricedRow("b", "0.2", 0), pricedRow("a", "0.1", 20), pricedRow("c", "0.3", 10)}
	row := func(peer string, weight, price, latency int32) v1alpha1.NodePlacement {
		return v1alpha1.NodePlacement{Name: "hanse-" + peer, Weight: weight, WeightByPrice: price, WeightByLatency: latency}
	}
	out := func(peer, why string) v1alpha1.NodePlacement {
		return v1alpha1.NodePlacement{Name: "hanse-" + peer, Excluded: why}
	}
	price := func(amount, currency string) *v1alpha1.Price {
		return &v1alpha1.Price{Amount: resource.MustParse(amount), Currency: currency}
	}
	closed := func(r *Row) { r.Open = false }
	pending := func(r *Row) { r.Accepted = false }

	for name, test := range map[string]struct {
		placing Placing
		want    status
	}{
		"nobody": {Placing{}, status{}},
		"without a preference or a score home comes first and no provider before another": {
			Placing{Rows: three}, status{Nodes: nodes{row("a", 0, 100, 1), row("b", 0, 51, 0), row("c", 0, 1, 100)}},
		},
		"by the scores of the policies, equal ones alike; who has none is not preferred": {
			Placing{
				Rows:   append([]Row{pricedRow("d", "", 0)}, three...),
				Scores: map[string]float64{"a": -2.5, "b": 7, "d": 7},
			},
			status{Nodes: nodes{row("a", 1, 67, 1), row("b", 100, 34, 0), row("c", 0, 1, 100), row("d", 100, 100, 0)}},
		},
		"by price": {
			Placing{Rows: three, Asked: asked{Prefer: "Price"}},
			status{PrefersRemote: true, Nodes: nodes{row("a", 100, 100, 1), row("b", 51, 51, 0), row("c", 1, 1, 100)}},
		},
		"by latency": {
			Placing{Rows: three, Asked: asked{Prefer: "Latency"}},
			status{PrefersRemote: true, Nodes: nodes{row("a", 1, 100, 1), row("b", 0, 51, 0), row("c", 100, 1, 100)}},
		},
		"spread": {
			Placing{Rows: three, Asked: asked{Prefer: "Spread"}},
			status{PrefersRemote: true, Nodes: nodes{row("a", 0, 100, 1), row("b", 0, 51, 0), row("c", 0, 1, 100)}},
		},
		"by the scores of the policies, whatever the user prefers; who has none comes last": {
			Placing{Rows: three, Asked: asked{Prefer: "Price"}, Scores: map[string]float64{"b": 1, "c": 2}},
			status{PrefersRemote: true, Nodes: nodes{row("a", 0, 100, 1), row("b", 1, 51, 0), row("c", 100, 1, 100)}},
		},
		"a policy that prefers none before another, whatever the user prefers": {
			Placing{Rows: three, Asked: asked{Prefer: "Latency"}, Scores: map[string]float64{"a": 0, "b": 0, "c": 0}},
			status{PrefersRemote: true, Nodes: nodes{row("a", 100, 100, 1), row("b", 100, 51, 0), row("c", 100, 1, 100)}},
		},
		"the user's bounds hold, whatever the policies prefer": {
			Placing{
				Rows: three, Asked: asked{Exclude: []string{"c"}, MaxPrice: price("0.2", "EUR"), Strict: true},
				Scores: map[string]float64{"a": 1, "b": 2, "c": 3},
			},
			status{Strict: true, Only: []string{"hanse-b"}, Nodes: nodes{
				row("a", 1, 100, 100), row("b", 100, 1, 0), out("c", "exclude in spec.placement names it"),
			}},
		},
		"what is excluded does not compete": {
			Placing{Rows: three, Asked: asked{Prefer: "Price", Exclude: []string{"a", "unknown"}}, Exclude: map[string]string{"b": "too bold", "a": "no"}},
			status{PrefersRemote: true, Nodes: nodes{
				out("a", "exclude in spec.placement names it"), out("b", "too bold"), row("c", 100, 100, 100),
				out("unknown", "exclude in spec.placement names it"),
			}},
		},
		"a policy that gives no reason, or too long a one": {
			Placing{Exclude: map[string]string{"a": " ", "b": strings.Repeat("ä", 200), strings.Repeat("x", 41): "no peer"}},
			status{Nodes: nodes{out("a", "A policy excludes it"), out("b", strings.Repeat("ä", 126)+"...")}},
		},
		"too dear, or dear in another money; what is free has no currency": {
			Placing{
				Rows: []Row{pricedRow("a", "0.1", 0), pricedRow("b", "0.10001", 0), pricedRow("free", "", 0), pricedRow("usd", "0.01", 0, func(r *Row) {
					r.Offer.Prices.Currency = "USD"
				})},
				Asked: asked{MaxPrice: price("0.1", "EUR")},
			},
			status{Nodes: nodes{
				row("a", 0, 1, 0), out("b", "It asks for more than maxPrice in spec.placement"), row("free", 0, 100, 0),
				out("usd", "It asks for another currency than that of maxPrice in spec.placement"),
			}},
		},
		"the price of the pod that is wished for": {
			Placing{Rows: three, Asked: asked{Request: resources("cpu", "2"), MaxPrice: price("0.2", "EUR")}},
			status{Nodes: nodes{
				row("a", 0, 100, 100), out("b", "It asks for more than maxPrice in spec.placement"),
				out("c", "It asks for more than maxPrice in spec.placement"),
			}},
		},
		"too far away, or who knows": {
			Placing{Rows: three, Asked: asked{MaxLatency: &metav1.Duration{Duration: 10 * time.Millisecond}}},
			status{Nodes: nodes{
				out("a", "Its round-trip time is longer than maxLatency in spec.placement"),
				out("b", "Its round-trip time is not known yet, and maxLatency in spec.placement is set"), row("c", 0, 100, 100),
			}},
		},
		"too little passes, or who knows; what has passed already passes": {
			Placing{
				Rows: []Row{
					pricedRow("a", "", 0, passing(12_500_000, 0)), pricedRow("b", "", 0, passing(12_499_999, 1)), pricedRow("c", "", 0, passing(0, 12_499_999)),
					pricedRow("d", "", 0, passing(1, 12_500_000)), pricedRow("e", "", 0, passing(0, 12_500_000)), pricedRow("f", "", 0),
				},
				Asked: asked{MinBandwidth: ptr.To(resource.MustParse("12500k"))},
			},
			status{Nodes: nodes{
				row("a", 0, 100, 0), out("b", "Its bandwidth is lower than minBandwidth in spec.placement"),
				out("c", "Its bandwidth is not known yet, and minBandwidth in spec.placement is set"), row("d", 0, 100, 0), row("e", 0, 100, 0),
				out("f", "Its bandwidth is not known yet, and minBandwidth in spec.placement is set"),
			}},
		},
		"offers that are closed or not accepted do not compete": {
			Placing{Rows: []Row{pricedRow("a", "", 1, closed), pricedRow("b", "", 1, pending), pricedRow("c", "1", 1)}, Asked: asked{Prefer: "Price"}},
			status{PrefersRemote: true, Nodes: nodes{row("c", 100, 100, 100)}},
		},
		"strict: the cheapest that it fits in": {
			Placing{Rows: append([]Row{pricedRow("tiny", "", 0, func(r *Row) {
				r.Offer.LargestPod = resources("cpu", "500m")
			})}, three...), Asked: asked{Prefer: "Price", Strict: true}},
			status{PrefersRemote: true, Strict: true, Only: []string{"hanse-a"}, Nodes: nodes{
				row("a", 67, 67, 1), row("b", 34, 34, 0), row("c", 1, 1, 100),
				{Name: "hanse-tiny", Weight: 100, WeightByPrice: 100, LargestPod: resources("cpu", "500m")},
			}},
		},
		"how large a pod may be": {
			Placing{Rows: []Row{
				pricedRow("a", "", 0, func(r *Row) { r.Offer.LargestPod = resources("cpu", "1987m", "memory", "2100000000", "pods", "9") }),
				pricedRow("b", "", 0, func(r *Row) { r.Offer.LargestPod = resources("cpu", "8") }),
			}},
			status{Nodes: nodes{
				{Name: "hanse-a", WeightByPrice: 100, LargestPod: resources("cpu", "1900m", "memory", "2100000000")},
				{Name: "hanse-b", WeightByPrice: 100, LargestPod: resources("cpu", "8")},
			}},
		},
		"also where no other takes them": {
			Placing{Rows: []Row{pricedRow("a", "", 0, func(r *Row) { r.Offer.LargestPod = resources("cpu", "1987m") })}},
			status{Nodes: nodes{{Name: "hanse-a", WeightByPrice: 100, LargestPod: resources("cpu", "1900m")}}},
		},
		"strict: the nearest": {
			Placing{Rows: three[:2], Asked: asked{Prefer: "Latency"}, Strict: true},
			status{PrefersRemote: true, Strict: true, Only: []string{"hanse-a"}, Nodes: nodes{row("a", 100, 100, 100), row("b", 0, 1, 0)}},
		},
		"strict: the best by policy": {
			Placing{Rows: three, Scores: map[string]float64{"c": 1}, Strict: true},
			status{Strict: true, Only: []string{"hanse-c"}, Nodes: nodes{row("a", 0, 100, 1), row("b", 0, 51, 0), row("c", 100, 1, 100)}},
		},
		"strict: the best by policy, and not the one that the user prefers": {
			Placing{Rows: three, Asked: asked{Prefer: "Price", Strict: true}, Scores: map[string]float64{"b": 1, "c": 2}},
			status{PrefersRemote: true, Strict: true, Only: []string{"hanse-c"}, Nodes: nodes{
				row("a", 0, 100, 1), row("b", 1, 51, 0), row("c", 100, 1, 100),
			}},
		},
		"strict: of those that the policies like the same the one that the user prefers": {
			Placing{Rows: three, Asked: asked{Prefer: "Latency", Strict: true}, Scores: map[string]float64{"a": 1, "b": 1, "c": 0}},
			status{PrefersRemote: true, Strict: true, Only: []string{"hanse-a"}, Nodes: nodes{
				row("a", 100, 100, 1), row("b", 100, 51, 0), row("c", 1, 1, 100),
			}},
		},
		"strict: none fits": {
			Placing{Rows: three, Asked: asked{Request: resources("cpu", "64"), Strict: true}},
			status{Strict: true, Nodes: nodes{row("a", 0, 100, 1), row("b", 0, 51, 0), row("c", 0, 1, 100)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if test.placing.Asked.Request == nil {
				test.placing.Asked.Request = DefaultRequest()
			}
			expectEqual(t, test.want, Place(test.placing))
		})
	}
}

func TestPlaceNeverForgetsAnExclusion(t *testing.T) {
	placing := Placing{Asked: v1alpha1.Placement{Prefer: v1alpha1.PreferPrice, Request: DefaultRequest()}, Exclude: map[string]string{}}
	for i := range 300 {
		placing.Exclude[fmt.Sprint("peer-", i)] = "why not"
	}
	for i := range 20 {
		placing.Rows = append(placing.Rows, pricedRow(fmt.Sprintf("good-%02d", i), fmt.Sprint(i), 1))
	}
	got := Place(placing)
	expectEqual(t, 200, len(got.Nodes))
	expectEqual(t, true, got.Strict) // what cannot be listed is not allowed
	expectEqual(t, 16, len(got.Only))
	expectEqual(t, "hanse-good-00", got.Only[0])
}

func TestWeightsFollowTheRank(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		placing := Placing{Scores: map[string]float64{}, Strict: true}
		for i := range rapid.IntRange(1, 20).Draw(t, "peers") {
			peer := fmt.Sprintf("p%02d", i)
			placing.Rows = append(placing.Rows, pricedRow(peer, "", 0))
			placing.Scores[peer] = float64(rapid.IntRange(-3, 3).Draw(t, "score"))
		}
		status := Place(placing)
		best := 0.0
		for i, a := range status.Nodes {
			scoreA := placing.Scores[strings.TrimPrefix(a.Name, "hanse-")]
			if a.Weight < 1 || a.Weight > 100 {
				t.Fatalf("weight %d", a.Weight)
			}
			if a.Weight == 100 {
				best = scoreA
			}
			for _, b := range status.Nodes[i+1:] {
				scoreB := placing.Scores[strings.TrimPrefix(b.Name, "hanse-")]
				if (scoreA > scoreB) != (a.Weight > b.Weight) || (scoreA == scoreB) != (a.Weight == b.Weight) {
					t.Fatalf("scores %v and %v have weights %d and %d", scoreA, scoreB, a.Weight, b.Weight)
				}
			}
		}
		if len(status.Only) != 1 || placing.Scores[strings.TrimPrefix(status.Only[0], "hanse-")] != best {
			t.Fatalf("only %v, and the best score is %v", status.Only, best)
		}
	})
}
