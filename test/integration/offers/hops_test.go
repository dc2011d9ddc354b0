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
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// TestExcludeHoldsOverHops: hamburg, which sends pods of wismar on, obeys the placement of wismar's users. hamburg prefers bremen, and
// sends pods without a placement there. Pods that exclude bremen, by name, by price or by selector, run in lubeck. The condition of their
// ShadowPod has the reason.
func TestExcludeHoldsOverHops(t *testing.T) {
	sendOn(t)
	hamburg.SetPolicy(t, "placement", "package hanse.placement\n\nscore[\"bremen\"] := 100\n")
	t.Run("without placement", func(t *testing.T) {
		ns := wismar.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote})
		framework.Eventually(t, "hamburg sends a pod on to bremen", func(context.Context) error {
			pod := framework.Pod(ns, "")
			pod.GenerateName = "free-"
			wismar.MustCreate(t, pod)
			home := awaitReady(t, wismar, pod)
			if provider := behindHamburg(t, hamburg.MustRemotePod(t, home)); provider != bremen {
				return fmt.Errorf("it is in %s", provider.Name)
			}
			return nil
		})
	})
	for name, spec := range map[string]v1alpha1.NamespaceOffloadingSpec{
		"excluded": {Placement: &v1alpha1.NamespacePlacement{Placement: v1alpha1.Placement{Exclude: []string{"bremen"}}}},
		"too-dear": {Placement: &v1alpha1.NamespacePlacement{Placement: v1alpha1.Placement{
			MaxPrice: &v1alpha1.Price{Amount: resource.MustParse("0.01"), Currency: "EUR"}, // less than bremen costs
		}}},
		"not-selected": {ClusterSelector: &v1alpha1.ClusterSelector{MatchExpressions: []v1alpha1.ClusterSelectorRequirement{{
			Key: v1alpha1.LabelClusterID, Operator: metav1.LabelSelectorOpNotIn, Values: []v1alpha1.LabelValue{"bremen"},
		}}}},
	} {
		t.Run(name, func(t *testing.T) {
			const pods = 3
			awaitAggregate(t)
			spec.Strategy = v1alpha1.StrategyRemote
			ns := wismar.MustOffload(t, spec)
			wismar.MustCreate(t, framework.Deployment(ns, name, pods, framework.PodSpec()))
			for _, home := range wismar.AwaitReadyPods(t, ns, name, pods) {
				expectOnlyAtLubeck(t, &home)
			}
		})
	}
	t.Run("application", applicationIsSentOn)
	t.Run("nowhere", podWaitsForNodesOfHamburg)
}

// expectOnlyAtLubeck checks that hamburg has sent the pod on to lubeck, that the ShadowPod shows why not to bremen, and that the placement
// goes on to lubeck.
func expectOnlyAtLubeck(t *testing.T, home *corev1.Pod) {
	t.Helper()
	between := hamburg.MustRemotePod(t, home)
	if provider := behindHamburg(t, between); provider != lubeck {
		t.Errorf("%s runs in %s", home.Name, provider.Name)
	}
	awaitOnward(t, between, metav1.ConditionTrue, v1alpha1.ReasonPlacementObeyed, "lubeck", "bremen: ")
	last := &v1alpha1.ShadowPod{}
	if err := lubeck.Get(t.Context(), client.ObjectKeyFromObject(lubeck.MustRemotePod(t, between)), last); err != nil || last.Spec.Onward == "" {
		t.Errorf("the placement in lubeck is %q (%v)", last.Spec.Onward, err)
	}
}

