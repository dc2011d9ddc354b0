// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A city is a cluster that passes offers on.
type city struct {
	own   v1alpha1.AdvertisementSpec
	share int64
	taken map[string]v1alpha1.Advertisement // cluster id → what it has accepted of it
}

func newCity(id, price string, share int64) *city {
	ad := priced(id, "4", price)
	return &city{own: ad.Spec, share: share, taken: map[string]v1alpha1.Advertisement{}}
}

// tell sends what the city offers to another, which takes it as any receiver does.
func (c *city) tell(t interface{ Fatalf(string, ...any) }, to *city) {
	offers := slices.Collect(maps.Values(c.taken))
	before := make([]v1alpha1.Advertisement, len(offers))
	for i := range offers {
		before[i] = *offers[i].DeepCopy()
	}
	sent := Aggregate(c.own, offers, c.share, to.own.ClusterID)
	for i := range offers {
		if !SameTerms(&before[i].Spec, &offers[i].Spec) {
			t.Fatalf("the offer of %s was changed", offers[i].Spec.ClusterID)
		}
	}
	if verdict := Judge(&sent, DefaultBounds(), c.own.ClusterID, nil, now); !verdict.Accepted {
		t.Fatalf("%s refuses what %s says: %s", to.own.ClusterID, c.own.ClusterID, verdict.Message)
	}
	if Loops(&sent, to.own.ClusterID) {
		t.Fatalf("what %s tells %s goes in circles: %v", c.own.ClusterID, to.own.ClusterID, sent.Nested)
	}
	copied := taken(c.own.ClusterID, 1)
	copied.Spec = sent
	to.taken[c.own.ClusterID] = copied
}

// parts are the nested offers that a city has from another: way and price of a core.
func (c *city) parts(of string) map[string]string {
	parts := map[string]string{}
	for _, nested := range c.taken[of].Spec.Nested {
		price := "free"
		if nested.Prices != nil {
			core := nested.Prices.PerHour["cpu"]
			price = core.String() + " " + nested.Prices.Currency
		}
		parts[nested.ClusterID] = fmt.Sprint(nested.Path, " ", price)
	}
	return parts
}

func TestTwoClustersPassOn(t *testing.T) {
	a, b, c := newCity("a", "0.3", 10), newCity("b", "0.2", 25), newCity("c", "0.1", 0)
	c.own.Prices.PerPlacement = amountsByImage("nginx", "1.1")
	c.own.Labels = map[string]v1alpha1.Text{"region": "north"}
	c.tell(t, a)
	for range 3 { // it does not grow from round to round
		a.tell(t, b)
		b.tell(t, a)
	}
	expectEqual(t, map[string]string{"c": "[] 110m EUR"}, b.parts("a"))
	expectEqual(t, map[string]string{}, a.parts("b")) // neither its own nor what b has from it
	expectEqual(t, map[string]v1alpha1.Text{v1alpha1.FlagAggregated: "true"}, b.taken["a"].Spec.Flags)
	expectEqual(t, map[string]v1alpha1.Text(nil), a.taken["b"].Spec.Flags)

	nested := b.taken["a"].Spec.Nested[0]
	expectEqual(t, amountsByImage("nginx", "1.21"), nested.Prices.PerPlacement)
	expectEqual(t, c.own.Labels, nested.Labels)
	expectEqual(t, c.own.Availability, nested.Availability)

	d := newCity("d", "", 0)
	b.tell(t, d)
	expectEqual(t, map[string]string{"a": "[] 375m EUR", "c": "[a] 137500u EUR"}, d.parts("b"))
	c.tell(t, b)
	b.tell(t, d)
	expectEqual(t, map[string]string{"a": "[] 375m EUR", "c": "[] 125m EUR"}, d.parts("b")) // the shorter way
}

