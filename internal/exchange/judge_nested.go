package exchange

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	maxNested    = 100
	maxClusterID = 30
)

var clusterID = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// judgeNested looks at form only. Whether the offers go in circles is another question, see Loops.
func judgeNested(ad *v1alpha1.AdvertisementSpec) Verdict {
	if len(ad.Nested) > maxNested {
		return refused(v1alpha1.ReasonInvalidField, "spec.nested has %d entries, more than %d", len(ad.Nested), maxNested)
	}
	seen := make(map[string]bool, len(ad.Nested))
	for i := range ad.Nested {
		nested := &ad.Nested[i]
		if seen[nested.ClusterID] {
			return refused(v1alpha1.ReasonInvalidField, "spec.nested has %s twice", quoted(nested.ClusterID))
		}
		seen[nested.ClusterID] = true
		if verdict := judgeNestedOffer(fmt.Sprintf("spec.nested[%d]", i), nested); !verdict.Accepted {
			return verdict
		}
	}
	return accepted()
}

func judgeNestedOffer(field string, nested *v1alpha1.NestedOffer) Verdict {
	if !isClusterID(nested.ClusterID) {
		return refused(v1alpha1.ReasonInvalidField, "%s.clusterID is %s: that is not a cluster id", field, quoted(nested.ClusterID))
	}
	if len(nested.Path) > MaxDepth {
		return refused(v1alpha1.ReasonInvalidField, "%s.path has %d entries, more than %d", field, len(nested.Path), MaxDepth)
	}
	for _, id := range nested.Path {
		if !isClusterID(id) {
			return refused(v1alpha1.ReasonInvalidField, "%s.path has %s: that is not a cluster id", field, quoted(id))
		}
	}
	if nested.Availability == nil {
		return refused(v1alpha1.ReasonInvalidQuantity, "%s.availability is missing", field)
	}
	if verdict := judgeResources(field+".availability", nested.Availability); !verdict.Accepted {
		return verdict
	}
	if verdict := judgePrices(field+".prices", nested.Prices); !verdict.Accepted {
		return verdict
	}
	return judgeLabels(field+".labels", nested.Labels)
}

func isClusterID(id string) bool { return len(id) <= maxClusterID && clusterID.MatchString(id) }

// judgeExtensions looks at sizes only, as judgeFlags does.
func judgeExtensions(ad *v1alpha1.AdvertisementSpec) Verdict {
	if len(ad.Extensions) > maxExtensions {
		return refused(v1alpha1.ReasonInvalidField, "spec.extensions has %d entries, more than %d", len(ad.Extensions), maxExtensions)
	}
	for _, key := range slices.Sorted(maps.Keys(ad.Extensions)) {
		if len(key) > maxFlagKey || longer(string(ad.Extensions[key]), maxExtension) {
			return refused(v1alpha1.ReasonInvalidField,
				"spec.extensions[%s] is too long: a key may have %d characters and a value %d", quoted(key), maxFlagKey, maxExtension)
		}
	}
	return accepted()
}
