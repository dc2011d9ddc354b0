// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestMoved(t *testing.T) {
	for name, test := range map[string]struct {
		then, now corev1.ResourceList
		want      bool
	}{
		"nothing":                    {resources("cpu", "100"), resources("cpu", "100"), false},
		"exactly the bound":          {resources("cpu", "100"), resources("cpu", "95"), false},
		"more than the bound":        {resources("cpu", "100"), resources("cpu", "94999m"), true},
		"upwards":                    {resources("memory", "100Gi"), resources("memory", "106Gi"), true},
		"from nothing":               {resources("cpu", "0"), resources("cpu", "1m"), true},
		"to nothing":                 {resources("cpu", "1"), resources("cpu", "0"), true},
		"a resource that is gone":    {resources("cpu", "1", "a.b/c", "1"), resources("cpu", "1"), true},
		"a resource that is new":     {resources("cpu", "1"), resources("cpu", "1", "a.b/c", "1"), true},
		"one that is new and zero":   {resources("cpu", "1"), resources("cpu", "1", "a.b/c", "0"), false},
		"the largest numbers we use": {resources("memory", "8Pi"), resources("memory", "7Pi"), true},
	} {
		t.Run(name, func(t *testing.T) { expectEqual(t, test.want, Moved(test.then, test.now, 5)) })
	}
}

func TestSameTerms(t *testing.T) {
	type spec = v1alpha1.AdvertisementSpec
	for name, test := range map[string]struct {
		change func(*spec)
		want   bool
	}{
		"a phase":              {func(ad *spec) { ad.Phase = v1alpha1.OfferDraining }, false},
		"the phase by default": {func(ad *spec) { ad.Phase = v1alpha1.OfferOpen }, true},
		"a heartbeat": {func(ad *spec) {
			ad.Sequence, ad.FullSequence, ad.Timestamp, ad.TimeToLive = 8, 7, metav1.NewTime(now.Add(1)), metav1.NewTime(now.Add(2))
			ad.Availability, ad.LargestPod = resources("cpu", "1"), resources("cpu", "1")
		}, true},
		"an empty list instead of none": {func(ad *spec) { ad.Images = []v1alpha1.Image{} }, true},
		"another label":                 {func(ad *spec) { ad.Labels = map[string]v1alpha1.Text{"a": "b"} }, false},
		"a price":                       {func(ad *spec) { ad.Prices = &v1alpha1.Prices{Currency: "EUR"} }, false},
		"a guarantee":                   {func(ad *spec) { ad.Guarantee = resources("cpu", "1") }, false},
		"an extension":                  {func(ad *spec) { ad.Extensions = map[string]v1alpha1.Extension{"a": "b"} }, false},
		"a nested offer":                {func(ad *spec) { ad.Nested = []v1alpha1.NestedOffer{{ClusterID: "riga"}} }, false},
		"a flag":                        {func(ad *spec) { ad.Flags = map[string]v1alpha1.Text{"a": "b"} }, false},
	} {
		t.Run(name, func(t *testing.T) { expectEqual(t, test.want, SameTerms(offer(), offer(test.change))) })
	}
}

func TestSteady(t *testing.T) {
	for name, test := range map[string]struct {
		shown, offered, want corev1.ResourceList
	}{
		"nothing was shown":             {nil, resources("cpu", "1"), resources("cpu", "1")},
		"what falls is lower at once":   {resources("cpu", "100"), resources("cpu", "99999m"), resources("cpu", "99999m")},
		"a small rise is not shown":     {resources("cpu", "100"), resources("cpu", "101999m"), resources("cpu", "100")},
		"a rise by two percent is":      {resources("cpu", "100"), resources("cpu", "102"), resources("cpu", "102")},
		"from nothing is a large rise":  {resources("cpu", "0"), resources("cpu", "1m"), resources("cpu", "1m")},
		"a resource that is gone is so": {resources("cpu", "1", "a.b/c", "1"), resources("cpu", "1"), resources("cpu", "1")},
		"each resource for itself": {
			resources("cpu", "100", "memory", "100Gi"), resources("cpu", "101", "memory", "110Gi"),
			resources("cpu", "100", "memory", "110Gi"),
		},
	} {
		t.Run(name, func(t *testing.T) { expectEqual(t, test.want, Steady(test.shown, test.offered)) })
	}
}

func TestSteadyNeverShowsMoreThanIsOfferedAndSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) corev1.ResourceList {
			return corev1.ResourceList{"cpu": drawnQuantity(t, name, 0, 1_000_000), "memory": drawnQuantity(t, name, 0, 1_000)}
		}
		shown := draw("first")
		for range 5 {
			offered := draw("offered")
			next := Steady(shown, offered)
			for name, quantity := range next {
				if quantity.Cmp(offered[name]) > 0 {
					t.Fatalf("%s of %s is shown and %v offered", quantity.String(), name, offered)
				}
			}
			if Moved(next, Steady(next, offered), 0) {
				t.Fatalf("%v does not stay for the same offer %v", next, offered)
			}
			shown = next
		}
	})
}
