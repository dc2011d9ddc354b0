package e2e

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/harness"
)

// only checks that a strict placement has chosen the peer.
func only(peer string) func(*v1alpha1.PlacementStatus) error {
	return func(decided *v1alpha1.PlacementStatus) error {
		if !decided.Strict || len(decided.Only) != 1 || decided.Only[0] != v1alpha1.VirtualNodeName(peer) {
			return fmt.Errorf("%s is not the only one", peer)
		}
		return nil
	}
}

func TestHomeFirst(t *testing.T) {
	ctx := market(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	// Half of what is free at home: two fit there, with what is not asked for.
	node, err := lubeck.node(ctx, "lubeck-worker-1")
	if err != nil {
		t.Fatal(err)
	}
	share := fmt.Sprintf("%dm", node.Status.Allocatable.Cpu().MilliValue()*2/5)
	large := shellSpec(forever)
	large.Containers[0].Resources = requests(share, "16Mi")
	lubeck.create(t, deployment(ns, "home", 2, large))
	for _, pod := range lubeck.awaitReadyPods(t, ns, "home", 2) {
		if isVirtual(&pod) {
			t.Errorf("%s left though there is room at home: it is on %s", pod.Name, pod.Spec.NodeName)
		}
	}
	lubeck.create(t, deployment(ns, "away", 2, large))
	for _, pod := range lubeck.awaitReadyPods(t, ns, "away", 2) {
		if !isVirtual(&pod) {
			t.Errorf("%s is at home, which is full", pod.Name)
		}
	}
}

func TestCheapestFirst(t *testing.T) {
	market(t)
	hamburg.prices(t, "0.02")
	bremen.prices(t, "0.01")
	ns := lubeck.placed(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferPrice, Strict: true}, only("bremen"))
	lubeck.landsOn(t, ns, "hanse-bremen")
	hamburg.prices(t, "0.005")
	lubeck.awaitPlacement(t, ns, only("hamburg"))
	lubeck.landsOn(t, ns, "hanse-hamburg")
}

func TestNearestFirst(t *testing.T) {
	market(t)
	lubeck.isFarFrom(t, bremen)
	ns := lubeck.placed(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferLatency, Strict: true}, only("hamburg"))
	lubeck.landsOn(t, ns, "hanse-hamburg")
	lubeck.isFarFrom(t, hamburg)
	lubeck.awaitPlacement(t, ns, only("bremen"))
	lubeck.landsOn(t, ns, "hanse-bremen")
}

// The scheduler itself prefers the provider that has a large image already: what is needed is that it is told.
func TestImageLocality(t *testing.T) {
	ctx := market(t)
	const image = "hanse.dev/test/large:v1"
	loadLarge(t, image, bremen)
	lubeck.awaitVirtual(t, bremen, "has the large image", func(node *corev1.Node) bool { return hasImage(node, image) })
	ns := lubeck.placed(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferSpread}, anywhere)
	for i := range 3 {
		pod := shellPod(ns, fmt.Sprintf("large-%d", i), forever)
		pod.Spec.Containers[0].Image = image
		pod.Spec.Containers[0].Command = nil
		pod.Spec.Containers[0].Args = nil
		lubeck.create(t, pod)
		bound, err := lubeck.awaitBound(ctx, pod)
		if err != nil {
			t.Fatal(err)
		}
		if bound.Spec.NodeName != "hanse-bremen" {
			t.Errorf("pod %s is on %s, which does not have its image", pod.Name, bound.Spec.NodeName)
		}
	}
}

func hasImage(node *corev1.Node, name string) bool {
	for _, image := range node.Status.Images {
		for _, known := range image.Names {
			if known == name {
				return true
			}
		}
	}
	return false
}

// loadLarge puts an image of 320 MB onto the cluster's workers. Its content does not compress.
func loadLarge(t *testing.T, name string, where *cluster) {
	t.Helper()
	padding := filepath.Join(t.TempDir(), "padding")
	if err := writeNoise(padding, 320<<20); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "large.tar")
	echo := filepath.Join(root, "bin", "images", "echo")
	_, err := harness.Run(t.Context(), "scratch-image", "-o", archive, "-tag", name, "-file", echo+"=/echo", "-file", padding+"=/padding",
		"-entrypoint", "/echo", "-user", "65532")
	if err != nil {
		t.Fatal(err)
	}
	mustTestbed(t, "load", archive, where.Name)
	_ = os.Remove(archive)
}

