// SPDX-License-Identifier: Apache-2.0

package offers

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// TestHomeFirst: pods that may run anywhere run on the cluster's own nodes as long as they fit there, and at providers otherwise.
func TestHomeFirst(t *testing.T) {
	begin(t)
	free := useOneNode(t, lubeck, hamburg, bremen)
	ns := lubeck.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyLocalAndRemote})
	large := framework.PodSpec()
	large.Containers[0].Resources = framework.Requests(fmt.Sprintf("%dm", free*2/5), "16Mi")
	lubeck.MustCreate(t, framework.Deployment(ns, "home", 2, large))
	for _, pod := range lubeck.AwaitReadyPods(t, ns, "home", 2) {
		if framework.IsVirtual(&pod) {
			t.Errorf("%s is on %s, and fits on a node of lubeck", pod.Name, pod.Spec.NodeName)
		}
	}
	lubeck.MustCreate(t, framework.Deployment(ns, "away", 2, large))
	for _, pod := range lubeck.AwaitReadyPods(t, ns, "away", 2) {
		if !framework.IsVirtual(&pod) {
			t.Errorf("%s is on %s, where it does not fit", pod.Name, pod.Spec.NodeName)
		}
	}
}

// TestImageLocality: the scheduler prefers the provider that has a large image already, because the virtual node shows the image. Each
// provider has another one.
func TestImageLocality(t *testing.T) {
	begin(t)
	images := map[*framework.Cluster]string{hamburg: "hanse.dev/test/large-a:v1", bremen: "hanse.dev/test/large-b:v1"}
	for provider, image := range images {
		setImages(t, provider, image, 3<<30)
		lubeck.AwaitVirtualNode(t, provider, "shows its large image", func(node *corev1.Node) bool { return hasImage(node, image) })
	}
	ns := offloadAs(t, lubeck, &v1alpha1.Placement{Prefer: v1alpha1.PreferSpread}, excludes())
	for i := range 3 {
		for provider, image := range images {
			pod := framework.Pod(ns, fmt.Sprintf("%s-%d", provider.Name, i))
			pod.Spec.Containers[0].Image = image
			lubeck.MustCreate(t, pod)
			if home := awaitReady(t, lubeck, pod); home.Spec.NodeName != v1alpha1.VirtualNodeName(provider.Name) {
				t.Errorf("pod %s is on %s, which does not have its image", pod.Name, home.Spec.NodeName)
			}
		}
	}
}

func hasImage(node *corev1.Node, name string) bool {
	return slices.ContainsFunc(node.Status.Images, func(image corev1.ContainerImage) bool { return slices.Contains(image.Names, name) })
}

// TestPodOverridesPlacement: the annotation of a pod excludes a peer that the placement of its namespace prefers.
func TestPodOverridesPlacement(t *testing.T) {
	begin(t)
	hamburg.SetPrices(t, lubeck, "0.02")
	bremen.SetPrices(t, lubeck, "0.01")
	ns := offloadAs(t, lubeck, &v1alpha1.Placement{Prefer: v1alpha1.PreferPrice}, ranks("bremen", "hamburg"))
	expectAt(t, ns, bremen, nil, nil)
	expectAt(t, ns, hamburg, nil, map[string]string{v1alpha1.AnnotationExclude: "bremen"})
}

// TestClassOfPodsIsPlaced: pods of a class run elsewhere than the other pods of their namespace. A placement policy can decide
// differently for a class and for the others.
func TestClassOfPodsIsPlaced(t *testing.T) {
	begin(t)
	hamburg.SetPrices(t, lubeck, "0.02")
	bremen.SetPrices(t, lubeck, "0.01")
	gold := map[string]string{"tier": "gold"}
	ns := offloadAs(t, lubeck, &v1alpha1.Placement{Prefer: v1alpha1.PreferPrice, Strict: true}, only("bremen"), v1alpha1.PlacementClass{
		Name: "gold", PodLabels: map[string]v1alpha1.LabelValue{"tier": "gold"}, Placement: v1alpha1.Placement{Exclude: []string{"bremen"}},
	})
	expectAt(t, ns, bremen, nil, nil)
	expectAt(t, ns, hamburg, gold, nil)
	expectAt(t, ns, bremen, nil, nil)

	lubeck.SetPolicy(t, "placement", `package hanse.placement
exclude["bremen"] := "only for gold" if not input.class
exclude["hamburg"] := "not for gold" if input.class == "gold"`)
	awaitDecision(t, lubeck, ns, only("hamburg"))
	expectAt(t, ns, hamburg, nil, nil)
	framework.Eventually(t, "both clusters are excluded for gold", func(ctx context.Context) error {
		offloading, err := offloadingOf(ctx, lubeck, ns)
		if err != nil {
			return err
		}
		classes := offloading.Status.Placement.Classes
		if len(classes) != 1 || !classes[0].Strict || len(classes[0].Only) > 0 {
			return fmt.Errorf("the decision is %+v", classes)
		}
		return nil
	})
}
