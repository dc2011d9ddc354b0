// SPDX-License-Identifier: Apache-2.0

package reservations

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// TestGuaranteeHolds: no other consumer gets what is guaranteed to one, neither by a Request nor by a pod, also while the one does not
// use it. The one can reserve all of it.
func TestGuaranteeHolds(t *testing.T) {
	t.Parallel()
	const slip, all, guaranteed = corev1.ResourceName("example.com/slips"), 10, 6
	hamburg.SetExtendedResource(t, slip, all)
	other := welcome(t, "visby-unguaranteed")
	t.Cleanup(func() { disperse(t, hamburg, []*guest{other}) })
	twin := other.Twin(t, "shop")
	other.awaitOffered(t, slip, all)
	guarantee := func(ctx context.Context, list string) error {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"guarantee":%s}}`, list))
		return hamburg.Patch(ctx, &v1alpha1.Peer{ObjectMeta: framework.Named("", "lubeck")}, patch)
	}
	t.Cleanup(func() {
		if err := guarantee(context.Background(), "null"); err != nil {
			t.Error(err)
		}
	})
	if err := guarantee(t.Context(), fmt.Sprintf(`{%q:"%d"}`, slip, guaranteed)); err != nil {
		t.Fatal(err)
	}
	other.awaitOffered(t, slip, all-guaranteed)
	other.MustCreate(t, mooring(t, twin, "grasps", units(slip, all-guaranteed+1), ""), other.request("grasps", slip, all-guaranteed+1))
	other.awaitPhase(t, "grasps", v1alpha1.RequestRefused, v1alpha1.ReasonNoRoom)
	other.awaitRefused(t, twin, "grasps")
	other.MustCreate(t, other.request("fits", slip, all-guaranteed))
	other.awaitPhase(t, "fits", v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)

	ns := lubeck.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote})
	app := framework.Application(ns, &v1alpha1.ApplicationPlacement{Clusters: []string{"hamburg"}}, "10m", "web")
	app.Spec.Components[0].Resources[slip] = *resource.NewQuantity(guaranteed, resource.DecimalSI)
	lubeck.MustCreate(t, app)
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
	request, err := hamburg.RequestOf(t.Context(), app, lubeck)
	if got := request.Locked()[slip]; err != nil || got.Value() != guaranteed {
		t.Errorf("hamburg reserves %s (%v)", got.String(), err)
	}
	lubeck.DeleteAndWait(t, app)
}