// A pod says by annotation what its namespace does not.
func TestPodOverridesPlacement(t *testing.T) {
	ctx := market(t)
	hamburg.prices(t, "0.02")
	bremen.prices(t, "0.01")
	cheap := func(decided *v1alpha1.PlacementStatus) error {
		for _, node := range decided.Nodes {
			if node.Name == "hanse-bremen" && node.Weight == 100 {
				return nil
			}
		}
		return errors.New("bremen is not the best")
	}
	ns := lubeck.placed(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferPrice}, cheap)
	lubeck.landsOn(t, ns, "hanse-bremen")
	pod := shellPod(ns, "elsewhere", forever)
	pod.Annotations = map[string]string{v1alpha1.AnnotationExclude: "bremen"}
	lubeck.create(t, pod)
	bound, err := lubeck.awaitBound(ctx, pod)
	if err != nil || bound.Spec.NodeName != "hanse-hamburg" {
		t.Errorf("the pod is on %q (%v)", bound.Spec.NodeName, err)
	}
}

// Pods of a class go elsewhere than the rest of their namespace.
func TestClassOfPodsIsPlaced(t *testing.T) {
	market(t)
	hamburg.prices(t, "0.02")
	bremen.prices(t, "0.01")
	gold := map[string]string{"tier": "gold"}
	ns := lubeck.placed(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferPrice, Strict: true}, only("bremen"),
		v1alpha1.PlacementClass{
			Name: "gold", PodLabels: map[string]v1alpha1.LabelValue{"tier": "gold"},
			Placement: v1alpha1.Placement{Exclude: []string{"bremen"}},
		})
	lubeck.landsOn(t, ns, "hanse-bremen")
	lubeck.landsOnAs(t, ns, "hanse-hamburg", gold)
	lubeck.landsOn(t, ns, "hanse-bremen")

	// A policy may tell the class from its namespace, too.
	lubeck.policy(t, "placement", `package hanse.placement
exclude["bremen"] := "only for gold" if not input.class
exclude["hamburg"] := "not for gold" if input.class == "gold"`)
	lubeck.awaitPlacement(t, ns, only("hamburg"))
	lubeck.landsOn(t, ns, "hanse-hamburg")
	offloading := &v1alpha1.NamespaceOffloading{}
	if err := lubeck.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: v1alpha1.NamespaceOffloadingName}, offloading); err != nil {
		t.Fatal(err)
	}
	if classes := offloading.Status.Placement.Classes; len(classes) != 1 || !classes[0].Strict || len(classes[0].Only) > 0 {
		t.Errorf("both clusters are excluded for gold, and it was decided: %+v", classes)
	}
}

// Four clusters that ask no money of each other share what they have: each runs pods in all the others.
func TestFreePool(t *testing.T) {
	ctx := market(t)
	pool := []*cluster{lubeck, hamburg, bremen, wismar}
	t.Cleanup(func() {
		for _, member := range pool[:3] {
			member.forget(t, "wismar")
			wismar.forget(t, member.Name)
		}
	})
	for i, member := range pool {
		for _, other := range pool[i+1:] {
			if err := peerBothWays(ctx, member, other); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, member := range pool {
		others := slices.DeleteFunc(slices.Clone(pool), func(c *cluster) bool { return c == member })
		member.expectFreeOffers(t, others)
		member.expectPodsAt(t, others)
	}
	if out, err := wismar.Hanse(ctx, "table", "--for", "cpu=100m"); err != nil || strings.Count(out, "yes") != 3 {
		t.Errorf("a small pod does not fit everywhere: %v\n%s", err, out)
	}
}

func (c *cluster) expectFreeOffers(t *testing.T, providers []*cluster) {
	t.Helper()
	for _, provider := range providers {
		c.awaitOpen(t, provider)
		held, err := c.copyFrom(t.Context(), provider)
		if err != nil || held.Spec.Prices != nil {
			t.Errorf("%s asks %s for money: %v (%v)", provider.Name, c.Name, held.Spec.Prices, err)
		}
	}
}

// expectPodsAt runs a pod at each of the providers.
func (c *cluster) expectPodsAt(t *testing.T, providers []*cluster) {
	t.Helper()
	ns := c.placed(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferSpread}, anywhere)
	for _, provider := range providers {
		pod := shellPod(ns, "at-"+provider.Name, forever)
		pod.Spec.NodeSelector = map[string]string{v1alpha1.LabelPeer: provider.Name}
		c.create(t, pod)
	}
	for _, provider := range providers {
		home := c.awaitReadyPods(t, ns, "at-"+provider.Name, 1)[0]
		provider.mustRemotePod(t, &home)
	}
}

// writeNoise writes a file of that many bytes that no compression makes smaller.
func writeNoise(path string, size int64) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.CopyN(file, rand.NewChaCha8([32]byte{}), size)
	return errors.Join(err, file.Close())
}
