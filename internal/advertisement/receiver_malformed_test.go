// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

func TestMalformedObjectIsReportedOnThePeer(t *testing.T) {
	raw := func(availability map[string]any) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: map[string]any{
			"spec": map[string]any{"clusterID": "hamburg", "availability": availability},
		}}
		object.SetGroupVersionKind(advertisementKind)
		object.SetNamespace(v1alpha1.TenantNamespace(here))
		object.SetName("hamburg")
		object.SetResourceVersion("7")
		return object
	}
	for name, test := range map[string]struct {
		arrange func(*world)
		names   string
	}{
		"a quantity that is none":          {func(w *world) { w.raw.Store(raw(map[string]any{"cpu": "lots"})) }, "quantit"},
		"a quantity that takes for ever":   {func(w *world) { w.raw.Store(raw(map[string]any{"cpu": "1e-999999999"})) }, "exponent"},
		"a list where a map should be":     {func(w *world) { w.raw.Store(raw(nil)); w.raw.Load().Object["spec"] = []any{} }, "decode"},
		"an object beyond the link's size": {func(w *world) { w.hamburg.Fail(peers.ErrTooLarge) }, "large"},
		"an object that is not stored here": {func(w *world) {
			w.refusing = apierrors.NewRequestEntityTooLargeError("limit is 3145728")
		}, "3145728"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.peer(v1alpha1.RoleProvider)
			w.offered()
			test.arrange(w)
			w.reconcile(w.receiver)

			message := w.expectAdvertised(metav1.ConditionFalse, v1alpha1.ReasonMalformed)
			if !strings.Contains(message, test.names) {
				t.Errorf("message %q does not name %q", message, test.names)
			}
		})
	}
}

func TestMalformedObjectClosesWhatIsInUse(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.offered()
	w.reconcile(w.receiver)
	good := w.held()
	w.says(w.offer(2, func(s *spec) { s.Images = []v1alpha1.Image{{Names: []string{"a"}}} }))
	w.refusing = apierrors.NewRequestEntityTooLargeError("limit is 3145728")
	w.reconcile(w.receiver)

	w.expect(good.Spec, w.held().Spec)
	w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonMalformed)
	w.expect(v1alpha1.ReasonMalformed, w.theirs().Status.Acknowledgement.Reason)
	w.expectAdvertised(metav1.ConditionFalse, v1alpha1.ReasonMalformed)

	w.refusing = nil
	w.hamburg.Fail(peers.ErrTooLarge)
	w.says(w.offer(3)) // which the mirror cannot show
	w.reconcile(w.receiver)
	w.expect(good.Spec, w.held().Spec)
	w.expectAdvertised(metav1.ConditionFalse, v1alpha1.ReasonMalformed)

	w.hamburg.Heal()
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionTrue, v1alpha1.ReasonAccepted)
}
