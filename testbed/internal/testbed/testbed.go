// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hanse-dev/hanse/testbed/internal/cluster"
	"github.com/hanse-dev/hanse/testbed/internal/network"
	"github.com/hanse-dev/hanse/testbed/internal/plan"
)

// machineLock is the folder that testbeds lock while they claim something of the machine. It always exists, so that no
// file has to be left behind.
const machineLock = "/run"

// Testbed is all clusters of one folder of state.
type Testbed struct {
	Dir      string // the folder of state, absolute
	Bin      string // the folder of binaries, absolute
	Source   string // the folder of the testbed's source, where other versions of Kubernetes are built
	Rootless bool
	Now      func() time.Time
	// Say tells the user about progress. It may be called by several goroutines at a time.
	Say func(format string, args ...any)
}

// ErrNoCluster is wrapped by the error for a cluster that does not exist.
var ErrNoCluster = errors.New("no such cluster")

func (t *Testbed) lockState(ctx context.Context) (func(), error) {
	return lock(ctx, filepath.Join(t.Dir, "locks", "state"))
}

func (t *Testbed) lockCluster(ctx context.Context, name string) (func(), error) {
	return lock(ctx, filepath.Join(t.Dir, "locks", "cluster-"+name))
}

// Clusters lists the clusters that exist, by name.
func (t *Testbed) Clusters() ([]*plan.Cluster, error) {
	files, err := filepath.Glob(filepath.Join(t.Dir, "*", "cluster.json"))
	if err != nil {
		return nil, err
	}
	var clusters []*plan.Cluster
	for _, file := range files {
		found, err := t.read(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		clusters = append(clusters, found)
	}
	return clusters, nil
}

// IsRootless tells whether the clusters that exist were made without root.
func (t *Testbed) IsRootless() (bool, error) {
	clusters, err := t.Clusters()
	return len(clusters) > 0 && clusters[0].Rootless, err
}

// Cluster finds one cluster that exists.
func (t *Testbed) Cluster(name string) (cluster.Cluster, error) {
	found, err := t.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return cluster.Cluster{}, fmt.Errorf("cluster %q: %w in %s", name, ErrNoCluster, t.Dir)
	}
	return t.actor(found), err
}

func (t *Testbed) actor(of *plan.Cluster) cluster.Cluster {
	return cluster.Cluster{Cluster: of, Now: t.Now, Say: t.Say}
}

func (t *Testbed) read(name string) (*plan.Cluster, error) {
	dir := filepath.Join(t.Dir, name)
	text, err := os.ReadFile(filepath.Join(dir, "cluster.json")) //nolint:gosec // a file of the testbed's own
	if err != nil {
		return nil, err
	}
	found := &plan.Cluster{}
	if err := json.Unmarshal(text, found); err != nil {
		return nil, fmt.Errorf("read cluster %s: %w", name, err)
	}
	found.Dir, found.Bin = dir, t.Bin
	return found, nil
}

func (t *Testbed) write(c *plan.Cluster) error {
	return writeJSON(filepath.Join(c.Dir, "cluster.json"), c)
}

func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // the folder of state holds logs for everyone
		return err
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Named finds the clusters of these names, or all without any.
func (t *Testbed) Named(names []string) ([]cluster.Cluster, error) {
	if len(names) == 0 {
		all, err := t.Clusters()
		if err != nil {
			return nil, err
		}
		for _, one := range all {
			names = append(names, one.Name)
		}
	}
	var found []cluster.Cluster
	for _, name := range names {
		one, err := t.Cluster(name)
		if err != nil {
			return nil, err
		}
		found = append(found, one)
	}
	return found, nil
}

