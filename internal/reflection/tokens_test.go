// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// tokensDue are those of a pod that are renewed so long after noon.
func tokensDue(after time.Duration) metav1.Object {
	return TokenSecret("u-1", "shop-turin", "hanse-token-u-1", nil, noon.Add(after))
}

func altered(object metav1.Object, change func(metav1.Object)) metav1.Object {
	change(object)
	return object
}

func TestWhatBecomesOfTokens(t *testing.T) {
	type plan struct {
		verb Verb
		wait time.Duration
	}
	ending := metav1.NewTime(noon)
	for name, test := range map[string]struct {
		found  metav1.Object
		wanted bool
		want   plan
	}{
		"they are made":                     {wanted: true, want: plan{verb: Create}},
		"nobody needs any":                  {},
		"they are good for a while":         {found: tokensDue(time.Hour), wanted: true, want: plan{wait: time.Hour}},
		"they are due":                      {found: tokensDue(0), wanted: true, want: plan{verb: Update}},
		"they were due while nobody looked": {found: tokensDue(-time.Hour), wanted: true, want: plan{verb: Update}},
		"the pod is gone":                   {found: tokensDue(time.Hour), want: plan{verb: Delete}},
		"they are on their way out": {
			found: altered(tokensDue(0), func(o metav1.Object) { o.SetDeletionTimestamp(&ending) }), wanted: true,
		},
		"the peer says that they are good for ever": {found: tokensDue(87600 * time.Hour), wanted: true, want: plan{wait: 24 * time.Hour}},
		"a copy of another Secret of the name":      {found: copyOf("u-1", "7"), wanted: true, want: plan{verb: Yield}},
		"it, when nobody needs tokens":              {found: copyOf("u-1", "7")},
		"a Secret of the provider":                  {found: &metav1.ObjectMeta{}, wanted: true, want: plan{verb: Yield}},
		"a Secret of the provider that says a time": {
			found:  altered(tokensDue(0), func(o metav1.Object) { o.SetLabels(nil) }),
			wanted: true, want: plan{verb: Yield},
		},
	} {
		t.Run(name, func(t *testing.T) {
			verb, wait := PlanTokens(TokenSight{Wanted: test.wanted, Found: test.found}, noon)
			if got := (plan{verb, wait}); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// The copier deletes copies that nobody wants.
func TestTokensAreNoCopies(t *testing.T) {
	if IsCopy(tokensDue(0)) || !HoldsTokens(tokensDue(0)) {
		t.Error("tokens are taken for a copy")
	}
	if HoldsTokens(copyOf("u-1", "7")) {
		t.Error("a copy is taken for tokens")
	}
}

func TestWhenTokensAreRenewed(t *testing.T) {
	for life, latest := range map[time.Duration]time.Duration{
		10 * time.Minute: 8 * time.Minute, time.Hour: 48 * time.Minute, 30 * time.Hour: 24 * time.Hour, 8760 * time.Hour: 24 * time.Hour,
	} {
		seen := map[time.Time]bool{}
		for i := range 100 {
			renewal := Renewal(types.UID(fmt.Sprint("pod ", i)), noon, life)
			seen[renewal] = true
			if use := renewal.Sub(noon); use > latest || use < latest/10*9 {
				t.Errorf("a life of %s: renewed after %s, want at most %s", life, use, latest)
			}
		}
		if len(seen) < 80 {
			t.Errorf("a life of %s: 100 pods that came together are renewed at %d times", life, len(seen))
		}
	}
}

// FuzzPlanTokens feeds PlanTokens what a hostile provider may have made of a Secret.
func FuzzPlanTokens(f *testing.F) {
	f.Add("2026-03-04T12:00:00Z", "u-1", true)
	f.Add("9999-12-31T23:59:59Z", "", true)
	f.Add("0000-01-01T00:00:00+23:59", "u-1", false)
	f.Add("7", "u-1", true)
	f.Fuzz(func(t *testing.T, version, uid string, wanted bool) {
		found := altered(tokensDue(0), func(o metav1.Object) {
			o.SetAnnotations(map[string]string{v1alpha1.AnnotationOriginVersion: version, v1alpha1.AnnotationOriginUID: uid})
		})
		verb, wait := PlanTokens(TokenSight{Wanted: wanted, Found: found}, noon)
		if wait < 0 || wait > longestUse || verb != "" && wait != 0 {
			t.Errorf("%s after %s", verb, wait)
		}
		if verb == Delete && (wanted || !HoldsTokens(found)) {
			t.Error("it deletes what it must not")
		}
	})
}
