// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A Hop is a cluster that pods may be sent on to, as the cluster sees it that sends them.
type Hop struct {
	// Row has the id, what is measured of the way there, and the prices that the consumer is asked for pods there.
	Row
	// Priced says whether these prices are known: no prices are no cost.
	Priced bool
	// Labels are those of its virtual node.
	Labels map[string]string
}

// A Leftover is a cluster that a pod must not be sent on to, and why.
type Leftover struct{ ClusterID, Why string }

// Onward returns the ids of the hops that everything that is asked lets a pod use, and the others, in the order of the hops.
// It fails if a selector makes no sense.
func Onward(asked []v1alpha1.OnwardPlacement, hops []Hop) (next []string, left []Leftover, err error) {
	selectors := make([]labels.Selector, len(asked))
	for i := range asked {
		if selectors[i], err = asked[i].ClusterSelector.Selector(); err != nil {
			return nil, nil, fmt.Errorf("spec.onward[%d]: %w", i, err)
		}
	}
	for i := range hops {
		if why := hops[i].objection(asked, selectors); why != "" {
			left = append(left, Leftover{hops[i].ClusterID, why})
			continue
		}
		next = append(next, hops[i].ClusterID)
	}
	return next, left, nil
}

func (h *Hop) objection(asked []v1alpha1.OnwardPlacement, selectors []labels.Selector) string {
	for i := range asked {
		bounds := v1alpha1.Placement{
			Request: asked[i].Request, MaxPrice: asked[i].MaxPrice, MaxLatency: asked[i].MaxLatency, MinBandwidth: asked[i].MinBandwidth,
		}
		if len(bounds.Request) == 0 {
			bounds.Request = DefaultRequest()
		}
		switch {
		case slices.Contains(asked[i].Exclude, h.ClusterID):
			return "It is excluded"
		case !selectors[i].Matches(labels.Set(h.Labels)):
			return "The cluster selector does not match it"
		case bounds.MaxPrice != nil && !h.Priced:
			return "Its price is not known, and maxPrice in spec.placement is set"
		}
		if why := objection(&bounds, &h.Row); why != "" {
			return why
		}
	}
	return ""
}
