// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// The tokens of a pod lie in a Secret of the twin that looks like a copy, since a peer may make nothing else there. Its origin
// is the pod, and its version is when the tokens are renewed: the version of a copy is no time.

const (
	// longestUse is how long a token is used, however long it lives.
	longestUse = 24 * time.Hour
	// spread is by which part of its life a token may be renewed earlier than need be.
	spread = 10
)

// TokenSecret returns the Secret of that name with the tokens of the pod, which are renewed at that time.
func TokenSecret(pod types.UID, twin, name string, data map[string][]byte, renewal time.Time) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: twin, Name: name, Labels: map[string]string{v1alpha1.LabelReflected: "true"},
			Annotations: map[string]string{
				v1alpha1.AnnotationOriginUID: string(pod), v1alpha1.AnnotationOriginVersion: renewal.UTC().Format(time.RFC3339),
			},
		},
		Type: corev1.SecretTypeOpaque, Data: data,
	}
}

// HoldsTokens says whether the object in a twin is a Secret with the tokens of a pod of ours, and no copy.
func HoldsTokens(found metav1.Object) bool {
	_, err := renewalOf(found)
	return err == nil && isOurs(found)
}

func renewalOf(found metav1.Object) (time.Time, error) {
	return time.Parse(time.RFC3339, found.GetAnnotations()[v1alpha1.AnnotationOriginVersion])
}

// Renewal returns when a token of the pod is to be renewed that is issued now: as kubelets do it, when 80 % of its life are over,
// or after a day. Tokens of pods that came together are renewed one after the other, up to a tenth of the life earlier.
func Renewal(pod types.UID, now time.Time, life time.Duration) time.Time {
	use := min(life/10*8, longestUse)
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(pod)) // a hash never fails
	early := use / spread * time.Duration(sum.Sum32()%1000) / 1000
	return now.Add(use - early)
}

// A TokenSight is what is seen of the tokens of one pod.
type TokenSight struct {
	// Wanted says that the pod needs them.
	Wanted bool
	// Found is the metadata of the object of the name in the twin, if it is there.
	Found metav1.Object
}

// PlanTokens returns what must be done about the tokens of a pod, and if that is nothing, how soon there may be something.
func PlanTokens(seen TokenSight, now time.Time) (Verb, time.Duration) {
	if seen.Found == nil {
		if seen.Wanted {
			return Create, 0
		}
		return "", 0
	}
	renewal, err := renewalOf(seen.Found)
	switch {
	case err != nil || !isOurs(seen.Found):
		if seen.Wanted {
			return Yield, 0
		}
		return "", 0
	case seen.Found.GetDeletionTimestamp() != nil: // they are made again when it is gone
		return "", 0
	case !seen.Wanted:
		return Delete, 0
	case !now.Before(renewal):
		return Update, 0
	default: // whatever a peer makes of the time
		return "", min(renewal.Sub(now), longestUse)
	}
}
