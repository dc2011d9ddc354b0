package e2e

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
)

// What wismar's user asks of clusters binds hamburg too, which wismar's pods only pass. Of the two behind it hamburg prefers bremen, and
// sends pods there of which nothing is asked. The others run in the one that is left, and hamburg says so on its record of each pod.
func TestExcludeHoldsOverHops(t *testing.T) {
	ctx := sentOnByHamburg(t)
	hamburg.policy(t, "placement", "package hanse.placement\n\nscore[\"bremen\"] := 100\n")
	t.Run("nothing is asked", func(t *testing.T) {
		ns := wismar.offloaded(t, v1alpha1.StrategyRemote)
		eventually(t, "hamburg sends a pod on to bremen", func(ctx context.Context) error {
			pod := shellPod(ns, "", forever)
			pod.GenerateName = "free-"
			wismar.create(t, pod)
			bound, err := wismar.awaitBound(ctx, pod)
			if err != nil {
				return err
			}
			wismar.awaitRunning(t, bound)
			if provider := behindHamburg(t, hamburg.mustRemotePod(t, bound)); provider != bremen {
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
			wismar.expectAggregate(t) // also while clusters are slow to answer
			spec.Strategy = v1alpha1.StrategyRemote
			ns := wismar.offloadedBy(t, spec)
			wismar.create(t, deployment(ns, name, pods, shellSpec(forever)))
			for _, home := range wismar.awaitReadyPods(t, ns, name, pods) {
				expectOnlyAtLubeck(ctx, t, &home)
			}
		})
	}
	t.Run("an application", func(t *testing.T) { wismar.sendsAnApplicationOn(ctx, t) })
	t.Run("nowhere", func(t *testing.T) { wismar.waitsForHamburgsOwnNode(ctx, t) })
}

// expectOnlyAtLubeck checks that hamburg has sent the pod on to lubeck, says why not to bremen, and asks the same of lubeck.
func expectOnlyAtLubeck(ctx context.Context, t *testing.T, home *corev1.Pod) {
	t.Helper()
	between := hamburg.mustRemotePod(t, home)
	if provider := behindHamburg(t, between); provider != lubeck {
		t.Errorf("%s runs in %s", home.Name, provider.Name)
	}
	hamburg.expectSentOn(t, between, metav1.ConditionTrue, v1alpha1.ReasonPlacementObeyed, "lubeck", "bremen: ")
	last := &v1alpha1.ShadowPod{}
	if err := lubeck.Get(ctx, client.ObjectKeyFromObject(lubeck.mustRemotePod(t, between)), last); err != nil || last.Spec.Onward == "" {
		t.Errorf("lubeck is asked for %q (%v)", last.Spec.Onward, err)
	}
}

// sendsAnApplicationOn has hamburg reserve room for an application that excludes bremen, and then close the node that has it.
func (c *cluster) sendsAnApplicationOn(ctx context.Context, t *testing.T) {
	t.Helper()
	hamburg.cordon(t, "hamburg-worker-1", false)
	defer hamburg.cordon(t, "hamburg-worker-1", true)
	ns := c.offloaded(t, v1alpha1.StrategyRemote)
	app := applicationOf(ns, &v1alpha1.ApplicationPlacement{Exclude: []string{"bremen"}}, "10m", "web")
	c.create(t, app)
	c.awaitApplication(t, app, v1alpha1.ApplicationPlaced)
	hamburg.cordon(t, "hamburg-worker-1", true)
	c.create(t, deployment(ns, "web", 1, small()))
	home := c.awaitReadyPods(t, ns, "web", 1)[0]
	expectOnlyAtLubeck(ctx, t, &home)
	shadow := &v1alpha1.ShadowPod{}
	request, err := hamburg.requestOf(ctx, app, c)
	if err == nil {
		err = hamburg.Get(ctx, client.ObjectKeyFromObject(hamburg.mustRemotePod(t, &home)), shadow)
	}
	if err != nil || shadow.Spec.Request != request.Name {
		t.Errorf("it names Request %q (%v)", shadow.Spec.Request, err)
	}
	c.deleteAndWait(t, app)
}

// waitsForHamburgsOwnNode has a pod that may use neither of the clusters behind hamburg. Its user sees why it waits.
func (c *cluster) waitsForHamburgsOwnNode(ctx context.Context, t *testing.T) {
	t.Helper()
	ns := c.offloadedBy(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote, Placement: &v1alpha1.NamespacePlacement{
		Placement: v1alpha1.Placement{Exclude: []string{"bremen", "lubeck"}},
	}})
	pod := shellPod(ns, "stays", forever)
	c.create(t, pod)
	eventually(t, "its user sees why it waits", func(ctx context.Context) error {
		home, err := c.pod(ctx, ns, pod.Name)
		const why = "bremen: It is excluded; lubeck: It is excluded"
		if err == nil && (home.Status.Reason != v1alpha1.ReasonNoRoom || !strings.Contains(home.Status.Message, why)) {
			err = fmt.Errorf("it says %s: %s", home.Status.Reason, home.Status.Message)
		}
		return err
	})
	c.shows(t, []string{"bremen: It is excluded"}, "hanse", "explain", "pod", pod.Name, "-n", ns)
	home, err := c.pod(ctx, ns, pod.Name)
	if err != nil {
		t.Fatal(err)
	}
	between := hamburg.mustRemotePod(t, home)
	hamburg.expectSentOn(t, between, metav1.ConditionFalse, v1alpha1.ReasonStaysHere, "bremen: ", "lubeck: ")
	if between.Spec.NodeName != "" {
		t.Errorf("it is on %q, and hamburg's own node is closed", between.Spec.NodeName)
	}
	hamburg.cordon(t, "hamburg-worker-1", false)
	defer hamburg.cordon(t, "hamburg-worker-1", true)
	c.awaitReadyPods(t, ns, "stays", 1)
	if between := hamburg.mustRemotePod(t, home); isVirtual(between) {
		t.Errorf("it is on %q, want hamburg's own node", between.Spec.NodeName)
	}
	if home, err := c.pod(ctx, ns, pod.Name); err != nil || home.Status.Reason != "" {
		t.Errorf("it says %s: %s (%v)", home.Status.Reason, home.Status.Message, err)
	}
}

// expectSentOn waits until the record of the pod says where the pod may be sent on to.
func (c *cluster) expectSentOn(t *testing.T, pod *corev1.Pod, status metav1.ConditionStatus, reason string, texts ...string) {
	t.Helper()
	eventually(t, "the record says where the pod may go", func(ctx context.Context) error {
		shadow := &v1alpha1.ShadowPod{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(pod), shadow); err != nil {
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
