// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestParseQuery(t *testing.T) {
	for text, want := range map[string]*Query{ // nil is an error
		"cpu=2,memory=4Gi,image=nginx": {Request: resources("cpu", "2", "memory", "4Gi"), Images: []string{"nginx"}},
		" cpu=2 , image=a, image=b:1 ": {Request: resources("cpu", "2"), Images: []string{"a", "b:1"}},
		"image=a@sha256:0=":            {Request: resources(), Images: []string{"a@sha256:0="}},
		"nvidia.com/gpu=1":             {Request: resources("nvidia.com/gpu", "1")},
		"":                             nil,
		" ":                            nil,
		"cpu":                          nil,
		"cpu=":                         nil,
		"=2":                           nil,
		"cpu=2,":                       nil,
		"cpu=2,cpu=3":                  nil,
		"cpu=-1":                       nil,
		"cpu=NaN":                      nil,
		"cpu=1e400":                    nil,
		"memory=1e30":                  nil,
		"memory=500m":                  nil,
		"speed=3":                      nil,
	} {
		t.Run(text, func(t *testing.T) {
			got, err := ParseQuery(text)
			switch {
			case want == nil && err == nil:
				t.Errorf("read %v", got)
			case want != nil && err != nil:
				t.Error(err)
			case want != nil:
				expectEqual(t, *want, got)
			}
		})
	}
}

// priced is a provider with a price for a core.
func priced(cluster, cpu, price string, changes ...func(*v1alpha1.Advertisement)) v1alpha1.Advertisement {
	return taken(cluster, 1, append([]func(*v1alpha1.Advertisement){func(ad *v1alpha1.Advertisement) {
		ad.Spec.Availability["cpu"] = resource.MustParse(cpu)
		if price != "" {
			ad.Spec.Prices = &v1alpha1.Prices{Currency: "EUR", PerHour: resources("cpu", price)}
		}
	}}, changes...)...)
}

func TestMatch(t *testing.T) {
	closed := func(ad *v1alpha1.Advertisement) { ad.Spec.Phase = v1alpha1.OfferCordoned }
	split := func(ad *v1alpha1.Advertisement) { ad.Spec.LargestPod = resources("cpu", "1") }
	placement := func(amount string) func(*v1alpha1.Advertisement) {
		return func(ad *v1alpha1.Advertisement) {
			ad.Spec.Prices.PerPlacement = amountsByImage("docker.io/library/nginx:latest", amount)
		}
	}
	stocked := func(names ...string) func(*v1alpha1.Advertisement) {
		return func(ad *v1alpha1.Advertisement) { ad.Spec.Images = []v1alpha1.Image{{Names: names}} }
	}
	table := NewTable([]v1alpha1.Advertisement{
		priced("cheap", "8", "0.1"), priced("dear", "8", "0.3"), priced("small", "1", "0.1"), priced("split", "8", "0.1", split),
		priced("closed", "8", "", closed), priced("refused", "8", "", answered("Refused", "RefusedByPolicy")),
		priced("stocked", "8", "0.1", stocked("docker.io/library/nginx:latest")), priced("fee", "8", "0.1", placement("0.5")),
		priced("far", "8", "0.1"), priced("friend", "8", ""),
	}, now)
	for i := range table.Rows {
		if table.Rows[i].Peer == "far" {
			table.Rows[i].RoundTrip = time.Second
		}
	}
	query := Query{Request: resources("cpu", "2"), Images: []string{"nginx", "redis"}}

	type line struct{ Peer, Why, Cost, Images string }
	var got []line
	for _, m := range table.Match(query) {
		expectEqual(t, m.Why == "", m.Fits)
		images := ""
		if m.ImagesThere > 0 {
			images = "1 of 2"
		}
		costs := m.Cost()
		cost := costs.PerHour.String() + costs.Currency
		if costs.PerPlacement != nil {
			cost += "+" + costs.PerPlacement.String()
		}
		got = append(got, line{m.Peer, m.Why, cost, images})
	}
	const fifth, nothing = "0.2EUR", "0"
	expectEqual(t, []line{
		{"friend", "", nothing, ""},
		{"stocked", "", fifth, "1 of 2"},
		{"far", "", fifth, ""},
		{"cheap", "", fifth, ""},
		{"fee", "", fifth + "+0.5", ""},
		{"dear", "", "0.6EUR", ""},
		{"closed", "It takes no more pods", nothing, ""},
		{"refused", "Its offer is not accepted: RefusedByPolicy", nothing, ""},
		{"small", "It has less than 2 of cpu free", fifth, ""},
		{"split", "No node of it has 2 of cpu free", fifth, ""},
	}, got)
}

func TestMatchIsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ads []v1alpha1.Advertisement
		for i := range rapid.IntRange(0, 12).Draw(t, "count") {
			price := rapid.SampledFrom([]string{"", "0", "0.1", "0.2", "1e20", "0.123456789"}).Draw(t, "price")
			ads = append(ads, priced(string(rune('a'+i)), rapid.SampledFrom([]string{"1", "8"}).Draw(t, "cpu"), price))
			if ads[i].Spec.Prices != nil {
				ads[i].Spec.Prices.Currency = rapid.SampledFrom([]string{"EUR", "USD"}).Draw(t, "currency")
			}
		}
		matches := NewTable(ads, now).Match(Query{Request: resources("cpu", "2")})
		for i := 1; i < len(matches); i++ {
			a, b := matches[i-1], matches[i]
			if !a.Fits && b.Fits || a.Fits == b.Fits && dearer(a.Cost(), b.Cost()) {
				t.Fatalf("%s comes before %s", a.Peer, b.Peer)
			}
		}
	})
}

// dearer compares exactly.
func dearer(a, b Cost) bool {
	if a.PerHour.Sign() == 0 || b.PerHour.Sign() == 0 || a.Currency != b.Currency {
		return a.PerHour.Sign() > 0 && (b.PerHour.Sign() == 0 || a.Currency > b.Currency)
	}
	return a.PerHour.Cmp(b.PerHour) > 0
}

func TestBy(t *testing.T) {
	rows := NewTable([]v1alpha1.Advertisement{
		priced("a", "2", "0.2"), priced("b", "1", "0.1"), priced("c", "4", "0.2"), priced("d", "2", ""),
	}, now).Rows
	rows[1].RoundTrip, rows[3].RoundTrip = 2*time.Millisecond, time.Millisecond
	for order, want := range map[string]string{"price": "dbac", "latency": "dbac", "cpu": "cadb", "beauty": "", "": ""} {
		compare, err := By(order)
		if (err == nil) != (want != "") {
			t.Errorf("%s: %v", order, err)
		}
		if err != nil {
			continue
		}
		slices.SortFunc(rows, compare)
		got := ""
		for _, row := range rows {
			got += row.Peer
		}
		expectEqual(t, want, got)
	}
}
