package e2e

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
	market(t)
	hamburg.prices(t, "0.02")
	bremen.prices(t, "0.01")
	strict := lubeck.placed(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferPrice, Strict: true}, only("bremen"))
	lubeck.landsOn(t, strict, "hanse-bremen")
	weighed := lubeck.placed(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferPrice}, ranks("bremen", "hamburg"))
	lubeck.landsOn(t, weighed, "hanse-bremen")
	limit := &v1alpha1.Price{Amount: resource.MustParse("0.015"), Currency: "EUR"}
	limited := lubeck.placed(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{MaxPrice: limit}, excludes("hamburg"))
	lubeck.landsOn(t, limited, "hanse-bremen")

	// Prices change, and new pods follow them.
	bremen.prices(t, "0.03")
	hamburg.prices(t, "0.005")
	for ns, decided := range map[string]func(*v1alpha1.PlacementStatus) error{
		strict: only("hamburg"), weighed: ranks("hamburg", "bremen"), limited: excludes("bremen"),
	} {
		lubeck.awaitPlacement(t, ns, decided)
		lubeck.landsOn(t, ns, "hanse-hamburg")
	}
}

func TestNearestFirst(t *testing.T) {
	market(t)
	hamburg.prices(t, "0.02") // the nearest is not the cheapest
	lubeck.isFarFrom(t, bremen)
	strict := lubeck.placed(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferLatency, Strict: true}, only("hamburg"))
	lubeck.landsOn(t, strict, "hanse-hamburg")
	weighed := lubeck.placed(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferLatency}, ranks("hamburg", "bremen"))
	lubeck.landsOn(t, weighed, "hanse-hamburg")
	limit := &metav1.Duration{Duration: lubeck.between(t, hamburg, bremen)}
	limited := lubeck.placed(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{MaxLatency: limit}, excludes("bremen"))
	lubeck.landsOn(t, limited, "hanse-hamburg")
	// A pod asks for another order than its namespace.
	cheap := lubeck.placed(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferPrice}, ranks("bremen", "hamburg"))
	lubeck.landsOn(t, cheap, "hanse-bremen")
	lubeck.landsOnAs(t, cheap, "hanse-hamburg", nil, map[string]string{v1alpha1.AnnotationPrefer: string(v1alpha1.PreferLatency)})

	lubeck.isFarFrom(t, hamburg)
	for ns, decided := range map[string]func(*v1alpha1.PlacementStatus) error{strict: only("bremen"), weighed: ranks("bremen", "hamburg")} {
		lubeck.awaitPlacement(t, ns, decided)
		lubeck.landsOn(t, ns, "hanse-bremen")
	}
}

// between is a round trip that is longer than that to the nearer peer and shorter than that to the farther one, however slow
// the machine is. The table must show which one is farther.
func (c *cluster) between(t *testing.T, nearer, farther *cluster) time.Duration {
	t.Helper()
	var middle time.Duration
	eventually(t, "the table shows that "+farther.Name+" is farther than "+nearer.Name, func(ctx context.Context) error {
		table, err := c.table(ctx)
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
	market(t)
	hamburg.prices(t, "0.02")
	bremen.prices(t, "0.01")
	ns := lubeck.placed(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferPrice}, ranks("bremen", "hamburg"))
	lubeck.landsOn(t, ns, "hanse-bremen")
	lubeck.landsOnAs(t, ns, "hanse-hamburg", nil, map[string]string{v1alpha1.AnnotationExclude: "bremen"})
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
	lubeck.landsOnAs(t, ns, "hanse-hamburg", gold, nil)
	lubeck.landsOn(t, ns, "hanse-bremen")

	// A policy may tell the class from its namespace, too.
	lubeck.policy(t, "placement", `package hanse.placement
exclude["bremen"] := "only for gold" if not input.class
exclude["hamburg"] := "not for gold" if input.class == "gold"`)
	lubeck.awaitPlacement(t, ns, only("hamburg"))
	lubeck.landsOn(t, ns, "hanse-hamburg")
	eventually(t, "both clusters are excluded for gold", func(ctx context.Context) error {
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
func (c *cluster) isFarFrom(t *testing.T, far *cluster) {
	t.Helper()
	address := far.startRelay(t)
	mustTestbed(t, "detour", c.Name, far.Name, address)
	t.Cleanup(func() { mustTestbed(t, "detour", c.Name, far.Name, "off") })
	// Connections that are open go on as they are.
	if _, err := c.Kubectl(t.Context(), "rollout", "restart", "-n", v1alpha1.SystemNamespace, "deployment/hanse-manager"); err != nil {
		t.Fatal(err)
	}
	eventually(t, far.Name+" is far", func(ctx context.Context) error {
		peer, err := c.peer(ctx, far.Name)
		if err == nil && (peer.Status.RoundTripTime == nil || peer.Status.RoundTripTime.Duration < away) {
			err = errors.New("it does not show in the round-trip time: " + conditionsOf(peer))
		}
		return err
	})
}

// startRelay passes connections on to the cluster's API server, and returns where it listens.
func (c *cluster) startRelay(t *testing.T) string {
	t.Helper()
	server, err := url.Parse(c.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	listener := c.listen(t)
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

// listen listens where the processes and pods of all clusters reach it: on the bridge that they are on.
func (c *cluster) listen(t *testing.T) net.Listener {
	t.Helper()
	machine, err := c.Machine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(machine, "0"))
	if err != nil {
		t.Fatal(err)
	}
	return listener
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
