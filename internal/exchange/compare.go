// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// SaidBefore reports whether a message of sequence a was said before one of sequence b. Behind the largest number comes zero,
// as in RFC 1982, so that no sequence is the last one, however it came about.
func SaidBefore(a, b int64) bool { return (a-b)&math.MaxInt64 > math.MaxInt64/2 }

// SameTerms reports whether two offers differ at most in what every message carries: how much there is (availability,
// the largest pod) and when it was said (timestamp, time to live, sequences). A message with other terms than the one
// before is a full one, and is answered; one with the same terms may be a partial one, a heartbeat.
func SameTerms(a, b *v1alpha1.AdvertisementSpec) bool {
	return equality.Semantic.DeepEqual(terms(a), terms(b))
}

func terms(ad *v1alpha1.AdvertisementSpec) v1alpha1.AdvertisementSpec {
	t := *ad
	t.Availability, t.LargestPod = nil, nil
	t.Phase = Phase(ad)
	t.Sequence, t.FullSequence, t.Timestamp, t.TimeToLive = 0, 0, metav1.Time{}, metav1.Time{}
	return t
}

// Moved reports whether any quantity of now differs from what it was then by more than that many percent of it. What
// comes from nothing or falls to nothing has moved.
func Moved(then, now corev1.ResourceList, percent int64) bool {
	for _, list := range []corev1.ResourceList{then, now} {
		for name := range list {
			before, after := float(then, name), float(now, name)
			switch difference := math.Abs(after - before); {
			case difference == 0:
			case before == 0, after == 0, difference*100 > before*float64(percent):
				return true
			}
		}
	}
	return false
}

func float(list corev1.ResourceList, name corev1.ResourceName) float64 {
	quantity := list[name]
	return quantity.AsApproximateFloat64()
}

// steadyPercent is how much more must be offered before more is shown.
const steadyPercent = 2

// Steady returns what a virtual node should show that has shown something else before, so that it does not change with
// every small move: what falls is lower at once, what rises by less than two percent stays as it is shown. It never shows
// more than is offered.
func Steady(shown, offered corev1.ResourceList) corev1.ResourceList {
	next := make(corev1.ResourceList, len(offered))
	for name, quantity := range offered {
		if before, known := shown[name]; known && before.Cmp(quantity) <= 0 &&
			(float(offered, name)-float(shown, name))*100 < float(shown, name)*steadyPercent {
			quantity = before
		}
		next[name] = quantity.DeepCopy()
	}
	return next
}
