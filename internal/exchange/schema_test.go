// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

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

func TestDecodeLooksAtEveryQuantity(t *testing.T) {
	for _, bad := range []any{"1e-999999999", "1E+99", strings.Repeat("1", 65), 1e300, 5e-324} {
		for _, path := range []string{
			"availability", "largestPod", "guarantee", "prices.perHour", "prices.perPlacement",
			"nested.availability", "nested.prices.perHour", "nested.prices.perPlacement",
		} {
			object := map[string]any{"cpu": bad}
			steps := strings.Split(path, ".")
			for i := len(steps) - 1; i >= 0; i-- {
				object = map[string]any{steps[i]: object}
				if steps[i] == "nested" {
					object["nested"] = []any{map[string]any{"clusterID": "good"}, object["nested"]}
				}
			}
			if _, err := Decode(map[string]any{"spec": object}); !errors.Is(err, sanitize.ErrQuantity) {
				t.Errorf("%s: %.20v: got error %v", path, bad, err)
			}
		}
	}
}

func TestDecodeRefusesLongListsBeforeItReadsThem(t *testing.T) {
	long := make([]any, 100_000)
	many := map[string]any{}
	for i := range 101 {
		many[fmt.Sprint("example.com/r", i)] = "1"
	}
	for name, spec := range map[string]map[string]any{
		"images":        {"images": long},
		"nested":        {"nested": long},
		"architectures": {"architectures": long},
		"names":         {"images": []any{map[string]any{"names": long}}},
		"path":          {"nested": []any{map[string]any{"path": long}}},
		"availability":  {"availability": many},
		"perPlacement":  {"prices": map[string]any{"perPlacement": many}},
		"nested prices": {"nested": []any{map[string]any{"prices": map[string]any{"perHour": many}}}},
	} {
		if _, err := Decode(map[string]any{"spec": spec}); !errors.Is(err, errTooMany) {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}

func TestDecodeSurvivesWhatIsNotWhatItShouldBe(t *testing.T) {
	for _, spec := range []any{
		nil, "text",
		[]any{},
		map[string]any{"images": "text", "nested": map[string]any{}, "prices": []any{}},
		map[string]any{"nested": []any{"text", nil, map[string]any{"prices": "text", "availability": []any{}}}},
		map[string]any{"images": []any{"text", map[string]any{"names": "text"}}},
	} {
		if ad, err := Decode(map[string]any{"spec": spec}); err == nil && Judge(&ad.Spec, DefaultBounds(), "hamburg", nil, now).Accepted {
			t.Errorf("%v was accepted", spec)
		}
	}
}

func TestDecodeKeepsFlagsAndExtensionsWordForWord(t *testing.T) {
	sent := offer(func(ad *v1alpha1.AdvertisementSpec) {
		ad.Flags = map[string]v1alpha1.Text{"of tomorrow": " %&/\u2028 "}
		ad.Extensions = map[string]v1alpha1.Extension{"of tomorrow": "{ \"a\" :1.0 }\n\t<&>"}
	})
	ad, err := Decode(unstructuredOf(t, v1alpha1.Advertisement{Spec: *sent}))
	if err != nil {
		t.Fatal(err)
	}
	if verdict := Judge(&ad.Spec, DefaultBounds(), "hamburg", nil, now); !verdict.Accepted {
		t.Error(verdict.Message)
	}
	expectEqual(t, sent.Flags, ad.Spec.Flags)
	expectEqual(t, sent.Extensions, ad.Spec.Extensions)
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
		if verdict.Accepted {
			expectUsable(t, ad.Spec)
		}
	})
}

// expectUsable does all that is done with an offer once it was accepted.
func expectUsable(t *testing.T, spec v1alpha1.AdvertisementSpec) {
	for name, quantity := range spec.Availability {
		if quantity.Sign() < 0 || quantity.Cmp(MaxQuantity(name)) > 0 {
			t.Fatalf("accepted %s of %s", quantity.String(), name)
		}
	}
	ad := v1alpha1.Advertisement{Spec: spec}
	ad.Labels = map[string]string{v1alpha1.LabelPeer: "hamburg"}
	ad.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue}}
	table := NewTable([]v1alpha1.Advertisement{ad}, now)
	for _, match := range table.Match(Query{Request: spec.Availability, Images: []string{"nginx"}}) {
		if match.Cost().PerHour.Sign() < 0 {
			t.Fatalf("it costs %s", match.Cost().PerHour)
		}
	}
	Place(Placing{Rows: table.Rows, Asked: v1alpha1.Placement{Prefer: v1alpha1.PreferPrice, Strict: true}})
	if Moved(spec.Availability, Steady(nil, spec.Availability), 0) {
		t.Fatal("it is not shown as it is offered")
	}
	if !Loops(&spec, "lubeck") {
		expectPassable(t, ad)
	}
}

// expectPassable passes the offer on: what it becomes must be good enough for the next, who is as strict as we are.
func expectPassable(t *testing.T, ad v1alpha1.Advertisement) {
	own := *offer(func(ad *v1alpha1.AdvertisementSpec) { ad.ClusterID = "lubeck" })
	passed := Aggregate(own, []v1alpha1.Advertisement{ad}, 7, "bremen")
	sent, err := json.Marshal(v1alpha1.Advertisement{Spec: passed})
	if err != nil {
		t.Fatal(err)
	}
	object := map[string]any{}
	if err := json.Unmarshal(sent, &object); err != nil {
		t.Fatal(err)
	}
	received, err := Decode(object)
	if err != nil {
		t.Fatalf("what was passed on cannot be read: %v", err)
	}
	if verdict := Judge(&received.Spec, DefaultBounds(), "lubeck", nil, now); !verdict.Accepted || Loops(&received.Spec, "bremen") {
		t.Fatalf("what was passed on is refused: %s", verdict.Message)
	}
}
