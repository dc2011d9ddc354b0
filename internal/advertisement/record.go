// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

// maxPrevious leaves room for others within what an API server takes as annotations of one object.
const maxPrevious = 192 << 10

// record is what the copy itself must remember of how it came about, since nothing else does. It lies in annotations and not in
// the status, because the peer can write there if it is our consumer too.
type record struct {
	received time.Time // when, by our own clock, the message came in that the copy holds; zero if there is none
	origin   types.UID // of the provider's object that said the message; empty where there is no such object
	accepted bool      // that message was accepted
	terms    string    // of the newest message that was sound: what an administrator decides on lapses with them
	// previous is the spec that was accepted before that message, as JSON, if that one was not. Policies are shown it: else what
	// a policy leaves to an administrator because it differs would pass with the next renewal.
	previous string
}

func (r record) heard() bool { return !r.received.IsZero() }

// take enters the newest message, which the copy is to hold instead of the spec.
func (r record) take(f facts, accepted bool, instead *v1alpha1.AdvertisementSpec) record {
	switch {
	case accepted:
		r.previous = ""
	case r.accepted:
		r.previous, _ = previousText(instead)
	}
	r.received, r.origin, r.accepted = f.arrived.Truncate(time.Second).UTC(), f.offer.UID, accepted
	return r
}

// previousText returns what to remember of the spec, and whether it is small enough for that.
func previousText(spec *v1alpha1.AdvertisementSpec) (string, bool) {
	text, err := json.Marshal(spec)
	if err != nil || len(text) > maxPrevious {
		return "", false
	}
	return string(text), true
}

// previousOf returns what was accepted last of what the peer offers, or nil.
func previousOf(held *v1alpha1.Advertisement) *v1alpha1.AdvertisementSpec {
	if held == nil {
		return nil
	}
	r := recordOf(held)
	if r.accepted {
		return &held.Spec
	}
	spec := &v1alpha1.AdvertisementSpec{}
	if r.previous == "" || json.Unmarshal([]byte(r.previous), spec) != nil {
		return nil
	}
	return spec
}

func recordOf(ad *v1alpha1.Advertisement) record {
	received, err := time.Parse(time.RFC3339, ad.Annotations[exchange.AnnotationReceived])
	if err != nil {
		return record{}
	}
	return record{
		received: received,
		origin:   types.UID(ad.Annotations[v1alpha1.AnnotationOriginUID]),
		accepted: ad.Annotations[v1alpha1.AnnotationAccepted] == "true",
		terms:    ad.Annotations[v1alpha1.AnnotationTerms],
		previous: ad.Annotations[v1alpha1.AnnotationPrevious],
	}
}

// store writes the record onto the copy.
func (r record) store(ad *v1alpha1.Advertisement) {
	stored := map[string]string{
		v1alpha1.AnnotationTerms: r.terms, v1alpha1.AnnotationPrevious: r.previous, v1alpha1.AnnotationOriginUID: string(r.origin),
	}
	stored[v1alpha1.AnnotationAccepted], stored[exchange.AnnotationReceived] = "", ""
	if r.accepted {
		stored[v1alpha1.AnnotationAccepted] = "true"
	}
	if r.heard() {
		stored[exchange.AnnotationReceived] = r.received.Format(time.RFC3339)
	}
	for key, value := range stored {
		if value == "" {
			delete(ad.Annotations, key)
		} else {
			metav1.SetMetaDataAnnotation(&ad.ObjectMeta, key, value)
		}
	}
}

// termsOf returns the fingerprint of what an administrator decides on: of what exchange.SameTerms compares, but for the
// images, the version of Kubernetes and the network, which change without anybody making another offer. It cannot be forged: an
// administrator's word on some terms would go over to others.
func termsOf(spec *v1alpha1.AdvertisementSpec) string {
	terms := *spec
	terms.Phase = exchange.Phase(spec)
	terms.Availability, terms.LargestPod = nil, nil
	terms.Images, terms.KubernetesVersion, terms.Network = nil, "", nil
	terms.Sequence, terms.FullSequence = 0, 0
	terms.Timestamp, terms.TimeToLive = metav1.Time{}, metav1.Time{}
	return fingerprint(&terms)
}

// fingerprint is the same for equal offers: the encoding sorts maps, and writes quantities in one form.
func fingerprint(spec *v1alpha1.AdvertisementSpec) string {
	text, err := json.Marshal(spec)
	if err != nil {
		return "" // cannot be: the type has no channels and no cycles
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