// applicationIsSentOn: hamburg reserves capacity on its own nodes for an application that excludes bremen. Then these nodes are closed.
func applicationIsSentOn(t *testing.T) {
	ctx := t.Context()
	setHamburgClosed(t, false)
	defer setHamburgClosed(t, true)
	ns := wismar.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote})
	app := &v1alpha1.Application{ObjectMeta: framework.Named(ns, "shop"), Spec: v1alpha1.ApplicationSpec{
		Placement: &v1alpha1.ApplicationPlacement{Exclude: []string{"bremen"}},
		Components: []v1alpha1.ApplicationComponent{{
			Name: "web", PodLabels: map[string]v1alpha1.LabelValue{"app": "web"}, Replicas: 1,
			Resources: framework.Requests("10m", "16Mi").Requests,
		}},
	}}
	wismar.MustCreate(t, app)
	framework.Eventually(t, "the Application is placed", func(ctx context.Context) error {
		err := wismar.Get(ctx, client.ObjectKeyFromObject(app), app)
		if err == nil && (app.Status.Phase != v1alpha1.ApplicationPlaced || app.Status.ObservedGeneration != app.Generation) {
			err = fmt.Errorf("it is %s: %+v", app.Status.Phase, app.Status)
		}
		return err
	})
	setHamburgClosed(t, true)
	wismar.MustCreate(t, framework.Deployment(ns, "web", 1, framework.PodSpec()))
	home := wismar.AwaitReadyPods(t, ns, "web", 1)[0]
	expectOnlyAtLubeck(t, &home)
	shadow, request := &v1alpha1.ShadowPod{}, &v1alpha1.Request{}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace("wismar"), Name: offload.RequestName(app)}
	err := hamburg.Get(ctx, key, request)
	if err == nil {
		err = hamburg.Get(ctx, client.ObjectKeyFromObject(hamburg.MustRemotePod(t, &home)), shadow)
	}
	if err != nil || shadow.Spec.Request != request.Name {
		t.Errorf("the ShadowPod has Request %q (%v)", shadow.Spec.Request, err)
	}
	wismar.DeleteAndWait(t, app)
}

// podWaitsForNodesOfHamburg: a pod excludes both providers of hamburg. Its user sees why it waits. It runs when a node of hamburg is open.
func podWaitsForNodesOfHamburg(t *testing.T) {
	ns := wismar.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote, Placement: &v1alpha1.NamespacePlacement{
		Placement: v1alpha1.Placement{Exclude: []string{"bremen", "lubeck"}},
	}})
	pod := framework.Pod(ns, "stays")
	wismar.MustCreate(t, pod)
	framework.Eventually(t, "the home pod shows why it waits", func(ctx context.Context) error {
		home, err := wismar.Pod(ctx, ns, pod.Name)
		const why = "bremen: It is excluded; lubeck: It is excluded"
		if err == nil && (home.Status.Reason != v1alpha1.ReasonNoRoom || !strings.Contains(home.Status.Message, why)) {
			err = fmt.Errorf("reason %s: %s", home.Status.Reason, home.Status.Message)
		}
		return err
	})
	if err := contains(wismar.MustHanse(t, "explain", "pod", pod.Name, "-n", ns), "bremen: It is excluded", nil); err != nil {
		t.Error(err)
	}
	between := hamburg.MustRemotePod(t, pod)
	awaitOnward(t, between, metav1.ConditionFalse, v1alpha1.ReasonStaysHere, "bremen: ", "lubeck: ")
	if between.Spec.NodeName != "" {
		t.Errorf("the pod is on %q, and the nodes of hamburg are closed", between.Spec.NodeName)
	}
	setHamburgClosed(t, false)
	defer setHamburgClosed(t, true)
	home := awaitReady(t, wismar, pod)
	framework.ExpectSamePod(t, home, hamburg.MustRemotePod(t, home))
	framework.Eventually(t, "the home pod has no reason any more", func(ctx context.Context) error {
		home, err := wismar.Pod(ctx, ns, pod.Name)
		if err == nil && home.Status.Reason != "" {
			err = fmt.Errorf("reason %s: %s", home.Status.Reason, home.Status.Message)
		}
		return err
	})
}

// setHamburgClosed cordons the own nodes of hamburg, or uncordons them, for the next parts of the test too.
func setHamburgClosed(t *testing.T, closed bool) {
	t.Helper()
	verb := map[bool]string{true: "cordon", false: "uncordon"}[closed]
	hamburg.MustKubectl(t, append([]string{verb}, hamburg.NodeNames(t)...)...)
}

// awaitOnward waits until the ShadowPod of the pod in hamburg shows where the pod may be sent on to.
func awaitOnward(t *testing.T, pod *corev1.Pod, status metav1.ConditionStatus, reason string, texts ...string) {
	t.Helper()
	framework.Eventually(t, "the ShadowPod shows where the pod may go", func(ctx context.Context) error {
		shadow := &v1alpha1.ShadowPod{}
		if err := hamburg.Get(ctx, client.ObjectKeyFromObject(pod), shadow); err != nil {
			return err
		}
		onward := meta.FindStatusCondition(shadow.Status.Conditions, v1alpha1.ConditionOnward)
		if onward == nil || onward.Status != status || onward.Reason != reason {
			return fmt.Errorf("the condition is %+v", onward)
		}
		for _, text := range texts {
			if !strings.Contains(onward.Message, text) {
				return fmt.Errorf("the message %q lacks %q", onward.Message, text)
			}
		}
		return nil
	})
}
