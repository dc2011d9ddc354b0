// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// reservedDomains are those of Kubernetes and of Hanse: a peer's labels in them or below would speak for us, so all but
// the few of trustedKeys are left out. So are labels without a domain: those are the words of this cluster's administrators,
// by which pods and agents choose nodes. Labels of any other domain describe the peer and are harmless.
var reservedDomains = []string{"kubernetes.io", "k8s.io", v1alpha1.Domain}

// trustedKeys are the labels of reserved domains that a peer may set, and whether the value is prefixed with the peer's
// name: two providers' "zone-a" are not the same zone.
var trustedKeys = map[string]bool{ // key → prefixed
	corev1.LabelTopologyRegion:     true,
	corev1.LabelTopologyZone:       true,
	corev1.LabelInstanceTypeStable: false,
}

// PeerLabels are those of the labels that a peer advertises which its virtual node shows.
func PeerLabels(peer string, advertised map[string]v1alpha1.Text) map[string]string {
	shown := map[string]string{}
	for key, text := range advertised {
		prefixed, trusted := trustedKeys[key]
		if !trusted && (reserved(key) || len(validation.IsQualifiedName(key)) > 0) {
			continue
		}
		value := string(text)
		if prefixed {
			value = peer + "-" + value
		}
		// A value that got too long by its prefix is left out: cut short, two zones could become one.
		if len(validation.IsValidLabelValue(value)) == 0 {
			shown[key] = value
		}
	}
	return shown
}

func reserved(key string) bool {
	domain, _, qualified := strings.Cut(key, "/")
	return !qualified || slices.ContainsFunc(reservedDomains, func(suffix string) bool {
		return domain == suffix || strings.HasSuffix(domain, "."+suffix)
	})
}
