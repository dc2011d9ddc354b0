// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/ast"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// asJSON writes an input as rules see it, with exact numbers.
func asJSON(t *testing.T, in Input) map[string]any {
	t.Helper()
	plain, err := ast.JSON(in.value)
	if err != nil {
		t.Fatal(err)
	}
	return plain.(map[string]any)
}

func parsed(t *testing.T, text string) map[string]any {
	t.Helper()
	return asJSON(t, input(t, text))
}

const offerJSON = `{
	"clusterID": "turin-1", "phase": "Open",
	"availability": {"cpu": 12.5, "memory": 68719476736, "pods": 110, "ephemeral-storage": 0, "nvidia.com/gpu": 2},
	"largestPod": {"cpu": 4, "memory": 17179869184, "pods": 1}, "guarantee": {},
	"prices": {"currency": "EUR", "perHour": {"cpu": 0.031, "nvidia.com/gpu": 2}, "perPlacement": {}},
	"labels": {"topology.kubernetes.io/region": "eu-south"}, "flags": {"aggregatable": "false"},
	"architectures": ["amd64"], "storageClasses": [], "kubernetesVersion": "v1.37.1",
	"timestamp": "2026-11-20T12:00:00Z", "timeToLive": "2026-11-20T12:30:00Z"`

const offerDetailsJSON = `, "extensions": {"example.com/green": "{}"}, "nested": [],
	"images": [{"names": ["docker.io/library/nginx:1"], "sizeBytes": 70000000}]`

