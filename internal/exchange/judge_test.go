// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestJudge(t *testing.T) {
	type spec = v1alpha1.AdvertisementSpec
	available := func(name, quantity string) func(*spec) {
		return func(ad *spec) { ad.Availability[corev1.ResourceName(name)] = resource.MustParse(quantity) }
	}
	missing := func(name corev1.ResourceName) func(*spec) {
		return func(ad *spec) { delete(ad.Availability, name) }
	}
	version := func(text string) func(*spec) { return func(ad *spec) { ad.KubernetesVersion = text } }
	labelled := func(key, value string) func(*spec) {
		return func(ad *spec) { ad.Labels = map[string]v1alpha1.Text{key: v1alpha1.Text(value)} }
	}
	said := func(timestamp, timeToLive time.Duration) func(*spec) {
		return func(ad *spec) {
			ad.Timestamp, ad.TimeToLive = metav1.NewTime(now.Add(timestamp)), metav1.NewTime(now.Add(timeToLive))
		}
	}
	images := func(count int, image v1alpha1.Image) func(*spec) {
		return func(ad *spec) {
			for range count {
				ad.Images = append(ad.Images, image)
			}
		}
	}
	priced := func(currency, name, price string) func(*spec) {
		return func(ad *spec) {
			ad.Prices = &v1alpha1.Prices{Currency: currency, PerHour: resources(name, price)}
		}
	}

	imagePriced := func(name, price string) func(*spec) {
		return func(ad *spec) {
			ad.Prices = &v1alpha1.Prices{Currency: "EUR", PerPlacement: amountsByImage(name, price)}
		}
	}
	connected := func(change func(*v1alpha1.Network)) func(*spec) {
		return func(ad *spec) {
			ad.Network = &v1alpha1.Network{
				PodCIDRs: []v1alpha1.CIDR{"10.244.0.0/16", "fd00:1::/48"}, ServiceCIDRs: []v1alpha1.CIDR{"10.96.0.0/12"},
				Nameservers: []v1alpha1.IP{"10.96.0.10"},
				Gateway: &v1alpha1.Gateway{
					PublicKey: strings.Repeat("A", 43) + "=", Endpoints: []v1alpha1.HostPort{"203.0.113.7:51820", "[2001:db8::7]:51820", "gw.example.com:1"},
					Protocols: []string{v1alpha1.ProtocolWireGuard}, Addresses: []v1alpha1.IP{"10.96.0.0"},
				},
				Mappings: []v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: "100.64.0.0/16"}},
			}
			change(ad.Network)
		}
	}
	extended := func(key, value string) func(*spec) {
		return func(ad *spec) { ad.Extensions = map[string]v1alpha1.Extension{key: v1alpha1.Extension(value)} }
	}

	for name, test := range map[string]struct {
		change func(*spec)
		reason string
		names  string // what the message must name
	}{
		"a plain offer":                      {func(*spec) {}, v1alpha1.ReasonAccepted, ""},
		"nothing at all to spare":            {func(ad *spec) { ad.Availability = amounts{}.list() }, v1alpha1.ReasonAccepted, ""},
		"unknown flags":                      {func(ad *spec) { ad.Flags = map[string]v1alpha1.Text{"whatever it is": "%&/"} }, v1alpha1.ReasonAccepted, ""},
		"a device":                           {available("example.com/gpu", "8"), v1alpha1.ReasonAccepted, ""},
		"a label and a price":                {priced("EUR", "cpu", "0.0123"), v1alpha1.ReasonAccepted, ""},
		"negative memory":                    {available("memory", "-1Gi"), v1alpha1.ReasonInvalidQuantity, `spec.availability[memory] is "-1Gi"`},
		"negative cpu by a little":           {available("cpu", "-1n"), v1alpha1.ReasonInvalidQuantity, "spec.availability[cpu]"},
		"absurd cpu":                         {available("cpu", "1e9"), v1alpha1.ReasonInvalidQuantity, "spec.availability[cpu]"},
		"absurd memory":                      {available("memory", "9Pi"), v1alpha1.ReasonInvalidQuantity, "8Pi"},
		"more than 64 bits":                  {available("memory", "1e30"), v1alpha1.ReasonInvalidQuantity, "spec.availability[memory]"},
		"absurdly many devices":              {available("example.com/gpu", "1e18"), v1alpha1.ReasonInvalidQuantity, "example.com/gpu"},
		"half a pod":                         {available("pods", "1500m"), v1alpha1.ReasonInvalidQuantity, "spec.availability[pods]"},
		"no cpu":                             {missing("cpu"), v1alpha1.ReasonInvalidQuantity, "spec.availability[cpu] is missing"},
		"no memory":                          {missing("memory"), v1alpha1.ReasonInvalidQuantity, "spec.availability[memory]"},
		"no pods":                            {missing("pods"), v1alpha1.ReasonInvalidQuantity, "spec.availability[pods]"},
		"no ephemeral storage":               {missing("ephemeral-storage"), v1alpha1.ReasonInvalidQuantity, "spec.availability[ephemeral-storage]"},
		"a negative largest pod":             {func(ad *spec) { ad.LargestPod = resources("cpu", "-1") }, v1alpha1.ReasonInvalidQuantity, "spec.largestPod[cpu]"},
		"a resource that no node can have":   {available("widgets", "1"), v1alpha1.ReasonInvalidField, "widgets"},
		"a resource name with a space":       {available("example.com/a b", "1"), v1alpha1.ReasonInvalidField, "example.com/a b"},
		"too many resources":                 {manyResources, v1alpha1.ReasonInvalidField, "spec.availability has 104 entries"},
		"the id of another cluster":          {func(ad *spec) { ad.ClusterID = "bremen" }, v1alpha1.ReasonClusterIDMismatch, `"bremen"`},
		"a phase":                            {func(ad *spec) { ad.Phase = v1alpha1.OfferDraining }, v1alpha1.ReasonAccepted, ""},
		"an unknown phase":                   {func(ad *spec) { ad.Phase = "Gone" }, v1alpha1.ReasonInvalidField, `spec.phase is "Gone"`},
		"an endless phase":                   {func(ad *spec) { ad.Phase = v1alpha1.OfferPhase(strings.Repeat("x", 9999)) }, v1alpha1.ReasonInvalidField, "spec.phase"},
		"an old offer that still holds":      {said(-29*time.Minute, time.Minute), v1alpha1.ReasonAccepted, ""},
		"a clock within the bound":           {said(15*time.Minute, time.Hour), v1alpha1.ReasonAccepted, ""},
		"a clock beyond the bound":           {said(15*time.Minute+time.Second, time.Hour), v1alpha1.ReasonClockSkew, "15m0s"},
		"no time":                            {func(ad *spec) { ad.Timestamp = metav1.Time{} }, v1alpha1.ReasonInvalidField, "spec.timestamp"},
		"no time to live":                    {func(ad *spec) { ad.TimeToLive = metav1.Time{} }, v1alpha1.ReasonInvalidField, "spec.timeToLive"},
		"an end before its start":            {said(10*time.Minute, 5*time.Minute), v1alpha1.ReasonInvalidField, "spec.timeToLive"},
		"a sequence that goes back":          {func(ad *spec) { ad.Sequence = 4 }, v1alpha1.ReasonStale, "spec.sequence"},
		"the same sequence again":            {func(ad *spec) { ad.Sequence = 5 }, v1alpha1.ReasonAccepted, ""},
		"a version of a distribution":        {version("v1.37.1-gke.1200+k3s1"), v1alpha1.ReasonAccepted, ""},
		"a version that moves the cursor":    {version("v1.37.1\x1b[2J"), v1alpha1.ReasonInvalidField, "spec.kubernetesVersion"},
		"a version on two lines":             {version("v1.37.1\nv1.38.0"), v1alpha1.ReasonInvalidField, "spec.kubernetesVersion"},
		"a version that is a word":           {version("latest"), v1alpha1.ReasonInvalidField, "spec.kubernetesVersion"},
		"a negative sequence":                {func(ad *spec) { ad.Sequence = -1 }, v1alpha1.ReasonInvalidField, "spec.sequence"},
		"a good label":                       {labelled("topology.kubernetes.io/region", "eu-north"), v1alpha1.ReasonAccepted, ""},
		"a bad label key":                    {labelled("a//b", "x"), v1alpha1.ReasonInvalidField, "a//b"},
		"a bad label value":                  {labelled("a", "two words"), v1alpha1.ReasonInvalidField, "two words"},
		"a bad pod range":                    {connected(func(n *v1alpha1.Network) { n.PodCIDRs[1] = "10.0.0.0/33" }), v1alpha1.ReasonInvalidField, "spec.network.podCIDRs[1]"},
		"a pod range with host bits":         {connected(func(n *v1alpha1.Network) { n.PodCIDRs[0] = "10.0.0.1/16" }), v1alpha1.ReasonInvalidField, "10.0.0.1/16"},
		"a range of two families":            {connected(func(n *v1alpha1.Network) { n.PodCIDRs[0] = "::ffff:10.0.0.0/112" }), v1alpha1.ReasonInvalidField, "spec.network.podCIDRs[0]"},
		"a bad Service range":                {connected(func(n *v1alpha1.Network) { n.ServiceCIDRs[0] = "all" }), v1alpha1.ReasonInvalidField, "spec.network.serviceCIDRs[0]"},
		"ten thousand pod ranges":            {connected(func(n *v1alpha1.Network) { n.PodCIDRs = slices.Repeat(n.PodCIDRs, 5000) }), v1alpha1.ReasonInvalidField, "spec.network.podCIDRs has 10000 entries"},
		"a bad relayed range":                {connected(func(n *v1alpha1.Network) { n.RelayedCIDRs = []v1alpha1.CIDR{"100.64.0.7/16"} }), v1alpha1.ReasonInvalidField, "spec.network.relayedCIDRs[0]"},
		"a name server without an address":   {connected(func(n *v1alpha1.Network) { n.Nameservers[0] = "dns" }), v1alpha1.ReasonInvalidField, "spec.network.nameservers[0]"},
		"a name server with a zone":          {connected(func(n *v1alpha1.Network) { n.Nameservers[0] = "fe80::1%eth0" }), v1alpha1.ReasonInvalidField, "spec.network.nameservers[0]"},
		"a gateway whose key is none":        {connected(func(n *v1alpha1.Network) { n.Gateway.PublicKey = "key" }), v1alpha1.ReasonInvalidField, "spec.network.gateway.publicKey"},
		"a gateway without a key":            {connected(func(n *v1alpha1.Network) { n.Gateway.PublicKey = "" }), v1alpha1.ReasonInvalidField, "spec.network.gateway.publicKey"},
		"a gateway without a port":           {connected(func(n *v1alpha1.Network) { n.Gateway.Endpoints[0] = "203.0.113.7" }), v1alpha1.ReasonInvalidField, "spec.network.gateway.endpoints[0]"},
		"a gateway at nine endpoints":        {connected(func(n *v1alpha1.Network) { n.Gateway.Endpoints = slices.Repeat(n.Gateway.Endpoints[:1], 9) }), v1alpha1.ReasonInvalidField, "spec.network.gateway.endpoints has 9 entries"},
		"a gateway whose address is none":    {connected(func(n *v1alpha1.Network) { n.Gateway.Addresses[0] = "10.96.0.0/32" }), v1alpha1.ReasonInvalidField, "spec.network.gateway.addresses[0]"},
		"a mapping to a range of other size": {connected(func(n *v1alpha1.Network) { n.Mappings[0].Seen = "100.64.0.0/17" }), v1alpha1.ReasonInvalidField, "spec.network.mappings[0]"},
		"a mapping to a range of other kind": {connected(func(n *v1alpha1.Network) { n.Mappings[0].Seen = "fd00::/16" }), v1alpha1.ReasonInvalidField, "spec.network.mappings[0]"},
		"a good network":                     {connected(func(*v1alpha1.Network) {}), v1alpha1.ReasonAccepted, ""},
		"a good pod range":                   {func(ad *spec) { ad.Network = &v1alpha1.Network{PodCIDRs: []v1alpha1.CIDR{"10.0.0.0/16"}} }, v1alpha1.ReasonAccepted, ""},
		"too many images":                    {images(101, v1alpha1.Image{Names: []string{"a"}}), v1alpha1.ReasonInvalidField, "spec.images"},
		"an image without a name":            {images(1, v1alpha1.Image{}), v1alpha1.ReasonInvalidField, "spec.images[0].names"},
		"an image with an endless name":      {images(1, v1alpha1.Image{Names: []string{strings.Repeat("a", 501)}}), v1alpha1.ReasonInvalidField, "spec.images[0].names"},
		"an image of negative size":          {images(1, v1alpha1.Image{Names: []string{"a"}, SizeBytes: -1}), v1alpha1.ReasonInvalidQuantity, "spec.images[0].sizeBytes"},
		"a negative price":                   {priced("EUR", "cpu", "-1"), v1alpha1.ReasonInvalidQuantity, "spec.prices.perHour[cpu]"},
		"a price of what no node can have":   {priced("EUR", "time", "1"), v1alpha1.ReasonInvalidField, "time"},
		"a price in no currency":             {priced("gold", "cpu", "1"), v1alpha1.ReasonInvalidField, "spec.prices.currency"},
		"an unknown currency":                {priced("XQZ", "cpu", "1"), v1alpha1.ReasonAccepted, ""},
		"a price beyond all reason":          {priced("EUR", "cpu", "1e30"), v1alpha1.ReasonAccepted, ""},
		"the price of an image":              {imagePriced("nginx", "0.5"), v1alpha1.ReasonAccepted, ""},
		"a negative price of an image":       {imagePriced("nginx", "-1n"), v1alpha1.ReasonInvalidQuantity, "spec.prices.perPlacement[nginx]"},
		"a price of no image":                {imagePriced("", "1"), v1alpha1.ReasonInvalidField, "spec.prices.perPlacement"},
		"a price of an endless image":        {imagePriced(strings.Repeat("a", 501), "1"), v1alpha1.ReasonInvalidField, "spec.prices.perPlacement"},
		"too many prices of images":          {manyImagePrices, v1alpha1.ReasonInvalidField, "spec.prices.perPlacement has 101 entries"},
		"a guarantee":                        {func(ad *spec) { ad.Guarantee = resources("cpu", "1") }, v1alpha1.ReasonAccepted, ""},
		"a negative guarantee":               {func(ad *spec) { ad.Guarantee = resources("cpu", "-1") }, v1alpha1.ReasonInvalidQuantity, "spec.guarantee[cpu]"},
		"a guarantee of what no node has":    {func(ad *spec) { ad.Guarantee = resources("luck", "1") }, v1alpha1.ReasonInvalidField, "spec.guarantee"},
		"an extension":                       {extended("any thing", strings.Repeat("ä", 4096)), v1alpha1.ReasonAccepted, ""},
		"an endless extension":               {extended("a", strings.Repeat("ä", 4097)), v1alpha1.ReasonInvalidField, "spec.extensions"},
		"an extension with an endless key":   {extended(strings.Repeat("a", 318), ""), v1alpha1.ReasonInvalidField, "spec.extensions"},
		"too many extensions":                {manyExtensions, v1alpha1.ReasonInvalidField, "spec.extensions has 17 entries"},
		"a flag of many bytes":               {func(ad *spec) { ad.Flags = map[string]v1alpha1.Text{"a": v1alpha1.Text(strings.Repeat("ä", 253))} }, v1alpha1.ReasonAccepted, ""},
		"an architecture that is none":       {func(ad *spec) { ad.Architectures = []string{"amd 64"} }, v1alpha1.ReasonInvalidField, "amd 64"},
		"an endless flag":                    {func(ad *spec) { ad.Flags = map[string]v1alpha1.Text{"a": v1alpha1.Text(strings.Repeat("x", 254))} }, v1alpha1.ReasonInvalidField, "spec.flags"},
		"an endless key, quoted but bounded": {labelled(strings.Repeat("ä", 9999), "x"), v1alpha1.ReasonInvalidField, "spec.labels"},
	} {
		t.Run(name, func(t *testing.T) {
			previous := offer(func(ad *spec) { ad.Sequence = 5 })
			verdict := Judge(offer(test.change), DefaultBounds(), "hamburg", previous, now)
			expectEqual(t, test.reason, verdict.Reason)
			expectEqual(t, test.reason == v1alpha1.ReasonAccepted, verdict.Accepted)
			if !strings.Contains(verdict.Message, test.names) {
				t.Errorf("message %q does not name %q", verdict.Message, test.names)
			}
			if len(verdict.Message) > maxMessage {
				t.Errorf("message has %d bytes", len(verdict.Message))
			}
		})
	}
}

