// SPDX-License-Identifier: Apache-2.0

package offers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
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
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	// Half of what is free at home: two fit there, with what is not asked for.
	node, err := lubeck.GetNode(ctx, "lubeck-worker-1")
	if err != nil {
		t.Fatal(err)
	}
	share := fmt.Sprintf("%dm", node.Status.Allocatable.Cpu().MilliValue()*2/5)
	large := framework.NewShellPodSpec(framework.RunForever)
	large.Containers[0].Resources = framework.ResourceRequests(share, "16Mi")
	lubeck.MustCreate(t, framework.NewDeployment(ns, "home", 2, large))
	for _, pod := range lubeck.AwaitReadyPods(t, ns, "home", 2) {
		if framework.IsOnVirtualNode(&pod) {
			t.Errorf("%s left though there is room at home: it is on %s", pod.Name, pod.Spec.NodeName)
		}
	}
	lubeck.MustCreate(t, framework.NewDeployment(ns, "away", 2, large))
	for _, pod := range lubeck.AwaitReadyPods(t, ns, "away", 2) {
		if !framework.IsOnVirtualNode(&pod) {
			t.Errorf("%s is at home, which is full", pod.Name)
		}
	}
}

// ranks checks that the peers come one after the other by their weights, the best with the greatest that there is.
func ranks(peers ...string) func(*v1alpha1.PlacementStatus) error {
	return func(decided *v1alpha1.PlacementStatus) error {
		weights := map[string]int32{}
		for _, node := range decided.Nodes {
			weights[node.Name] = node.Weight
		}
		least := int32(101)
		for i, peer := range peers {
			weight := weights[v1alpha1.VirtualNodeName(peer)]
			if weight <= 0 || weight >= least || i == 0 && weight != 100 {
				return fmt.Errorf("%s has weight %d, after %d", peer, weight, least)
			}
			least = weight
		}
		return nil
	}
}

func TestCheapestFirst(t *testing.T) {
	framework.Begin(t)
	hamburg.SetPrices(t, "0.02")
	bremen.SetPrices(t, "0.01")
	strict := lubeck.CreatePlacedNamespace(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferPrice, Strict: true}, only("bremen"))
	lubeck.ExpectPodOn(t, strict, "hanse-bremen")
	weighed := lubeck.CreatePlacedNamespace(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferPrice}, ranks("bremen", "hamburg"))
	lubeck.ExpectPodOn(t, weighed, "hanse-bremen")
	limit := &v1alpha1.Price{Amount: resource.MustParse("0.015"), Currency: "EUR"}
	limited := lubeck.CreatePlacedNamespace(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{MaxPrice: limit}, excludes("hamburg"))
	lubeck.ExpectPodOn(t, limited, "hanse-bremen")

	// Prices change, and new pods follow them.
	bremen.SetPrices(t, "0.03")
	hamburg.SetPrices(t, "0.005")
	for ns, decided := range map[string]func(*v1alpha1.PlacementStatus) error{
		strict: only("hamburg"), weighed: ranks("hamburg", "bremen"), limited: excludes("bremen"),
	} {
		lubeck.AwaitPlacement(t, ns, decided)
		lubeck.ExpectPodOn(t, ns, "hanse-hamburg")
	}
}

func TestNearestFirst(t *testing.T) {
	framework.Begin(t)
	hamburg.SetPrices(t, "0.02") // the nearest is not the cheapest
	isFarFrom(t, lubeck, bremen)
	strict := lubeck.CreatePlacedNamespace(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferLatency, Strict: true}, only("hamburg"))
	lubeck.ExpectPodOn(t, strict, "hanse-hamburg")
	weighed := lubeck.CreatePlacedNamespace(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferLatency}, ranks("hamburg", "bremen"))
	lubeck.ExpectPodOn(t, weighed, "hanse-hamburg")
	limit := &metav1.Duration{Duration: between(t, lubeck, hamburg, bremen)}
	limited := lubeck.CreatePlacedNamespace(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{MaxLatency: limit}, excludes("bremen"))
	lubeck.ExpectPodOn(t, limited, "hanse-hamburg")
	// A pod asks for another order than its namespace.
	cheap := lubeck.CreatePlacedNamespace(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferPrice}, ranks("bremen", "hamburg"))
	lubeck.ExpectPodOn(t, cheap, "hanse-bremen")
	lubeck.ExpectPodOnAs(t, cheap, "hanse-hamburg", nil, map[string]string{v1alpha1.AnnotationPrefer: string(v1alpha1.PreferLatency)})

	isFarFrom(t, lubeck, hamburg)
	for ns, decided := range map[string]func(*v1alpha1.PlacementStatus) error{strict: only("bremen"), weighed: ranks("bremen", "hamburg")} {
		lubeck.AwaitPlacement(t, ns, decided)
		lubeck.ExpectPodOn(t, ns, "hanse-bremen")
	}
}

