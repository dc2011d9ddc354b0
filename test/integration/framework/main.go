// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hanse-dev/hanse/test/harness"
)

// setupTimeout is how long a package may take until its tests begin, without the time that it waits for free clusters.
const setupTimeout = 10 * time.Minute

// A Config says what the tests of a package need.
type Config struct {
	// Clusters maps names of clusters to the variables that Main sets. There are lubeck, hamburg, bremen and wismar.
	Clusters map[string]**Cluster
	// Values returns values of the chart, as key=value, besides those that all packages have.
	Values func(c *Cluster) []string
	// Peers lists pairs of clusters that are peers in both directions before the first test. All other peerings end.
	Peers [][2]string
	// WithoutHanse leaves clusters as they are: Hanse is not installed in them.
	WithoutHanse []string
}

// Main runs the tests of a package on clusters that no other package uses meanwhile. It does not return. Without clusters,
// which make integration provides, it runs no test.
func Main(m *testing.M, config Config) {
	ctrl.SetLogger(logr.Discard())
	state := os.Getenv(stateVariable)
	if state == "" {
		fmt.Println("integration tests need control planes: run make integration")
		os.Exit(0)
	}
	code, err := run(m, state, config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// run is Main with deferred calls.
func run(m *testing.M, state string, config Config) (code int, err error) {
	set, err := lockSet(state, len(config.Clusters))
	if err != nil {
		return 1, fmt.Errorf("find free clusters: %w", err)
	}
	defer set.unlock()
	if err := os.Setenv("HANSE_TESTBED_STATE", set.state); err != nil {
		return 1, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	defer stopAll(config)
	if err := setUp(ctx, config); err != nil {
		return 1, fmt.Errorf("set up the clusters: %w", err)
	}
	return m.Run(), nil
}

// setUp starts the clusters that do not run, and makes them what the package needs.
func setUp(ctx context.Context, config Config) error {
	if err := startClusters(ctx, config); err != nil {
		return err
	}
	group, installing := errgroup.WithContext(ctx)
	for _, c := range withHanse(config) {
		group.Go(func() error { return c.Install(installing) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return setPeers(ctx, config)
}

// startClusters brings the control planes up. What runs already is left alone.
func startClusters(ctx context.Context, config Config) error {
	names := make([]string, 0, len(config.Clusters))
	for name := range config.Clusters {
		names = append(names, name)
	}
	slices.Sort(names)
	up := append([]string{"up", "--rootless", "--simulated-nodes", "2"}, names...)
	if _, err := harness.Testbed(ctx, up...); err != nil {
		return err
	}
	for _, name := range names {
		connected, err := harness.Connect(ctx, name, 0)
		if err != nil {
			return err
		}
		c := &Cluster{Cluster: connected}
		if config.Values != nil {
			c.values = config.Values(c)
		}
		*config.Clusters[name] = c
	}
	return nil
}

// withHanse returns the clusters in which Hanse is installed.
func withHanse(config Config) []*Cluster {
	var clusters []*Cluster
	for name, c := range config.Clusters {
		if *c != nil && !slices.Contains(config.WithoutHanse, name) {
			clusters = append(clusters, *c)
		}
	}
	return clusters
}

// setPeers makes exactly the pairs of the configuration peers.
func setPeers(ctx context.Context, config Config) error {
	group, ending := errgroup.WithContext(ctx)
	for _, c := range withHanse(config) {
		group.Go(func() error { return c.endOtherPeerings(ending, config.Peers) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, pair := range config.Peers {
		if err := PeerBothWays(ctx, *config.Clusters[pair[0]], *config.Clusters[pair[1]]); err != nil {
			return err
		}
	}
	return nil
}

// stopAll stops Hanse's servers, all at once.
func stopAll(config Config) {
	var group errgroup.Group
	for _, c := range withHanse(config) {
		group.Go(func() error { c.StopHanse(); return nil })
	}
	_ = group.Wait() // no function returns an error
}