func manyResources(ad *v1alpha1.AdvertisementSpec) {
	for i := range 100 {
		ad.Availability[corev1.ResourceName(fmt.Sprint("example.com/r", i))] = resource.MustParse("1")
	}
}

func manyImagePrices(ad *v1alpha1.AdvertisementSpec) {
	ad.Prices = &v1alpha1.Prices{Currency: "EUR", PerPlacement: map[string]resource.Quantity{}}
	for i := range 101 {
		ad.Prices.PerPlacement[fmt.Sprint("image-", i)] = resource.MustParse("1")
	}
}

func manyExtensions(ad *v1alpha1.AdvertisementSpec) {
	ad.Extensions = map[string]v1alpha1.Extension{}
	for i := range 17 {
		ad.Extensions[fmt.Sprint("extension-", i)] = "x"
	}
}

func TestJudgeOfNestedOffers(t *testing.T) {
	type nested = v1alpha1.NestedOffer
	riga := func(changes ...func(*nested)) nested {
		n := nested{ClusterID: "riga", Availability: resources("cpu", "1")}
		for _, change := range changes {
			change(&n)
		}
		return n
	}
	one := func(change func(*nested)) []nested { return []nested{riga(change)} }
	for name, test := range map[string]struct {
		nested []nested
		reason string
		names  string
	}{
		"one":                        {[]nested{riga()}, v1alpha1.ReasonAccepted, ""},
		"two of one cluster":         {[]nested{riga(), riga()}, v1alpha1.ReasonInvalidField, `"riga" twice`},
		"more than there may be":     {make([]nested, 101), v1alpha1.ReasonInvalidField, "spec.nested has 101 entries"},
		"no id":                      {one(func(n *nested) { n.ClusterID = "" }), v1alpha1.ReasonInvalidField, "spec.nested[0].clusterID"},
		"an id that is none":         {one(func(n *nested) { n.ClusterID = "Riga!" }), v1alpha1.ReasonInvalidField, "Riga!"},
		"an endless id":              {one(func(n *nested) { n.ClusterID = strings.Repeat("a", 31) }), v1alpha1.ReasonInvalidField, "clusterID"},
		"a path":                     {one(func(n *nested) { n.Path = []string{"a", "b", "c", "d"} }), v1alpha1.ReasonAccepted, ""},
		"a long path":                {one(func(n *nested) { n.Path = []string{"a", "b", "c", "d", "e"} }), v1alpha1.ReasonInvalidField, "spec.nested[0].path"},
		"a path over no cluster":     {one(func(n *nested) { n.Path = []string{"a", ""} }), v1alpha1.ReasonInvalidField, "spec.nested[0].path"},
		"nothing said of what is":    {one(func(n *nested) { n.Availability = nil }), v1alpha1.ReasonInvalidQuantity, "spec.nested[0].availability"},
		"less than nothing":          {one(func(n *nested) { n.Availability = resources("cpu", "-1") }), v1alpha1.ReasonInvalidQuantity, "spec.nested[0].availability[cpu]"},
		"more than any cluster has":  {one(func(n *nested) { n.Availability = resources("cpu", "1e9") }), v1alpha1.ReasonInvalidQuantity, "spec.nested[0].availability[cpu]"},
		"a negative price":           {one(func(n *nested) { n.Prices = &v1alpha1.Prices{Currency: "EUR", PerHour: resources("cpu", "-1")} }), v1alpha1.ReasonInvalidQuantity, "spec.nested[0].prices.perHour[cpu]"},
		"a price without a currency": {one(func(n *nested) { n.Prices = &v1alpha1.Prices{} }), v1alpha1.ReasonInvalidField, "spec.nested[0].prices.currency"},
		"a label that is none":       {one(func(n *nested) { n.Labels = map[string]v1alpha1.Text{"a": "two words"} }), v1alpha1.ReasonInvalidField, "spec.nested[0].labels"},
	} {
		t.Run(name, func(t *testing.T) {
			verdict := Judge(offer(func(ad *v1alpha1.AdvertisementSpec) { ad.Nested = test.nested }), DefaultBounds(), "hamburg", nil, now)
			expectEqual(t, test.reason, verdict.Reason)
			if !strings.Contains(verdict.Message, test.names) {
				t.Errorf("message %q does not name %q", verdict.Message, test.names)
			}
		})
	}
}