// between is a round trip that is longer than that to the nearer peer and shorter than that to the farther one, however slow
// the machine is. The table must show which one is farther.
func between(t *testing.T, c *framework.Cluster, nearer, farther *framework.Cluster) time.Duration {
	t.Helper()
	var middle time.Duration
	framework.Eventually(t, "the table shows that "+farther.Name+" is farther than "+nearer.Name, func(ctx context.Context) error {
		table, err := c.OfferTable(ctx)
		if err != nil {
			return err
		}
		near, nearErr := time.ParseDuration(table[nearer.Name]["LATENCY"])
		far, farErr := time.ParseDuration(table[farther.Name]["LATENCY"])
		if err := errors.Join(nearErr, farErr); err != nil {
			return err
		}
		if far < near+away {
			return fmt.Errorf("%s and %s", near, far)
		}
		middle = (near + far) / 2
		return nil
	})
	return middle
}

// The scheduler itself prefers the provider that has a large image already: what is needed is that it is told.
func TestImageLocality(t *testing.T) {
	ctx := framework.Begin(t)
	const image = "hanse.dev/test/large:v1"
	loadLarge(t, image, bremen)
	lubeck.AwaitVirtualNode(t, bremen, "has the large image", func(node *corev1.Node) bool { return hasImage(node, image) })
	ns := lubeck.CreatePlacedNamespace(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferSpread}, framework.AnyDecision)
	for i := range 3 {
		pod := framework.NewShellPod(ns, fmt.Sprintf("large-%d", i), framework.RunForever)
		pod.Spec.Containers[0].Image = image
		pod.Spec.Containers[0].Command = nil
		pod.Spec.Containers[0].Args = nil
		lubeck.MustCreate(t, pod)
		bound, err := lubeck.AwaitBound(ctx, pod)
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
func loadLarge(t *testing.T, name string, where *framework.Cluster) {
	t.Helper()
	padding := filepath.Join(t.TempDir(), "padding")
	if err := writeNoise(padding, 320<<20); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "large.tar")
	echo := filepath.Join(framework.Root, "bin", "images", "echo")
	_, err := harness.Run(t.Context(), "scratch-image", "-o", archive, "-tag", name, "-file", echo+"=/echo", "-file", padding+"=/padding",
		"-entrypoint", "/echo", "-user", "65532")
	if err != nil {
		t.Fatal(err)
	}
	framework.MustTestbed(t, "load", archive, where.Name)
	_ = os.Remove(archive)
}

// A pod says by annotation what its namespace does not.
func TestPodOverridesPlacement(t *testing.T) {
	framework.Begin(t)
	hamburg.SetPrices(t, "0.02")
	bremen.SetPrices(t, "0.01")
	ns := lubeck.CreatePlacedNamespace(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferPrice}, ranks("bremen", "hamburg"))
	lubeck.ExpectPodOn(t, ns, "hanse-bremen")
	lubeck.ExpectPodOnAs(t, ns, "hanse-hamburg", nil, map[string]string{v1alpha1.AnnotationExclude: "bremen"})
}

