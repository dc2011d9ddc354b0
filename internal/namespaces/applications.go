// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// maxComponents is how many components of Applications a NamespaceOffloading lists.
const maxComponents = 64

// agree adds to what was decided what was agreed for the components of Applications in the namespace, the older ones first.
func (c *offloadings) agree(ctx context.Context, seen *facts) error {
	if seen.placed.placement == nil {
		return nil
	}
	apps := &v1alpha1.ApplicationList{}
	if err := c.Client.List(ctx, apps, client.InNamespace(seen.offloading.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Applications: %w", err)
	}
	sorted := slices.SortedFunc(slices.Values(apps.Items), func(a, b v1alpha1.Application) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	var components []v1alpha1.PlacementClassStatus
	for i := range sorted {
		if sorted[i].DeletionTimestamp.IsZero() {
			components = append(components, seen.placement.Components(&sorted[i], seen.placed.placement.PlacementStatus)...)
		}
	}
	placement := seen.placed.placement.DeepCopy()
	placement.Classes = slices.DeleteFunc(placement.Classes, func(class v1alpha1.PlacementClassStatus) bool { return class.Component != nil })
	placement.Classes = append(placement.Classes, components[:min(len(components), maxComponents)]...)
	seen.placed.placement = placement
	return nil
}