func TestJudgeOfClocks(t *testing.T) {
	const minute = time.Minute
	// A message is made at a time by our clock; its sender's clock may say something else. Each lives for 30 minutes.
	message := func(sequence int64, said time.Duration) *v1alpha1.AdvertisementSpec {
		return offer(func(ad *v1alpha1.AdvertisementSpec) {
			ad.Sequence = sequence
			ad.Timestamp, ad.TimeToLive = metav1.NewTime(now.Add(said)), metav1.NewTime(now.Add(said+30*minute))
		})
	}
	const year = 365 * 24 * time.Hour
	for name, test := range map[string]struct {
		previous, newest *v1alpha1.AdvertisementSpec
		want             string
	}{
		"in time":                            {nil, message(1, 0), v1alpha1.ReasonAccepted},
		"ahead within the bound":             {nil, message(1, 15*minute), v1alpha1.ReasonAccepted},
		"ahead":                              {nil, message(1, 16*minute), v1alpha1.ReasonClockSkew},
		"a year ahead":                       {message(1, 0), message(2, year), v1alpha1.ReasonClockSkew},
		"behind, and not expired for all":    {nil, message(1, -29*minute), v1alpha1.ReasonAccepted},
		"behind, of a stranger":              {nil, message(1, -31*minute), v1alpha1.ReasonClockSkew},
		"a year behind":                      {message(1, 0), message(2, -year), v1alpha1.ReasonClockSkew},
		"behind since the last message":      {message(1, -10*minute), message(2, -40*minute), v1alpha1.ReasonClockSkew},
		"the last one, which has become old": {message(1, -40*minute), message(1, -40*minute), v1alpha1.ReasonExpired},
		"said while we were cut off, the sender silent since": {message(1, -90*minute), message(5, -50*minute), v1alpha1.ReasonExpired},
		"said while we were cut off, the sender alive":        {message(1, -90*minute), message(9, -minute), v1alpha1.ReasonAccepted},
	} {
		t.Run(name, func(t *testing.T) {
			verdict := Judge(test.newest, DefaultBounds(), "hamburg", test.previous, now)
			expectEqual(t, test.want, verdict.Reason)
			expectEqual(t, test.want == v1alpha1.ReasonAccepted, verdict.Accepted)
		})
	}
	short := offer(func(ad *v1alpha1.AdvertisementSpec) {
		ad.Timestamp, ad.TimeToLive = metav1.NewTime(now.Add(-2*minute)), metav1.NewTime(now.Add(-minute))
	})
	expectEqual(t, v1alpha1.ReasonExpired, Judge(short, DefaultBounds(), "hamburg", nil, now).Reason)
}

func TestSequenceNeverGoesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var inUse *v1alpha1.AdvertisementSpec
		var highest int64
		for range rapid.IntRange(1, 30).Draw(t, "messages") {
			message := offer(func(ad *v1alpha1.AdvertisementSpec) {
				ad.Sequence = rapid.Int64Range(-1, 9).Draw(t, "sequence")
				ad.Timestamp = metav1.NewTime(now.Add(time.Duration(rapid.IntRange(-60, 60).Draw(t, "said")) * time.Minute))
				ad.TimeToLive = metav1.NewTime(ad.Timestamp.Add(30 * time.Minute))
			})
			verdict := Judge(message, DefaultBounds(), "hamburg", inUse, now)
			if inUse != nil && message.Sequence < highest && message.Sequence >= 0 && verdict.Reason != v1alpha1.ReasonStale {
				t.Fatalf("sequence %d after %d is %s", message.Sequence, highest, verdict.Reason)
			}
			if !verdict.Accepted {
				continue
			}
			if message.Sequence < highest {
				t.Fatalf("sequence %d was accepted after %d", message.Sequence, highest)
			}
			inUse, highest = message, message.Sequence
		}
	})
}

func TestNoSequenceIsTheLast(t *testing.T) {
	for name, test := range map[string]struct {
		before, now int64
		want        string
	}{
		"the next":                       {7, 8, v1alpha1.ReasonAccepted},
		"the same":                       {7, 7, v1alpha1.ReasonAccepted},
		"the one before":                 {7, 6, v1alpha1.ReasonStale},
		"far ahead":                      {7, math.MaxInt64 / 2, v1alpha1.ReasonAccepted},
		"the largest":                    {math.MaxInt64 - 1, math.MaxInt64, v1alpha1.ReasonAccepted},
		"the one before the largest":     {math.MaxInt64, math.MaxInt64 - 1, v1alpha1.ReasonStale},
		"zero behind the largest":        {math.MaxInt64, 0, v1alpha1.ReasonAccepted},
		"the clock behind the largest":   {math.MaxInt64, now.UnixMilli(), v1alpha1.ReasonAccepted},
		"the largest again, behind zero": {0, math.MaxInt64, v1alpha1.ReasonStale},
	} {
		t.Run(name, func(t *testing.T) {
			said := func(sequence int64) *v1alpha1.AdvertisementSpec {
				return offer(func(ad *v1alpha1.AdvertisementSpec) { ad.Sequence = sequence })
			}
			expectEqual(t, test.want, Judge(said(test.now), DefaultBounds(), "hamburg", said(test.before), now).Reason)
		})
	}
}