// Act does something to one cluster while nobody else does.
func (t *Testbed) Act(ctx context.Context, name string, act func(cluster.Cluster) error) error {
	if _, err := t.Cluster(name); err != nil {
		return err
	}
	unlock, err := t.lockCluster(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	found, err := t.Cluster(name)
	if err != nil {
		return err
	}
	return act(found)
}

func (t *Testbed) cutsFile() string {
	return filepath.Join(t.Dir, "cuts.json")
}

// Cuts lists who is cut off from whom.
func (t *Testbed) Cuts() ([]network.Cut, error) {
	text, err := os.ReadFile(t.cutsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var cuts []network.Cut
	return cuts, json.Unmarshal(text, &cuts)
}

// Cut cuts two clusters off from each other; one way, what a opens no longer gets to b, and all else does.
func (t *Testbed) Cut(ctx context.Context, a, b string, oneWay bool) error {
	cuts := []network.Cut{{From: a, To: b, OneWay: oneWay}}
	if !oneWay {
		cuts = append(cuts, network.Cut{From: b, To: a})
	}
	return t.changeCuts(ctx, a, b, cuts)
}

// Heal ends every cut between two clusters.
func (t *Testbed) Heal(ctx context.Context, a, b string) error {
	return t.changeCuts(ctx, a, b, nil)
}

var (
	errRootless = errors.New("not without root: all clusters share the loopback interface")
	errSame     = errors.New("a cluster cannot be cut off from itself")
)

// changeCuts replaces the cuts between two clusters.
func (t *Testbed) changeCuts(ctx context.Context, a, b string, between []network.Cut) error {
	if t.Rootless {
		return errRootless
	}
	if a == b {
		return errSame
	}
	ends, err := t.Named([]string{a, b})
	if err != nil {
		return err
	}
	unlock, err := t.lockState(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	cuts, err := t.Cuts()
	if err != nil {
		return err
	}
	cuts = append(without(cuts, a, b), between...)
	if err := writeJSON(t.cutsFile(), cuts); err != nil {
		return err
	}
	subnets, err := t.subnets()
	if err != nil {
		return err
	}
	for _, end := range ends {
		if err := network.Filter(ctx, end.Cluster, cuts, subnets); err != nil {
			return err
		}
	}
	return nil
}

func without(cuts []network.Cut, a, b string) []network.Cut {
	return slices.DeleteFunc(cuts, func(cut network.Cut) bool {
		return (cut.From == a && cut.To == b) || (cut.From == b && cut.To == a)
	})
}

// Detour leads the connections that a opens to b's API server to another address, such as that of a relay that is slow.
// The zero address ends that. There is one detour at a time for a cluster, and it ends with the cluster.
func (t *Testbed) Detour(ctx context.Context, a, b string, to netip.AddrPort) error {
	if t.Rootless {
		return errRootless
	}
	if a == b {
		return errSame
	}
	ends, err := t.Named([]string{a, b})
	if err != nil {
		return err
	}
	return network.Detour(ctx, ends[0].Cluster, ends[1].APIServer(), to)
}

// Link makes the connection between the nodes of a cluster and those of a peer bad, or with an empty peer that with everybody
// for whom nothing else was said. An impairment that is zero ends that, with an empty peer for all links of the cluster.
func (t *Testbed) Link(ctx context.Context, name, peer string, how plan.Impairment) error {
	if t.Rootless {
		return errRootless
	}
	if name == peer {
		return errSame
	}
	link := plan.Link{Peer: peer, Impairment: how}
	if peer != "" {
		other, err := t.Cluster(peer)
		if err != nil {
			return err
		}
		link.Subnets = other.Subnets()
	}
	return t.changeLinks(ctx, name, func(links []plan.Link) []plan.Link {
		if peer == "" && how == (plan.Impairment{}) {
			return nil
		}
		return plan.WithLink(links, link)
	})
}

func (t *Testbed) changeLinks(ctx context.Context, name string, change func([]plan.Link) []plan.Link) error {
	return t.Act(ctx, name, func(cluster.Cluster) error {
		linked, err := t.writeLinks(ctx, name, change)
		if err != nil {
			return err
		}
		return linked.Connect(ctx)
	})
}

func (t *Testbed) writeLinks(ctx context.Context, name string, change func([]plan.Link) []plan.Link) (cluster.Cluster, error) {
	unlock, err := t.lockState(ctx)
	if err != nil {
		return cluster.Cluster{}, err
	}
	defer unlock()
	found, err := t.Cluster(name)
	if err != nil {
		return cluster.Cluster{}, err
	}
	found.Options.Links = change(found.Options.Links)
	return found, t.write(found.Cluster)
}

// forgetLinks ends the links of other clusters with those that are gone.
func (t *Testbed) forgetLinks(ctx context.Context) error {
	clusters, err := t.Clusters()
	if err != nil {
		return err
	}
	gone := func(link plan.Link) bool {
		return link.Peer != "" && !slices.ContainsFunc(clusters, func(c *plan.Cluster) bool { return c.Name == link.Peer })
	}
	for _, one := range clusters {
		if !slices.ContainsFunc(one.Options.Links, gone) {
			continue
		}
		err := t.changeLinks(ctx, one.Name, func(links []plan.Link) []plan.Link { return slices.DeleteFunc(links, gone) })
		if err != nil {
			return err
		}
	}
	return nil
}

// subnets tells where the nodes of each cluster have their addresses.
func (t *Testbed) subnets() (map[string][]netip.Prefix, error) {
	clusters, err := t.Clusters()
	if err != nil {
		return nil, err
	}
	subnets := map[string][]netip.Prefix{}
	for _, one := range clusters {
		subnets[one.Name] = one.Subnets()
	}
	return subnets, nil
}
