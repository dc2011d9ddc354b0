// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// A cluster between a pod's home and its provider can say what it likes of the way so far, and of what home asks. The provider
// runs nothing that has come through it before, and what it was told holds for as long as the pod is there.
func TestClusterInTheMiddleThatLies(t *testing.T) {
	framework.Begin(t)
	g := hamburg.PeerWithGuest(t, "visby-middle")
	twin := g.CreateTwin(t, "passing")
	sent := func(name string, lie func(*v1alpha1.ShadowPodSpec)) *v1alpha1.ShadowPod {
		record := framework.NewShadowPod(t, twin, name, framework.BusyPodTemplate)
		record.Spec.Path, record.Spec.Onward = []string{"home", "visby"}, `[{"exclude":["bremen"]}]`
		lie(&record.Spec)
		return record
	}
	for name, lie := range map[string]func(*v1alpha1.ShadowPodSpec){
		"a way that is too long": func(s *v1alpha1.ShadowPodSpec) { s.Path = strings.Split("a,b,c,d,e", ",") },
		"clusters that are none": func(s *v1alpha1.ShadowPodSpec) { s.Path = []string{"../../kube-system"} },
		"more than home may ask": func(s *v1alpha1.ShadowPodSpec) { s.Onward = strings.Repeat("x", v1alpha1.MaxOnwardBytes+1) },
		"an id that is too long": func(s *v1alpha1.ShadowPodSpec) { s.Path = []string{strings.Repeat("c", 31)} },
	} {
		t.Run(name, func(t *testing.T) { expectRefusal(t, g.Create(t.Context(), sent("refused", lie))) })
	}
	t.Run("a circle", func(t *testing.T) {
		circle := sent("circle", func(s *v1alpha1.ShadowPodSpec) { s.Path = []string{"home", "hamburg", "visby"} })
		expectCondition(t, g, circle, metav1.Condition{Type: v1alpha1.ConditionUnrecoverable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonLoop})
	})
	t.Run("a wish that cannot be read", func(t *testing.T) {
		record := sent("unreadable", func(s *v1alpha1.ShadowPodSpec) { s.Onward = `[{"exclude":` })
		expectCondition(t, g, record, metav1.Condition{Type: v1alpha1.ConditionOnward, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonStaysHere})
	})
	t.Run("another story later", func(t *testing.T) {
		record := sent("changed", func(*v1alpha1.ShadowPodSpec) {})
		expectCondition(t, g, record, metav1.Condition{Type: v1alpha1.ConditionOnward, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonStaysHere})
		for _, patch := range []string{`{"spec":{"onward":""}}`, `{"spec":{"path":["home"]}}`, `{"spec":{"path":null}}`} {
			err := g.Patch(t.Context(), record.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch)))
			if !apierrors.IsInvalid(err) {
				t.Errorf("%s: %v", patch, err)
			}
		}
	})
}

// expectCondition creates the record and waits until it has the condition, whose message does not matter.
func expectCondition(t *testing.T, g *framework.Guest, record *v1alpha1.ShadowPod, want metav1.Condition) {
	t.Helper()
	if err := g.Create(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the record says "+want.Reason, func(ctx context.Context) error {
		if err := g.Get(ctx, client.ObjectKeyFromObject(record), record); err != nil {
			return err
		}
		said := meta.FindStatusCondition(record.Status.Conditions, want.Type)
		if said == nil || said.Status != want.Status || said.Reason != want.Reason {
			return fmt.Errorf("it says %+v", record.Status.Conditions)
		}
		return nil
	})
}
