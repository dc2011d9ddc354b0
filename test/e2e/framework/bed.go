// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hanse-dev/hanse/test/harness"
)

// bedShape is the shape of the clusters that this process works on: that of its stories, or that which it starts.
var bedShape Shape

// StartBed starts the clusters of a shape with these extras in the testbed of this process (HANSE_TESTBED_STATE), loads images, installs
// Hanse and peers the clusters. It can be called again. The version of Kubernetes is that of lubeck and hamburg in the shape "pair"; empty
// is the testbed's own.
func StartBed(ctx context.Context, shape Shape, extras []Extra, kubernetes string) error {
	bedShape = shape
	if err := startClusters(ctx, shape, extras, kubernetes); err != nil {
		return fmt.Errorf("start clusters: %w", err)
	}
	if err := loadImages(ctx, shape, extras); err != nil {
		return fmt.Errorf("load images: %w", err)
	}
	if shape.IPv6 { // the stories install Hanse themselves
		return nil
	}
	if err := connect(ctx, shape.Names(nil)); err != nil {
		return err
	}
	if err := recordState(ctx, shape); err != nil {
		return fmt.Errorf("record the state before Hanse: %w", err)
	}
	if err := InstallAll(ctx, shape.clusters()...); err != nil {
		return fmt.Errorf("install Hanse: %w", err)
	}
	return peerAll(ctx, shape)
}

// testbedUp starts clusters, or changes them.
func testbedUp(ctx context.Context, args ...string) error {
	_, err := harness.Testbed(ctx, append([]string{"up"}, args...)...)
	return err
}

func startClusters(ctx context.Context, shape Shape, extras []Extra, kubernetes string) error {
	has := func(extra Extra) bool { return slices.Contains(extras, extra) }
	if shape.IPv6 {
		return errors.Join(
			testbedUp(ctx, Stade.ID, "--workers", "1", "--ip-families", "dual"),
			testbedUp(ctx, Stralsund.ID, "--workers", "1", "--ip-families", "ipv6"))
	}
	args, err := upArguments(shape, extras, kubernetes)
	if err != nil {
		return err
	}
	if err := testbedUp(ctx, args...); err != nil {
		return err
	}
	if has(ControlPlane) {
		if err := testbedUp(ctx, Rostock.ID, "--workers", "0"); err != nil {
			return err
		}
	}
	if has(ClusterBehindNAT) {
		return testbedUp(ctx, Visby.ID, "--workers", "1", "--nat")
	}
	return nil
}

// extraFlags are flags of `testbed up` for extras.
var extraFlags = map[Extra][]string{
	Metrics: {"--metrics"}, Storage: {"--storage"}, Snapshots: {"--snapshots"}, IngressController: {"--ingress"}, MultiClusterDNS: {"--multicluster"},
	OrdersImage: {"--arg", "kubelet:sync-frequency=10s"}, // files of ConfigMaps follow sooner than in a minute and a half
}

// upArguments returns the arguments of `testbed up` for the clusters with Hanse.
func upArguments(shape Shape, extras []Extra, kubernetes string) ([]string, error) {
	args := append(shape.Names(nil), "--workers", strconv.Itoa(shape.Workers))
	if !shape.isMarket() {
		args = append(args, "--audit")
	}
	if !shape.isMarket() && !shape.Network {
		policy, err := filepath.Abs(filepath.Join(Root, "test", "e2e", "audit-policy.yaml"))
		if err != nil {
			return nil, err
		}
		args = append(args, "--arg", "apiserver:audit-policy-file="+policy)
	}
	if kubernetes != "" {
		args = append(args, "--kubernetes", kubernetes)
	}
	for _, extra := range extras {
		args = append(args, extraFlags[extra]...)
	}
	return args, nil
}

