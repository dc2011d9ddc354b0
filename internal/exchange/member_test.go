// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit/cputime"
)

const memberOffer = `{"availability":{"cpu":"4","memory":"8Gi"},"prices":{"currency":"EUR","perHour":{"cpu":"0.1"}},"labels":{"topology.kubernetes.io/region":"north"}}`

func TestOffersOfMembers(t *testing.T) {
	many := func(template string) string {
		var entries []string
		for i := range mostOfMember + 1 {
			entries = append(entries, fmt.Sprintf(template, i))
		}
		return "{" + strings.Join(entries, ",") + "}"
	}
	for name, test := range map[string]struct{ body, want string }{
		"an offer":                  {memberOffer, ""},
		"nothing to spare":          {`{}`, ""},
		"what a later version says": {`{"tomorrow":{"cpu":"1"}}`, ""},
		"a huge exponent":           {`{"availability":{"cpu":"1e999999999"}}`, "availability[cpu]"},
		"in a price":                {`{"prices":{"currency":"EUR","perHour":{"cpu":"1e-999999999"}}}`, "prices.perHour[cpu]"},
		"before a harmless one":     {`{"availability":{"cpu":"1e999999999","cpu":"1"}}`, "availability[cpu]"},
		"under a name in capitals":  {`{"Availability":{"cpu":"1e999999999"}}`, ""}, // which is not read
		"a long number":             {`{"availability":{"cpu":"` + strings.Repeat("9", 1000) + `"}}`, "availability[cpu]"},
		"a negative amount":         {`{"availability":{"cpu":"-1"}}`, "body.availability[cpu]"},
		"more than any cluster has": {`{"availability":{"cpu":"1e20"}}`, "body.availability[cpu]"},
		"half a byte":               {`{"availability":{"memory":"500m"}}`, "body.availability[memory]"},
		"no resource":               {`{"availability":{"a b":"1"}}`, "body.availability"},
		"too many resources":        {`{"availability":` + many(`"example.org/r%d":"1"`) + `}`, "32 entries"},
		"too many labels":           {`{"labels":` + many(`"l%d":"x"`) + `}`, "32 entries"},
		"too many prices":           {`{"prices":{"currency":"EUR","perHour":` + many(`"example.org/r%d":"1"`) + `}}`, "body.prices"},
		"prices of images":          {`{"prices":{"currency":"EUR","perPlacement":{"nginx":"1"}}}`, "body.prices"},
		"an unknown currency":       {`{"prices":{"currency":"gold"}}`, "body.prices.currency"},
		"no currency":               {`{"prices":{"perHour":{"cpu":"1"}}}`, "body.prices.currency"},
		"a negative price":          {`{"prices":{"currency":"EUR","perHour":{"cpu":"-1"}}}`, "body.prices.perHour[cpu]"},
		"a key that is no label's":  {`{"labels":{"two words":"x"}}`, "body.labels"},
		"a value that is no label":  {`{"labels":{"a":"\u001b[2J"}}`, "body.labels"},
		"a list":                    {`[]`, "body"},
		"nothing":                   {``, "body"},
		"cut off":                   {memberOffer[:40], "body"},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			if took := cputime.Of(func() { _, err = ReadMemberOffer([]byte(test.body)) }); took > 2*time.Second {
				t.Errorf("it took %s of CPU time", took)
			}
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestMembersAreToldOfAnOffer(t *testing.T) {
	wide := offer(func(ad *v1alpha1.AdvertisementSpec) {
		ad.Labels = map[string]v1alpha1.Text{}
		ad.Prices = &v1alpha1.Prices{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{}}
	})
	for i := range 40 {
		name := corev1.ResourceName(fmt.Sprintf("example.org/r%02d", i))
		wide.Availability[name] = resource.MustParse("1")
		wide.Labels[fmt.Sprintf("l%02d", i)] = "x"
		wide.Prices.PerHour[name] = resource.MustParse("1")
	}
	closed := offer()
	closed.Phase = v1alpha1.OfferCordoned
	for name, test := range map[string]struct {
		ad        *v1alpha1.AdvertisementSpec
		resources int
	}{
		"as it is":                 {offer(), len(offer().Availability)},
		"more than members take":   {wide, mostOfMember},
		"nobody new is let in":     {closed, 0},
		"everything has no price":  {&v1alpha1.AdvertisementSpec{Availability: offer().Availability}, len(offer().Availability)},
		"there is nothing to tell": {&v1alpha1.AdvertisementSpec{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			told := MemberOfferOf(test.ad)
			body, err := json.Marshal(told)
			if err != nil {
				t.Fatal(err)
			}
			heard, err := ReadMemberOffer(body)
			if err != nil {
				t.Fatalf("members refuse it: %v", err)
			}
			if len(heard.Availability) != test.resources {
				t.Errorf("they hear of %d resources, want %d", len(heard.Availability), test.resources)
			}
			if heard.Prices != nil && len(heard.Prices.PerPlacement) > 0 {
				t.Error("they hear the prices of images")
			}
			again, err := json.Marshal(heard)
			if diff := cmp.Diff(string(body), string(again)); diff != "" || err != nil {
				t.Errorf("they hear something else (-told +heard):\n%s, %v", diff, err)
			}
		})
	}
	if _, first := MemberOfferOf(wide).Labels["l00"]; !first {
		t.Error("the first by name are not told")
	}
}

func TestMembersAreToldNoMoreThanFits(t *testing.T) {
	long := func(i int) string {
		part := strings.Repeat("a", 63)
		return fmt.Sprintf("%s.%s.%s.%s/%s%02d", part, part, part, part[:61], part[:61], i)
	}
	ad := &v1alpha1.AdvertisementSpec{
		Availability: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")},
		Prices:       &v1alpha1.Prices{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{corev1.ResourceMemory: resource.MustParse("0.000000001Gi")}},
		Labels:       map[string]v1alpha1.Text{},
	}
	for i := range mostOfMember {
		name := corev1.ResourceName(long(i))
		ad.Availability[name], ad.Prices.PerHour[name] = MaxQuantity(name), resource.MustParse("123456789.123456789")
		ad.Prices.PerHour[corev1.ResourceName(fmt.Sprintf("a%d", i))] = resource.MustParse("1") // of what there is nothing
		ad.Labels[long(i)] = v1alpha1.Text(strings.Repeat("x", 63))
	}
	told := MemberOfferOf(ad)
	body, err := json.Marshal(told)
	if err != nil || len(body) > 2*maxTold+100 || len(body) < 2*maxTold-2000 {
		t.Fatalf("%d bytes are told: %v", len(body), err)
	}
	if _, err := ReadMemberOffer(body); err != nil {
		t.Errorf("members refuse it: %v", err)
	}
	resources, priced := slices.Sorted(maps.Keys(told.Availability)), slices.Sorted(maps.Keys(told.Prices.PerHour))
	if want := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}; !slices.Contains(resources, want[0]) || !slices.Contains(resources, want[1]) {
		t.Errorf("members are told of %s, without %s", resources, want)
	}
	// What has no price would seem to be free, as cpu is.
	free := func(name corev1.ResourceName) bool { return name == corev1.ResourceCPU }
	if diff := cmp.Diff(slices.DeleteFunc(resources, free), priced); diff != "" {
		t.Errorf("resources and their prices (-told +priced):\n%s", diff)
	}
}

func FuzzReadMemberOffer(f *testing.F) {
	f.Add([]byte(memberOffer))
	f.Add([]byte(`{"availability":{"cpu":"1e30"},"Availability":{"cpu":"1e999999999"},"prices":{"currency":"EUR","perHour":{"cpu":1e-9}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		took := cputime.Of(func() {
			offer, err := ReadMemberOffer(body)
			if err != nil {
				return
			}
			expectBounded(t, offer)
			if text, err := json.Marshal(offer); err != nil {
				t.Error(err)
			} else if _, err := ReadMemberOffer(text); err != nil {
				t.Errorf("%s was taken, and is not when it is told again: %v", body, err)
			}
		})
		if took > 2*time.Second {
			t.Errorf("it took %s of CPU time", took)
		}
	})
}

func expectBounded(t *testing.T, offer *v1alpha1.MemberOffer) {
	t.Helper()
	if len(offer.Availability) > mostOfMember || len(offer.Labels) > mostOfMember {
		t.Errorf("took %d resources, %d labels", len(offer.Availability), len(offer.Labels))
	}
	for name, quantity := range offer.Availability {
		if quantity.Sign() < 0 || quantity.Cmp(MaxQuantity(name)) > 0 {
			t.Errorf("took %s of %s", quantity.String(), name)
		}
	}
	if offer.Prices == nil {
		return
	}
	for name, price := range offer.Prices.PerHour {
		if price.Sign() < 0 || len(offer.Prices.PerHour) > mostOfMember {
			t.Errorf("took price %s of %s", price.String(), name)
		}
	}
}
