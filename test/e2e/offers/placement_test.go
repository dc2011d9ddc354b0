// SPDX-License-Identifier: Apache-2.0

package offers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
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
