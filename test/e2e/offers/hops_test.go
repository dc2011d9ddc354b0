// SPDX-License-Identifier: Apache-2.0

package offers

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// What wismar's user asks of clusters binds hamburg too, which wismar's pods only pass. Of the two behind it hamburg prefers bremen, and
// sends pods there of which nothing is asked. The others run in the one that is left, and hamburg says so on its record of each pod.
func TestExcludeHoldsOverHops(t *testing.T) {
	ctx := sentOnByHamburg(t)
	hamburg.ApplyPolicy(t, "placement", "package hanse.placement\n\nscore[\"bremen\"] := 100\n")
	t.Run("nothing is asked", func(t *testing.T) {
		ns := wismar.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
		framework.Eventually(t, "hamburg sends a pod on to bremen", func(ctx context.Context) error {
			pod := framework.NewShellPod(ns, "", framework.RunForever)
			pod.GenerateName = "free-"
			wismar.MustCreate(t, pod)
			bound, err := wismar.AwaitBound(ctx, pod)
			if err != nil {
				return err
			}
			wismar.AwaitRunning(t, bound)
			if provider := behindHamburg(t, hamburg.MustGetRemotePod(t, bound)); provider != bremen {
				return fmt.Errorf("it is in %s", provider.Name)
			}
			return nil
		})
	})
	for name, spec := range map[string]v1alpha1.NamespaceOffloadingSpec{
		"excluded": {Placement: &v1alpha1.NamespacePlacement{Placement: v1alpha1.Placement{Exclude: []string{"bremen"}}}},
		"too-dear": {Placement: &v1alpha1.NamespacePlacement{Placement: v1alpha1.Placement{
			MaxPrice: &v1alpha1.Price{Amount: resource.MustParse("0.01"), Currency: "EUR"}, // bremen asks 0.02, and hamburg half of that more
		}}},
		"not-selected": {ClusterSelector: &v1alpha1.ClusterSelector{MatchExpressions: []v1alpha1.ClusterSelectorRequirement{{
			Key: v1alpha1.LabelClusterID, Operator: metav1.LabelSelectorOpNotIn, Values: []v1alpha1.LabelValue{"bremen"},
		}}}},
	} {
		t.Run(name, func(t *testing.T) {
			const pods = 3
			expectAggregate(t, wismar) // also while clusters are slow to answer
			spec.Strategy = v1alpha1.StrategyRemote
			ns := wismar.CreateOffloadedNamespaceWith(t, spec)
			wismar.MustCreate(t, framework.NewDeployment(ns, name, pods, framework.NewShellPodSpec(framework.RunForever)))
			for _, home := range wismar.AwaitReadyPods(t, ns, name, pods) {
				expectOnlyAtLubeck(ctx, t, &home)
			}
		})
	}
	t.Run("an application", func(t *testing.T) { sendsAnApplicationOn(ctx, t, wismar) })
	t.Run("nowhere", func(t *testing.T) { waitsForHamburgsOwnNode(ctx, t, wismar) })
}

// expectOnlyAtLubeck checks that hamburg has sent the pod on to lubeck, says why not to bremen, and asks the same of lubeck.
func expectOnlyAtLubeck(ctx context.Context, t *testing.T, home *corev1.Pod) {
	t.Helper()
	between := hamburg.MustGetRemotePod(t, home)
	if provider := behindHamburg(t, between); provider != lubeck {
		t.Errorf("%s runs in %s", home.Name, provider.Name)
	}
	expectSentOn(t, between, metav1.ConditionTrue, v1alpha1.ReasonPlacementObeyed, "lubeck", "bremen: ")
	last := &v1alpha1.ShadowPod{}
	if err := lubeck.Get(ctx, client.ObjectKeyFromObject(lubeck.MustGetRemotePod(t, between)), last); err != nil || last.Spec.Onward == "" {
		t.Errorf("lubeck is asked for %q (%v)", last.Spec.Onward, err)
	}
}