func loadImages(ctx context.Context, shape Shape, extras []Extra) error {
	load := func(archive string, clusters ...string) error {
		_, err := harness.Testbed(ctx, append([]string{"load", filepath.Join(Root, "bin", archive)}, clusters...)...)
		return err
	}
	all := shape.Names(nil)
	if slices.Contains(extras, ClusterBehindNAT) {
		all = append(all, Visby.ID)
	}
	if err := load("hanse.tar", all...); err != nil {
		return err
	}
	if shape.Network && !shape.IPv6 {
		if err := load("images/kubectl.tar", Hamburg.ID); err != nil {
			return err
		}
	}
	if slices.Contains(extras, OrdersImage) {
		if err := load("images/orders.tar", shape.Names(nil)...); err != nil {
			return err
		}
	}
	if slices.Contains(extras, OtherVersions) {
		archives, err := filepath.Glob(filepath.Join(Root, "bin", "skew", "*.tar"))
		if err != nil {
			return err
		}
		for _, archive := range archives {
			if err := load(filepath.Join("skew", filepath.Base(archive)), Hamburg.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// recordState records what the clusters are like before Hanse is installed, for the stories that uninstall it.
func recordState(ctx context.Context, shape Shape) error {
	switch {
	case shape.Network:
		for _, c := range shape.clusters() {
			if err := remember(ctx, c, RememberedNodes, c.NodeStates); err != nil {
				return err
			}
		}
		if err := installMulticluster(ctx, shape.clusters()...); err != nil {
			return err
		}
		return remember(ctx, Bremen, RememberedObjects, Bremen.TakeInventory)
	case shape.isMarket():
		return nil
	}
	for _, c := range shape.clusters() {
		if err := remember(ctx, c, RememberedObjects, c.TakeInventory); err != nil {
			return err
		}
	}
	return nil
}

// peerAll peers the clusters of the shape, except wismar, which stories of the market peer.
func peerAll(ctx context.Context, shape Shape) error {
	pairs := [][2]*Cluster{{Lubeck, Hamburg}}
	if shape.Clusters > 2 {
		pairs = append(pairs, [2]*Cluster{Lubeck, Bremen}, [2]*Cluster{Hamburg, Bremen})
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, pair := range pairs {
		group.Go(func() error {
			if err := PeerBothWays(ctx, pair[0], pair[1]); err != nil {
				return fmt.Errorf("peer %s and %s: %w", pair[0].ID, pair[1].ID, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// Install installs Hanse with the settings of the shape and these values of the chart, or upgrades it to them.
func Install(ctx context.Context, c *Cluster, values ...string) error {
	return InstallImage(ctx, c, "hanse.image", values...)
}

// InstallImage is Install with the image whose name is in that file of the folder bin.
func InstallImage(ctx context.Context, c *Cluster, file string, values ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	common, err := settings(ctx, c)
	if err != nil {
		return err
	}
	return c.InstallImage(ctx, file, append(common, values...)...)
}

// InstallAll installs Hanse in the clusters, in all at once: most of the time is waiting.
func InstallAll(ctx context.Context, clusters ...*Cluster) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range clusters {
		group.Go(func() error { return Install(ctx, c) })
	}
	return group.Wait()
}

// settings are values of the chart that hold for a whole shape. What one story needs and hurts no other is here, because each change
// restarts Hanse, which takes the clusters from all others meanwhile.
func settings(ctx context.Context, c *Cluster) ([]string, error) {
	// Peers hear of the stories' own images, which are of no public registry.
	values := []string{
		"advertising.imagePatterns={hanse.dev/test/*}", "advertising.minInterval=500ms", "advertising.settleInterval=1s", "probePeriod=2s",
	}
	switch {
	case bedShape.Network:
		return append(values, "gateway.enabled=true"), nil
	case bedShape.isMarket():
		return append(values, marketSettings(c)...), nil
	}
	collector, err := CollectorAddress(ctx, c)
	if err != nil {
		return nil, err
	}
	values = append(values, "tracing.endpoint="+collector, "tracing.insecure=true")
	values = append(values, listedSettings...)
	if c == Lubeck {
		values = append(values, "defaultOffloading.namespaceSelector=team=sailors", "defaultOffloading.spec.strategy=Remote")
	}
	return values, nil
}

// marketSettings let stories of the market wait for seconds instead of minutes. hamburg is a broker. bremen and wismar
// discover each other, and are peers in a few stories only.
func marketSettings(c *Cluster) []string {
	values := []string{
		"advertising.helloInterval=3s", "advertising.helloTimeout=10s", "advertising.fullInterval=12s", "bandwidthInterval=1m",
		"accountingPeriod=3s",
	}
	if c == Hamburg {
		values = append(values, "broker.enabled=true")
	}
	if c == Bremen || c == Wismar {
		values = append(values, "discovery.enabled=true", "discovery.multicast=true", "discovery.period=5s", "manager.apiServers[0]="+c.Config.Host)
	}
	return values
}

// CollectorAddress returns where lubeck and hamburg send their traces: a port of this machine. It is always the same, because the address
// is a setting, and a change restarts Hanse.
func CollectorAddress(ctx context.Context, c *Cluster) (string, error) {
	machine, err := c.Machine(ctx)
	if err != nil {
		return "", err
	}
	return machine + ":" + map[*Cluster]string{Lubeck: "4317", Hamburg: "4318"}[c], nil
}