func TestSomeOffersAreNotPassedOn(t *testing.T) {
	private := func(ad *v1alpha1.Advertisement) {
		ad.Spec.Flags = map[string]v1alpha1.Text{v1alpha1.FlagAggregatable: "false"}
	}
	nested := func(clusters ...string) func(*v1alpha1.Advertisement) {
		return func(ad *v1alpha1.Advertisement) {
			for _, id := range clusters {
				ad.Spec.Nested = append(ad.Spec.Nested, v1alpha1.NestedOffer{ClusterID: id, Availability: resources("cpu", "1")})
			}
		}
	}
	closed := func(ad *v1alpha1.Advertisement) { ad.Spec.Phase = v1alpha1.OfferDraining }
	long := func(ad *v1alpha1.Advertisement) {
		ad.Spec.Nested = []v1alpha1.NestedOffer{{ClusterID: "far", Path: []string{"p", "q", "r", "s"}, Availability: resources("cpu", "1")}}
	}
	dear := func(ad *v1alpha1.Advertisement) {
		ad.Spec.Prices = &v1alpha1.Prices{Currency: "EUR", PerHour: resources("cpu", strings.Repeat("9", 64))}
	}
	for name, test := range map[string]struct {
		offers []v1alpha1.Advertisement
		want   []string
	}{
		"none":                              {nil, nil},
		"one":                               {[]v1alpha1.Advertisement{taken("x", 1)}, []string{"x"}},
		"the receiver's own":                {[]v1alpha1.Advertisement{taken("receiver", 1, nested("y"))}, nil},
		"our own, from another":             {[]v1alpha1.Advertisement{taken("x", 1, nested("hamburg"))}, []string{"x"}},
		"the receiver's, from another":      {[]v1alpha1.Advertisement{taken("x", 1, nested("receiver"))}, []string{"x"}},
		"one that does not want it":         {[]v1alpha1.Advertisement{taken("x", 1, private, nested("y"))}, nil},
		"the same from another":             {[]v1alpha1.Advertisement{taken("x", 1, private), taken("y", 1, nested("x", "z"))}, []string{"y", "z"}},
		"one that is closed":                {[]v1alpha1.Advertisement{taken("x", 1, closed, nested("y"))}, nil},
		"one that is refused":               {[]v1alpha1.Advertisement{taken("x", 1, answered("Refused", "RefusedByPolicy"))}, nil},
		"one that is too far away":          {[]v1alpha1.Advertisement{taken("x", 1, long)}, []string{"x"}},
		"a price that nobody could read":    {[]v1alpha1.Advertisement{taken("x", 1, dear)}, nil},
		"one that is known in several ways": {[]v1alpha1.Advertisement{taken("x", 1, nested("z")), taken("y", 1, nested("z"))}, []string{"x", "y", "z"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, nested := range Aggregate(*offer(), test.offers, 1000, "receiver").Nested {
				got = append(got, nested.ClusterID)
			}
			expectEqual(t, test.want, got)
		})
	}
}

func TestTheNearestArePassedOnIfThereAreTooMany(t *testing.T) {
	var offers []v1alpha1.Advertisement
	for i := range 60 {
		offers = append(offers, taken(fmt.Sprintf("direct-%02d", i), 1, func(ad *v1alpha1.Advertisement) {
			ad.Spec.Nested = []v1alpha1.NestedOffer{{ClusterID: fmt.Sprintf("behind-%02d", i), Availability: resources("cpu", "1")}}
		}))
	}
	nested := Aggregate(*offer(), offers, 0, "receiver").Nested
	expectEqual(t, 100, len(nested))
	expectEqual(t, "behind-00", nested[0].ClusterID)
	expectEqual(t, "direct-59", nested[99].ClusterID)
}

func TestShareIsExactAndNeverLessThanAsked(t *testing.T) {
	for _, test := range []struct {
		price   string
		percent int64
		want    string
	}{
		{"0.1", 10, "0.11"},
		{"0.000000001", 10, "0.000000002"},
		{"123456789.123456789", 100, "246913578.246913578"},
		{"0", 50, "0"},
		{"3", 0, "3"},
		{"3", -10, "3"},
		{"1e20", 7, "107e18"},
		{"1", 33, "1.33"},
	} {
		prices := resources("cpu", test.price)
		if !addShare(prices, test.percent) {
			t.Errorf("%s cannot be told", test.price)
		}
		got, want := prices["cpu"], resource.MustParse(test.want)
		if got.Cmp(want) != 0 {
			t.Errorf("%s and %d %% are %s, want %s", test.price, test.percent, got.String(), test.want)
		}
		if again := resource.MustParse(got.String()); again.Cmp(got) != 0 {
			t.Errorf("%s is told as %s", got.AsDec(), again.AsDec())
		}
	}
}

