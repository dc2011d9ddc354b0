// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"strings"
	"testing"

	oteltrace "go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
)

const (
	home    types.UID = "3f6c1e5a-9d84-4b0e-a1c7-52f0d9e8b733"
	homeID            = "3f6c1e5a9d844b0ea1c752f0d9e8b733"
	another types.UID = "e0a5d6b2-7c3f-4f19-8e42-06b1c94d5a28"
)

func TestIdsFollowFromTheUIDOfTheHomePod(t *testing.T) {
	for name, test := range map[string]struct {
		uid  types.UID
		want string
	}{
		"a UUID":                      {home, homeID},
		"one that is no UUID":         {"uid-web-1", ""},
		"none":                        {"", ""},
		"a UUID without its dashes":   {homeID, ""},
		"one with more of them":       {home + "-", ""},
		"as long, and no hexadecimal": {"3f6c1e5a-9d84-4b0e-a1c7-52f0d9e8b73z", ""},
		"as long, with other letters": {types.UID(strings.ToUpper(string(home))), ""},
		"nothing but zeros":           {"00000000-0000-0000-0000-000000000000", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := rootOf(test.uid)
			if got.IsValid() != (test.want != "") || got.IsValid() && got.TraceID().String() != test.want {
				t.Errorf("got trace %s", got.TraceID())
			}
			if !got.Equal(rootOf(test.uid)) {
				t.Error("it is not always the same")
			}
		})
	}
	if rootOf(home).SpanID() == rootOf(another).SpanID() {
		t.Error("two traces have the same root")
	}
}

func TestTraceparentTravels(t *testing.T) {
	root := rootOf(home)
	text := Traceparent(root)
	if want := "00-" + homeID + "-" + root.SpanID().String() + "-01"; text != want || len(text) != MaxTraceparent {
		t.Errorf("got %q, want %q", text, want)
	}
	if got := parse(text, home); !got.Equal(root.WithRemote(true)) {
		t.Errorf("what arrives is %v", got)
	}
	if got := Traceparent(oteltrace.SpanContext{}); got != "" {
		t.Errorf("without a trace %q travels", got)
	}
}

func TestWhatPeersWriteIsNotTrusted(t *testing.T) {
	const parent = "b7ad6b7169203331"
	for name, test := range map[string]struct {
		text string
		want bool
	}{
		"a context":                   {"00-" + homeID + "-" + parent + "-01", true},
		"one with the random flag":    {"00-" + homeID + "-" + parent + "-03", true},
		"of another pod":              {"00-0af7651916cd43dd8448eb211c80319c-" + parent + "-01", false},
		"without a parent":            {"00-" + homeID + "-0000000000000000-01", false},
		"in large letters":            {strings.ToUpper("00-" + homeID + "-" + parent + "-01"), false},
		"with something behind it":    {"00-" + homeID + "-" + parent + "-01-x", false},
		"of a version that is longer": {"01-" + homeID + "-" + parent + "-01-" + strings.Repeat("x", 1<<20), false},
		"with unknown flags":          {"00-" + homeID + "-" + parent + "-ff", false},
		"cut off":                     {"00-" + homeID, false},
		"nonsense":                    {strings.Repeat("-", MaxTraceparent), false},
		"nothing":                     {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := parse(test.text, home); got.IsSampled() != test.want {
				t.Errorf("got %+v", got)
			}
		})
	}
	if parse("00-"+homeID+"-"+parent+"-00", home).IsSampled() {
		t.Error("what the peer does not record is taken as recorded")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Traceparent(rootOf(home)), string(home))
	f.Add("01-"+homeID+"-b7ad6b7169203331-01-more", string(home))
	f.Add("00-00000000000000000000000000000000-0000000000000000-00", "00000000-0000-0000-0000-000000000000")
	f.Fuzz(func(t *testing.T, text, uid string) {
		got := parse(text, types.UID(uid))
		if !got.IsValid() {
			return
		}
		if want := strings.ReplaceAll(uid, "-", ""); got.TraceID().String() != want {
			t.Errorf("%q leads a pod %s into trace %s", text, uid, got.TraceID())
		}
		if got.IsSampled() && !parse(Traceparent(got), types.UID(uid)).Equal(got) {
			t.Errorf("%q does not survive to be passed on", text)
		}
	})
}

// The ids are those of UUIDs: some of their bits are always the same, which no sample may depend on.
func TestSharesAreOfTheirSizeAndContainEachOther(t *testing.T) {
	const all = 4000
	var ids []oteltrace.TraceID
	for i := range all {
		id := rootOf(home).TraceID()
		made := spanID(id, "test", "random", testTime(i)) // as good as random
		copy(id[9:], made[:7])
		ids = append(ids, id)
	}
	got := map[float64]int{}
	for _, percent := range []float64{0, 10, 50, 100} {
		for _, id := range ids {
			if shareOf(percent).has(id) {
				got[percent]++
				if !shareOf(percent + 1).has(id) {
					t.Errorf("%s is in %v percent, and not in more", id, percent)
				}
			}
		}
	}
	if got[0] != 0 || got[100] != all || !about(got[10], all/10) || !about(got[50], all/2) {
		t.Errorf("of %d traces are in so many percent: %v", all, got)
	}
}

func about(got, want int) bool { return got > want*8/10 && got < want*12/10 }
