package exchange

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		"an expired offer":                   {said(-time.Hour, 0), v1alpha1.ReasonExpired, "spec.timeToLive"},
		"an old offer that still holds":      {said(-29*time.Minute, time.Minute), v1alpha1.ReasonAccepted, ""},
		"a clock within the bound":           {said(15*time.Minute, time.Hour), v1alpha1.ReasonAccepted, ""},
		"a clock beyond the bound":           {said(15*time.Minute+time.Second, time.Hour), v1alpha1.ReasonClockSkew, "15m0s"},
		"no time":                            {func(ad *spec) { ad.Timestamp = metav1.Time{} }, v1alpha1.ReasonInvalidField, "spec.timestamp"},
		"no time to live":                    {func(ad *spec) { ad.TimeToLive = metav1.Time{} }, v1alpha1.ReasonInvalidField, "spec.timeToLive"},
		"an end before its start":            {said(10*time.Minute, 5*time.Minute), v1alpha1.ReasonInvalidField, "spec.timeToLive"},
		"a sequence that goes back":          {func(ad *spec) { ad.Sequence = 4 }, v1alpha1.ReasonStale, "spec.sequence"},
		"the same sequence again":            {func(ad *spec) { ad.Sequence = 5 }, v1alpha1.ReasonAccepted, ""},
		"a negative sequence":                {func(ad *spec) { ad.Sequence = -1 }, v1alpha1.ReasonInvalidField, "spec.sequence"},
		"a good label":                       {labelled("topology.kubernetes.io/region", "eu-north"), v1alpha1.ReasonAccepted, ""},
		"a bad label key":                    {labelled("a//b", "x"), v1alpha1.ReasonInvalidField, "a//b"},
		"a bad label value":                  {labelled("a", "two words"), v1alpha1.ReasonInvalidField, "two words"},
		"a bad pod range":                    {func(ad *spec) { ad.Network = &v1alpha1.Network{PodCIDR: "10.0.0.0/33"} }, v1alpha1.ReasonInvalidField, "spec.network.podCIDR"},
		"a pod range with host bits":         {func(ad *spec) { ad.Network = &v1alpha1.Network{PodCIDR: "10.0.0.1/16"} }, v1alpha1.ReasonInvalidField, "10.0.0.1/16"},
		"a good pod range":                   {func(ad *spec) { ad.Network = &v1alpha1.Network{PodCIDR: "10.0.0.0/16"} }, v1alpha1.ReasonAccepted, ""},
		"too many images":                    {images(101, v1alpha1.Image{Names: []string{"a"}}), v1alpha1.ReasonInvalidField, "spec.images"},
		"an image without a name":            {images(1, v1alpha1.Image{}), v1alpha1.ReasonInvalidField, "spec.images[0].names"},
		"an image with an endless name":      {images(1, v1alpha1.Image{Names: []string{strings.Repeat("a", 501)}}), v1alpha1.ReasonInvalidField, "spec.images[0].names"},
		"an image of negative size":          {images(1, v1alpha1.Image{Names: []string{"a"}, SizeBytes: -1}), v1alpha1.ReasonInvalidQuantity, "spec.images[0].sizeBytes"},
		"a negative price":                   {priced("EUR", "cpu", "-1"), v1alpha1.ReasonInvalidQuantity, "spec.prices.perHour[cpu]"},
		"a price of what no node can have":   {priced("EUR", "time", "1"), v1alpha1.ReasonInvalidField, "time"},
		"a price in no currency":             {priced("gold", "cpu", "1"), v1alpha1.ReasonInvalidField, "spec.prices.currency"},
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

func TestDecodeRefusesQuantitiesThatTakeForEver(t *testing.T) {
	for quantity, good := range map[string]bool{
		"1": true, "1E": true, "1Ei": true, "1e3": true, "1E+3": true, "1e-9": true, "12.5Gi": true,
		"1e-999999999": false, "1E999999999": false, "1e31": false, "nonsense": false, "1e": false,
		strings.Repeat("9", 65): false,
	} {
		_, err := Decode(map[string]any{"spec": map[string]any{"availability": map[string]any{"cpu": quantity}}})
		if (err == nil) != good {
			t.Errorf("%.20q: got error %v", quantity, err)
		}
	}
}

func TestDecodeKeepsWhatItKnows(t *testing.T) {
	object := unstructuredOf(t, v1alpha1.Advertisement{Spec: *offer()})
	object["spec"].(map[string]any)["tomorrow"] = "unknown"
	ad, err := Decode(object)
	if err != nil {
		t.Fatal(err)
	}
	if !SameTerms(offer(), &ad.Spec) || ad.Spec.Sequence != 7 {
		t.Errorf("decoded %v", ad.Spec)
	}
}

func unstructuredOf(t testing.TB, object any) map[string]any {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	decoded := map[string]any{}
	if err := json.Unmarshal(text, &decoded); err != nil {
		t.Fatal(err)
	}
	return decoded
}

func FuzzDecodeAndJudge(f *testing.F) {
	plain, err := json.Marshal(v1alpha1.Advertisement{Spec: *offer()})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(plain)
	f.Add([]byte(`{"spec":{"availability":{"cpu":"1e-999999999","memory":-1,"pods":1e300}}}`))
	f.Add([]byte(`{"spec":{"prices":{"currency":"EUR","perHour":{"cpu":"9E"}},"network":{"podCIDR":"::/0"}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		object := map[string]any{}
		if json.Unmarshal(text, &object) != nil {
			t.Skip()
		}
		ad, err := Decode(object)
		if err != nil {
			return
		}
		verdict := Judge(&ad.Spec, DefaultBounds(), "hamburg", nil, now)
		if verdict.Reason == "" || len(verdict.Message) > maxMessage {
			t.Fatalf("verdict %+v", verdict)
		}
		if !verdict.Accepted {
			return
		}
		for name, quantity := range ad.Spec.Availability {
			if quantity.Sign() < 0 || quantity.Cmp(MaxQuantity(name)) > 0 {
				t.Fatalf("accepted %s of %s", quantity.String(), name)
			}
		}
		accepted := v1alpha1.Advertisement{Spec: ad.Spec}
		accepted.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue}}
		for _, row := range NewTable([]v1alpha1.Advertisement{accepted}, now).Rows {
			row.Fits(ad.Spec.Availability)
			row.PricePerHour(ad.Spec.Availability)
		}
	})
}
