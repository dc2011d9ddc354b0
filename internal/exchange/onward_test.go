// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestWhereAPodMayBeSentOn(t *testing.T) {
	type asks = v1alpha1.OnwardPlacement
	euros := func(amount string) *v1alpha1.Price {
		return &v1alpha1.Price{Amount: resource.MustParse(amount), Currency: "EUR"}
	}
	within := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	region := func(name string) *v1alpha1.ClusterSelector {
		return &v1alpha1.ClusterSelector{MatchLabels: map[string]v1alpha1.LabelValue{"region": v1alpha1.LabelValue(name)}}
	}
	hop := func(id, region, cpuPerHour string, away time.Duration) Hop {
		h := Hop{Row: Row{ClusterID: id, RoundTrip: away}, Priced: cpuPerHour != "?", Labels: map[string]string{"region": region}}
		if cpuPerHour != "" && h.Priced {
			h.Offer.Prices = &v1alpha1.Prices{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{
				corev1.ResourceCPU: resource.MustParse(cpuPerHour),
			}}
		}
		return h
	}
	hops := []Hop{
		hop("bremen", "north", "0.03", 20*time.Millisecond), hop("lubeck", "north", "", 0), hop("milan", "south", "?", 5*time.Millisecond),
	}
	hops[0].Bandwidth, hops[2].Throughput = 1000, 2000
	bandwidth := func(text string) []asks { return []asks{{MinBandwidth: ptr.To(resource.MustParse(text))}} }
	for name, test := range map[string]struct {
		asked []asks
		want  []string
	}{
		"nothing is asked":                   {nil, []string{"bremen", "lubeck", "milan"}},
		"one is excluded":                    {[]asks{{Exclude: []string{"bremen"}}}, []string{"lubeck", "milan"}},
		"a region is asked for":              {[]asks{{ClusterSelector: region("north")}}, []string{"bremen", "lubeck"}},
		"none is in that region":             {[]asks{{ClusterSelector: region("east")}}, nil},
		"all must hold":                      {[]asks{{ClusterSelector: region("north")}, {Exclude: []string{"lubeck"}}}, []string{"bremen"}},
		"a price that one asks":              {[]asks{{MaxPrice: euros("0.03")}}, []string{"bremen", "lubeck"}},
		"a lower price":                      {[]asks{{MaxPrice: euros("0.02")}}, []string{"lubeck"}},
		"a price for a larger pod":           {[]asks{{MaxPrice: euros("0.03"), Request: resources("cpu", "2")}}, []string{"lubeck"}},
		"another currency":                   {[]asks{{MaxPrice: &v1alpha1.Price{Amount: resource.MustParse("9"), Currency: "USD"}}}, []string{"lubeck"}},
		"a distance, as far as it is known":  {[]asks{{MaxLatency: within(20 * time.Millisecond)}}, []string{"bremen", "milan"}},
		"a shorter distance":                 {[]asks{{MaxLatency: within(10 * time.Millisecond)}}, []string{"milan"}},
		"a bandwidth, as far as it is known": {bandwidth("1k"), []string{"bremen", "milan"}},
		"a higher bandwidth":                 {bandwidth("2k"), []string{"milan"}},
		"a distance that was used up before": {[]asks{{MaxLatency: within(1)}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			next, left, err := Onward(test.asked, hops)
			if diff := cmp.Diff(test.want, next); diff != "" || err != nil {
				t.Errorf("error %v, left out %v, next (-want +got):\n%s", err, left, diff)
			}
			if len(next)+len(left) != len(hops) {
				t.Errorf("nothing is said of some: %v", left)
			}
			for _, one := range left {
				if one.Why == "" {
					t.Errorf("nobody learns why %s is left out", one.ClusterID)
				}
			}
		})
	}
	nonsense := &v1alpha1.ClusterSelector{MatchExpressions: []v1alpha1.ClusterSelectorRequirement{{Key: "a b", Operator: "Perhaps"}}}
	if next, _, err := Onward([]asks{{ClusterSelector: nonsense}}, hops); err == nil || next != nil {
		t.Errorf("a selector that makes no sense lets it go to %v (%v)", next, err)
	}
}