func TestNewInput(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "twin", Labels: map[string]string{"app": "web"}, UID: "secret"},
		Spec:       corev1.PodSpec{NodeSelector: map[string]string{"a": "b"}},
	}
	for name, test := range map[string]struct {
		facts Facts
		want  string
	}{
		"nothing is known": {Facts{}, `{}`},
		"an offer": {
			Facts{Time: now.In(time.FixedZone("", 3600)), Peer: peer(), Advertisement: offer(), Previous: offer()},
			`{
				"time": "2026-11-20T12:00:00Z",
				"peer": {"name": "turin", "clusterID": "turin-1", "roles": ["Provider"], "labels": {"tier": "gold"},
					"ready": true, "roundTripSeconds": 0.0125,
					"bandwidthBytesPerSecond": 12000000, "throughputBytesPerSecond": 1000, "lossPercent": 3},
				"advertisement": ` + offerJSON + offerDetailsJSON + `}, "previous": ` + offerJSON + offerDetailsJSON + `}}`,
		},
		"an empty offer of an unknown peer": {
			Facts{Peer: &v1alpha1.Peer{}, Advertisement: &v1alpha1.AdvertisementSpec{Phase: v1alpha1.OfferCordoned}},
			`{"peer": {"roles": [], "labels": {}, "ready": false},
				"advertisement": {"phase": "Cordoned", "availability": {}, "guarantee": {}, "labels": {}, "flags": {},
					"architectures": [], "storageClasses": [], "extensions": {}, "nested": [], "images": []}}`,
		},
		"nested offers": {
			Facts{Advertisement: &v1alpha1.AdvertisementSpec{Nested: []v1alpha1.NestedOffer{{
				ClusterID: "milan", Path: []string{"genoa"}, Availability: list("cpu", "100m"),
				Prices: &v1alpha1.Prices{Currency: "EUR"},
			}}}},
			`{"advertisement": {"phase": "Open", "availability": {}, "guarantee": {}, "labels": {}, "flags": {},
				"architectures": [], "storageClasses": [], "extensions": {}, "images": [], "nested": [{"clusterID": "milan", "path": ["genoa"],
					"availability": {"cpu": 0.1}, "prices": {"currency": "EUR", "perHour": {}, "perPlacement": {}}, "labels": {}}]}}`,
		},
		"a placement": {
			Facts{
				Table:     NewTable([]TableRow{{Peer: "turin", Open: true, Offer: offer(), RoundTrip: 1500 * time.Microsecond, Bandwidth: 12e6, Throughput: 5e6, Loss: new(int32)}}),
				Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"a": "b"}}},
				Class:     "gold",
				Wish: &v1alpha1.Placement{
					Prefer: v1alpha1.PreferPrice, MaxPrice: &v1alpha1.Price{Amount: resource.MustParse("500m"), Currency: "EUR"},
					MaxLatency: &metav1.Duration{Duration: 50 * time.Millisecond}, MinBandwidth: ptr.To(resource.MustParse("100M")), Exclude: []string{"milan"}, Strict: true,
				},
				Request: request(),
			},
			`{
				"table": [` + offerJSON + offerDetailsJSON + `, "peer": "turin", "open": true, "roundTripSeconds": 0.0015,
					"bandwidthBytesPerSecond": 12000000, "throughputBytesPerSecond": 5000000, "lossPercent": 0}],
				"namespace": {"name": "shop", "labels": {"a": "b"}, "annotations": {}}, "class": "gold",
				"wish": {"prefer": "Price", "maxPrice": {"amount": 0.5, "currency": "EUR"}, "maxLatencySeconds": 0.05, "minBandwidthBytesPerSecond": 100000000,
					"exclude": ["milan"], "strict": true},
				"request": {"cpu": 1.5, "memory": 1073741824}}`,
		},
		"a member that asks through its broker": {
			Facts{Member: "wismar", Marks: &v1alpha1.MemberMarks{
				Since: metav1.NewTime(now), LongestGap: &metav1.Duration{Duration: 16 * time.Minute}, Quotes: 4, Offers: 3,
				OfferTime: &metav1.Duration{Duration: 1500 * time.Millisecond}, Requests: 3, Acknowledged: 2, HandOvers: 2, Refusals: 1,
			}},
			`{"member": "wismar", "marks": {"since": "2026-11-20T12:00:00Z", "longestGapSeconds": 960, "quotes": 4, "offers": 3, "declined": 0,
				"offerTimeSeconds": 1.5, "requests": 3, "acknowledged": 2, "handOvers": 2, "invitations": 0, "refusals": 1}}`,
		},
		"a member of which nothing was counted yet": {
			Facts{Member: "wismar", Marks: &v1alpha1.MemberMarks{Since: metav1.NewTime(now)}},
			`{"member": "wismar", "marks": {"since": "2026-11-20T12:00:00Z", "quotes": 0, "offers": 0, "declined": 0, "requests": 0, "acknowledged": 0, "handOvers": 0,
				"invitations": 0, "refusals": 0}}`,
		},
		"a pod": {
			Facts{Pod: pod, Load: &Load{Allocatable: list("cpu", "8"), Free: list("cpu", "250m")}},
			`{"pod": {"metadata": {"name": "web", "namespace": "twin", "labels": {"app": "web"}, "annotations": {}},
				"spec": {"containers": null, "nodeSelector": {"a": "b"}}},
				"load": {"allocatable": {"cpu": 8}, "free": {"cpu": 0.25}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			in, err := NewInput(test.facts)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(parsed(t, test.want), asJSON(t, in)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNumbersAreExact(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", "1500m": "1.5", "100m": "0.1", "1n": "0.000000001", "4Gi": "4294967296", "1e3": "1000", "12E": "12000000000000000000",
		"9007199254740993": "9007199254740993", "0.123456789": "0.123456789", "1.10": "1.1", "-250m": "-0.25", "100k": "100000",
	} {
		quantity := resource.MustParse(text)
		before := quantity.String()
		got := (&builder{}).quantity(quantity).Value
		if got.String() != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
		if quantity.String() != before {
			t.Errorf("%s was changed to %s", before, quantity.String())
		}
	}
}

func TestInputIsBounded(t *testing.T) {
	large := offer()
	for i := range 10 {
		large.Extensions[extensionKey(i)] = v1alpha1.Extension(strings.Repeat("x", maxInput/10))
	}
	if _, err := NewInput(Facts{Advertisement: large}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a large offer: %v", err)
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Hostname: strings.Repeat("x", maxInput)}}
	if _, err := NewInput(Facts{Pod: pod}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a large pod: %v", err)
	}
	if _, err := NewInput(Facts{Table: &Value{term: ast.ArrayTerm(), size: maxTable + 1}}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a large table: %v", err)
	}
	if _, err := ParseInput([]byte(`"` + strings.Repeat("x", maxInput) + `"`)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a large text: %v", err)
	}
	for _, text := range []string{``, `[]`, `1`, `{`, `{} {}`, "\xff", strings.Repeat(`{"a":`, 100000)} {
		if _, err := ParseInput([]byte(text)); err == nil {
			t.Errorf("%.20q is an input", text)
		}
	}
}

func extensionKey(i int) string { return fmt.Sprintf("example.com/%d", i) }

// One peer that says a lot costs itself its details, and the others nothing.
func TestLargeRowsOfTheTableLackDetails(t *testing.T) {
	large := offer()
	for range 60 {
		large.Images = append(large.Images, v1alpha1.Image{Names: []string{strings.Repeat("x", 500)}, SizeBytes: 1})
	}
	table := NewTable([]TableRow{{Peer: "large", Offer: large}, {Peer: "small", Offer: offer()}, {Peer: "silent"}})
	if table.size > 2*maxRow {
		t.Errorf("size %d", table.size)
	}
	in, err := NewInput(Facts{Table: table})
	if err != nil {
		t.Fatal(err)
	}
	want := parsed(t, `{"table": [`+offerJSON+`, "peer": "large", "open": false},`+
		offerJSON+offerDetailsJSON+`, "peer": "small", "open": false},
		{"peer": "silent", "open": false, "phase": "Open", "availability": {}, "guarantee": {}, "labels": {}, "flags": {},
			"architectures": [], "storageClasses": [], "extensions": {}, "nested": [], "images": []}]}`)
	if diff := cmp.Diff(want, asJSON(t, in)); diff != "" {
		t.Error(diff)
	}
}

func TestATableOf10000OffersFits(t *testing.T) {
	table := NewTable(rows(10000))
	if _, err := NewInput(Facts{Table: table}); err != nil {
		t.Error(err)
	}
	t.Logf("%d bytes", table.size)
}

// What is counted is near to what the input is as JSON.
func TestSizeIsCounted(t *testing.T) {
	b := &builder{}
	term := b.value(reflect.ValueOf(offer()))
	plain, err := ast.JSON(term.Value)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(plain)
	if err != nil {
		t.Fatal(err)
	}
	if b.size < len(text)/2 || b.size > len(text)*3 {
		t.Errorf("counted %d bytes of %d", b.size, len(text))
	}
}