func TestAggregateKeepsFlagsAndExtensionsWordForWord(t *testing.T) {
	own := *offer(func(ad *v1alpha1.AdvertisementSpec) {
		ad.Flags = map[string]v1alpha1.Text{"of tomorrow": "%&/"}
		ad.Extensions = map[string]v1alpha1.Extension{"of tomorrow": "{ }"}
	})
	got := Aggregate(own, []v1alpha1.Advertisement{taken("x", 1)}, 0, "receiver")
	expectEqual(t, map[string]v1alpha1.Text{"of tomorrow": "%&/", v1alpha1.FlagAggregated: "true"}, got.Flags)
	expectEqual(t, own.Extensions, got.Extensions)
	expectEqual(t, map[string]v1alpha1.Text{"of tomorrow": "%&/"}, own.Flags)
}

func TestLoops(t *testing.T) {
	for name, test := range map[string]struct {
		cluster string
		path    []string
		want    bool
	}{
		"a stranger":                       {"riga", nil, false},
		"one that came through others":     {"riga", []string{"visby", "danzig"}, false},
		"as far as it may":                 {"riga", []string{"a", "b", "c", "d"}, false},
		"further":                          {"riga", []string{"a", "b", "c", "d", "e"}, true},
		"our own":                          {"lubeck", nil, true},
		"one that came through us":         {"riga", []string{"visby", "lubeck"}, true},
		"the sender's own":                 {"hamburg", nil, true},
		"one that came through the sender": {"riga", []string{"hamburg"}, true},
		"one that came through itself":     {"riga", []string{"visby", "riga"}, true},
		"one that came twice through one":  {"riga", []string{"visby", "danzig", "visby"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			ad := offer(func(ad *v1alpha1.AdvertisementSpec) {
				ad.Nested = []v1alpha1.NestedOffer{{ClusterID: "kiel"}, {ClusterID: test.cluster, Path: test.path}}
			})
			expectEqual(t, test.want, Loops(ad, "lubeck"))
		})
	}
	expectEqual(t, false, Loops(offer(), "hamburg"))
}

func TestNothingGoesInCircles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var cities []*city
		for i := range rapid.IntRange(2, 7).Draw(t, "cities") {
			cities = append(cities, newCity(fmt.Sprint("city-", i), "0.1", rapid.Int64Range(0, 50).Draw(t, "share")))
		}
		for range rapid.IntRange(1, 40).Draw(t, "messages") {
			from := rapid.IntRange(0, len(cities)-1).Draw(t, "from")
			to := rapid.IntRange(0, len(cities)-1).Draw(t, "to")
			if from != to {
				cities[from].tell(t, cities[to]) // which fails if the receiver would refuse it
			}
		}
	})
}

// behind is an offer of a cluster in that of another.
func behind(id, cpu string, path ...string) v1alpha1.NestedOffer {
	return v1alpha1.NestedOffer{ClusterID: id, Path: path, Availability: resources("cpu", cpu)}
}

func cpuOf(list corev1.ResourceList) string {
	quantity := list[corev1.ResourceCPU]
	return quantity.String()
}

func TestWhatIsOfferedIsAllThatIsBehind(t *testing.T) {
	ad := offer()
	expectEqual(t, "4", cpuOf(Offered(ad)))
	ad.Nested = []v1alpha1.NestedOffer{behind("bremen", "2500m"), behind("visby", "1", "bremen")}
	got := Offered(ad)
	expectEqual(t, "7500m", cpuOf(got))
	expectEqual(t, "8Gi", got.Memory().String())
	expectEqual(t, "4", cpuOf(ad.Availability))
}

func TestNextHopsAreThoseThatTheSenderKnows(t *testing.T) {
	ad := offer()
	expectEqual(t, 0, len(NextHops(ad)))
	ad.Nested = []v1alpha1.NestedOffer{behind("visby", "1", "bremen", "riga"), behind("bremen", "1"), behind("danzig", "1", "wismar")}
	expectEqual(t, []string{"bremen", "wismar"}, NextHops(ad))
}

