// SPDX-License-Identifier: Apache-2.0

package clusterset

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

const (
	// maxListed is how many Services are named that are refused.
	maxListed = 16
	// maxWhy and maxName are how much is shown of what a peer says.
	maxWhy  = 512
	maxName = 63
)

// Refused says why its reader does not take the message, or nothing.
func Refused(message *v1alpha1.ExportedService) string {
	if said := v1alpha1.Objection(message.Status.Conditions, v1alpha1.ConditionAccepted); said != nil {
		return sanitize.Text(cmp.Or(said.Message, said.Reason), maxWhy)
	}
	return ""
}

// ServicesOf returns which Services go between this cluster and a peer, given the messages of both. A Service with several messages counts
// once, and is refused if one of them is.
func ServicesOf(ours, theirs []*v1alpha1.ExportedService) *v1alpha1.PeerServices {
	services := &v1alpha1.PeerServices{}
	services.Exported, services.RefusedThere = taken(ours)
	services.Imported, services.RefusedHere = taken(theirs)
	return services
}

func taken(messages []*v1alpha1.ExportedService) (count int32, refused []v1alpha1.RefusedService) {
	why := map[Key]string{}
	byName := func(a, b *v1alpha1.ExportedService) int { return strings.Compare(a.Name, b.Name) }
	for _, m := range slices.SortedFunc(slices.Values(messages), byName) {
		key := Key{Namespace: m.Spec.Namespace, Name: m.Spec.Name}
		if why[key] == "" {
			why[key] = Refused(m)
		}
	}
	byKey := func(a, b Key) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	}
	for _, key := range slices.SortedFunc(maps.Keys(why), byKey) {
		switch {
		case why[key] == "":
			count++
		case len(refused) < maxListed:
			refused = append(refused, v1alpha1.RefusedService{
				Namespace: sanitize.Text(key.Namespace, maxName), Name: sanitize.Text(key.Name, maxName), Message: why[key],
			})
		}
	}
	return count, refused
}
