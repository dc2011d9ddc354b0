// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Another version of Hanse, and whoever is shown an Account, comes to the same digest. The one here is that of
// {"entries":[{"application":"shop/web","currency":"EUR","used":{"cpu":"1.5","memory":"0.25"},"cost":"0.18"}]}, by sha256sum.
func TestTheDigestOfACountStays(t *testing.T) {
	noon := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	count := &v1alpha1.AccountCount{
		CountedUntil: &metav1.Time{Time: noon.In(time.FixedZone("", 3600))},
		Entries: []v1alpha1.AccountEntry{{
			Application: "shop/web", Currency: "EUR", Cost: "0.18", Used: map[corev1.ResourceName]v1alpha1.Decimal{"memory": "0.25", "cpu": "1.5"},
		}},
		Signed: &v1alpha1.SignedStatement{Statement: "of before"},
	}
	want := SignedCount{
		By: "consumer", Day: "2026-11-27", CountedUntil: "2026-11-27T12:00:00Z",
		Entries: "ffc9dc3546ab0c472c685d522cfcae66005661a71e494a989a2a137adcbeb7e3",
	}
	got := CountToSign(count, "consumer", noon.Truncate(24*time.Hour))
	if got != want {
		t.Errorf("%+v", got)
	}
	for body, wrong := range map[string]string{
		`{"by":"consumer","day":"2026-11-27","countedUntil":"2026-11-27T12:00:00Z","entries":"` + want.Entries + `"}`: "",
		`{"by":"consumer","day":"2026-11-27","countedUntil":"2026-11-27T12:00:00Z"}`:                                  v1alpha1.ReasonForged,
		`{"by":7}`: v1alpha1.ReasonMalformed, `[`: v1alpha1.ReasonMalformed, ``: v1alpha1.ReasonMalformed,
	} {
		if reason, _ := got.Same([]byte(body)); reason != wrong {
			t.Errorf("%s: %s", body, reason)
		}
	}
}