func TestWhatOthersHoldBehindIsNotOffered(t *testing.T) {
	virtual := node("hanse-bremen", func(n *corev1.Node) { n.Labels[v1alpha1.LabelType] = v1alpha1.TypeVirtualNode })
	offers := []v1alpha1.Advertisement{
		taken("bremen", 1, func(ad *v1alpha1.Advertisement) { ad.Spec.Nested = []v1alpha1.NestedOffer{behind("visby", "3")} }),
		taken("wismar", 1),
	}
	for name, test := range map[string]struct {
		pods                  []*corev1.Pod
		bremen, visby, wismar string
	}{
		"nobody":                            {nil, "4", "3", "4"},
		"the receiver itself":               {[]*corev1.Pod{boundPod("a", "hanse-bremen", "lubeck", resources("cpu", "2"))}, "4", "3", "4"},
		"we do":                             {[]*corev1.Pod{boundPod("a", "hanse-bremen", "", resources("cpu", "1"))}, "3", "3", "4"},
		"another":                           {[]*corev1.Pod{boundPod("a", "hanse-bremen", "riga", resources("cpu", "1"))}, "3", "3", "4"},
		"more than it has, so those behind": {[]*corev1.Pod{boundPod("a", "hanse-bremen", "riga", resources("cpu", "6"))}, "0", "1", "4"},
		"on our own nodes":                  {[]*corev1.Pod{boundPod("a", "n", "riga", resources("cpu", "1"))}, "4", "3", "4"},
	} {
		t.Run(name, func(t *testing.T) {
			capacity := ledgerOf(Snapshot{Nodes: []*corev1.Node{node("n"), virtual}, Pods: test.pods}).Capacity(nil)
			got := capacity.Leftovers("lubeck", offers)
			expectEqual(t, []string{test.bremen, test.visby, test.wismar}, []string{
				cpuOf(got[0].Spec.Availability), cpuOf(got[0].Spec.Nested[0].Availability), cpuOf(got[1].Spec.Availability),
			})
			expectEqual(t, "4", cpuOf(offers[0].Spec.Availability))
			expectEqual(t, "3", cpuOf(offers[0].Spec.Nested[0].Availability))
		})
	}
}

func TestLimitsHoldForAllThatIsBehindTogether(t *testing.T) {
	nested := []v1alpha1.NestedOffer{behind("bremen", "2"), behind("visby", "3")}
	ad := offer(func(ad *v1alpha1.AdvertisementSpec) {
		ad.Nested, ad.LargestPod = nested, resources("cpu", "8", "memory", "1Gi")
	})
	Within(resources("cpu", "5"), ad)
	expectEqual(t, []string{"1", "0"}, []string{cpuOf(ad.Nested[0].Availability), cpuOf(ad.Nested[1].Availability)})
	expectEqual(t, "5", cpuOf(ad.LargestPod))
	expectEqual(t, "2", cpuOf(nested[0].Availability))

	unlimited := offer(func(ad *v1alpha1.AdvertisementSpec) { ad.Nested = nested })
	Within(nil, unlimited)
	expectEqual(t, "2", cpuOf(unlimited.Nested[0].Availability))
}

func TestTheLargestPodMayFitBehindOnly(t *testing.T) {
	larger := taken("bremen", 1, func(ad *v1alpha1.Advertisement) { ad.Spec.LargestPod = resources("cpu", "3", "memory", "6Gi") })
	own := offer(func(ad *v1alpha1.AdvertisementSpec) { ad.LargestPod = resources("cpu", "1", "memory", "2Gi") })
	expectEqual(t, "3", cpuOf(Aggregate(*own, []v1alpha1.Advertisement{larger}, 0, "receiver").LargestPod))
	own.LargestPod = resources("cpu", "4", "memory", "8Gi")
	expectEqual(t, "4", cpuOf(Aggregate(*own, []v1alpha1.Advertisement{larger}, 0, "receiver").LargestPod))
	own.LargestPod = nil
	expectEqual(t, "3", cpuOf(Aggregate(*own, []v1alpha1.Advertisement{larger}, 0, "receiver").LargestPod))
}