// Pods of a class go elsewhere than the rest of their namespace.
func TestClassOfPodsIsPlaced(t *testing.T) {
	framework.Begin(t)
	hamburg.SetPrices(t, "0.02")
	bremen.SetPrices(t, "0.01")
	gold := map[string]string{"tier": "gold"}
	ns := lubeck.CreatePlacedNamespace(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferPrice, Strict: true}, only("bremen"),
		v1alpha1.PlacementClass{
			Name: "gold", PodLabels: map[string]v1alpha1.LabelValue{"tier": "gold"},
			Placement: v1alpha1.Placement{Exclude: []string{"bremen"}},
		})
	lubeck.ExpectPodOn(t, ns, "hanse-bremen")
	lubeck.ExpectPodOnAs(t, ns, "hanse-hamburg", gold, nil)
	lubeck.ExpectPodOn(t, ns, "hanse-bremen")

	// A policy may tell the class from its namespace, too.
	lubeck.ApplyPolicy(t, "placement", `package hanse.placement
exclude["bremen"] := "only for gold" if not input.class
exclude["hamburg"] := "not for gold" if input.class == "gold"`)
	lubeck.AwaitPlacement(t, ns, only("hamburg"))
	lubeck.ExpectPodOn(t, ns, "hanse-hamburg")
	framework.Eventually(t, "both clusters are excluded for gold", func(ctx context.Context) error {
		offloading := &v1alpha1.NamespaceOffloading{}
		if err := lubeck.Get(ctx, types.NamespacedName{Namespace: ns, Name: v1alpha1.NamespaceOffloadingName}, offloading); err != nil {
			return err
		}
		classes := offloading.Status.Placement.Classes
		if len(classes) != 1 || !classes[0].Strict || len(classes[0].Only) > 0 {
			return fmt.Errorf("it was decided: %+v", classes)
		}
		return nil
	})
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

// away is how long each way takes through a relay.
const away = 40 * time.Millisecond

// isFarFrom leads what the cluster opens to another's API server through a relay that takes its time, for as long as the
// story lasts or until another is far.
func isFarFrom(t *testing.T, c *framework.Cluster, far *framework.Cluster) {
	t.Helper()
	address := startRelay(t, far)
	framework.MustTestbed(t, "detour", c.Name, far.Name, address)
	t.Cleanup(func() { framework.MustTestbed(t, "detour", c.Name, far.Name, "off") })
	// Connections that are open go on as they are.
	if _, err := c.Kubectl(t.Context(), "rollout", "restart", "-n", v1alpha1.SystemNamespace, "deployment/hanse-manager"); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, far.Name+" is far", func(ctx context.Context) error {
		peer, err := c.GetPeer(ctx, far.Name)
		if err == nil && (peer.Status.RoundTripTime == nil || peer.Status.RoundTripTime.Duration < away) {
			err = errors.New("it does not show in the round-trip time: " + framework.ConditionsOf(peer))
		}
		return err
	})
}

// startRelay passes connections on to the cluster's API server, and returns where it listens.
func startRelay(t *testing.T, c *framework.Cluster) string {
	t.Helper()
	server, err := url.Parse(c.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	listener := c.Listen(t)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go relay(from, server.Host)
		}
	}()
	return listener.Addr().String()
}

func relay(from net.Conn, to string) {
	defer from.Close()                 //nolint:errcheck // it is over
	target, err := net.Dial("tcp", to) //nolint:noctx // it ends with the connection
	if err != nil {
		return
	}
	defer target.Close() //nolint:errcheck // it is over
	done := make(chan struct{}, 2)
	go func() { carry(target, from); done <- struct{}{} }()
	go func() { carry(from, target); done <- struct{}{} }()
	<-done
}

// carry copies what arrives, each piece after the time that the way takes.
func carry(to io.Writer, from io.Reader) {
	type piece struct {
		due  time.Time
		data []byte
	}
	way := make(chan piece, 1024)
	go func() {
		defer close(way)
		for {
			buffer := make([]byte, 16<<10)
			n, err := from.Read(buffer)
			if n > 0 {
				way <- piece{time.Now().Add(away), buffer[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	for next := range way {
		time.Sleep(time.Until(next.due))
		if _, err := to.Write(next.data); err != nil {
			return
		}
	}
}