// sendsAnApplicationOn has hamburg reserve room for an application that excludes bremen, and then close the node that has it.
func sendsAnApplicationOn(ctx context.Context, t *testing.T, c *framework.Cluster) {
	t.Helper()
	hamburg.SetCordoned(t, "hamburg-worker-1", false)
	defer hamburg.SetCordoned(t, "hamburg-worker-1", true)
	ns := c.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	app := framework.NewApplication(ns, &v1alpha1.ApplicationPlacement{Exclude: []string{"bremen"}}, "10m", "web")
	c.MustCreate(t, app)
	c.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
	hamburg.SetCordoned(t, "hamburg-worker-1", true)
	c.MustCreate(t, framework.NewDeployment(ns, "web", 1, framework.SmallPodSpec()))
	home := c.AwaitReadyPods(t, ns, "web", 1)[0]
	expectOnlyAtLubeck(ctx, t, &home)
	shadow := &v1alpha1.ShadowPod{}
	request, err := hamburg.RequestOf(ctx, app, c)
	if err == nil {
		err = hamburg.Get(ctx, client.ObjectKeyFromObject(hamburg.MustGetRemotePod(t, &home)), shadow)
	}
	if err != nil || shadow.Spec.Request != request.Name {
		t.Errorf("it names Request %q (%v)", shadow.Spec.Request, err)
	}
	c.DeleteAndWait(t, app)
}

// waitsForHamburgsOwnNode has a pod that may use neither of the clusters behind hamburg. Its user sees why it waits.
func waitsForHamburgsOwnNode(ctx context.Context, t *testing.T, c *framework.Cluster) {
	t.Helper()
	ns := c.CreateOffloadedNamespaceWith(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote, Placement: &v1alpha1.NamespacePlacement{
		Placement: v1alpha1.Placement{Exclude: []string{"bremen", "lubeck"}},
	}})
	pod := framework.NewShellPod(ns, "stays", framework.RunForever)
	c.MustCreate(t, pod)
	framework.Eventually(t, "its user sees why it waits", func(ctx context.Context) error {
		home, err := c.GetPod(ctx, ns, pod.Name)
		const why = "bremen: It is excluded; lubeck: It is excluded"
		if err == nil && (home.Status.Reason != v1alpha1.ReasonNoRoom || !strings.Contains(home.Status.Message, why)) {
			err = fmt.Errorf("it says %s: %s", home.Status.Reason, home.Status.Message)
		}
		return err
	})
	c.ExpectOutput(t, []string{"bremen: It is excluded"}, "hanse", "explain", "pod", pod.Name, "-n", ns)
	home, err := c.GetPod(ctx, ns, pod.Name)
	if err != nil {
		t.Fatal(err)
	}
	between := hamburg.MustGetRemotePod(t, home)
	expectSentOn(t, between, metav1.ConditionFalse, v1alpha1.ReasonStaysHere, "bremen: ", "lubeck: ")
	if between.Spec.NodeName != "" {
		t.Errorf("it is on %q, and hamburg's own node is closed", between.Spec.NodeName)
	}
	hamburg.SetCordoned(t, "hamburg-worker-1", false)
	defer hamburg.SetCordoned(t, "hamburg-worker-1", true)
	c.AwaitReadyPods(t, ns, "stays", 1)
	if between := hamburg.MustGetRemotePod(t, home); framework.IsOnVirtualNode(between) {
		t.Errorf("it is on %q, want hamburg's own node", between.Spec.NodeName)
	}
	if home, err := c.GetPod(ctx, ns, pod.Name); err != nil || home.Status.Reason != "" {
		t.Errorf("it says %s: %s (%v)", home.Status.Reason, home.Status.Message, err)
	}
}

// expectSentOn waits until the record of the pod says where the pod may be sent on to.
func expectSentOn(t *testing.T, pod *corev1.Pod, status metav1.ConditionStatus, reason string, texts ...string) {
	t.Helper()
	framework.Eventually(t, "the record says where the pod may go", func(ctx context.Context) error {
		shadow := &v1alpha1.ShadowPod{}
		if err := hamburg.Get(ctx, client.ObjectKeyFromObject(pod), shadow); err != nil {
			return err
		}
		said := meta.FindStatusCondition(shadow.Status.Conditions, v1alpha1.ConditionOnward)
		if said == nil || said.Status != status || said.Reason != reason {
			return fmt.Errorf("it says %+v", said)
		}
		for _, text := range texts {
			if !strings.Contains(said.Message, text) {
				return fmt.Errorf("it says %q, without %q", said.Message, text)
			}
		}
		return nil
	})
}
