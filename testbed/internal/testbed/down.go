// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/hanse-dev/hanse/testbed/internal/cluster"
	"github.com/hanse-dev/hanse/testbed/internal/network"
	"github.com/hanse-dev/hanse/testbed/internal/plan"
	"github.com/hanse-dev/hanse/testbed/internal/process"
	"github.com/hanse-dev/hanse/testbed/internal/worker"
)

// Down ends clusters, or all of them. With the last one goes everything that they shared, and whatever is left of any
// that nobody remembers.
func (t *Testbed) Down(ctx context.Context, names []string) error {
	if _, err := os.Stat(t.Dir); err == nil {
		if err := t.downClusters(ctx, names); err != nil {
			return err
		}
	}
	return t.downRest(ctx)
}

func (t *Testbed) downClusters(ctx context.Context, names []string) error {
	if err := t.validateDir(ctx); err != nil {
		return err
	}
	clusters, err := t.toEnd(names)
	if err != nil {
		return err
	}
	owns, err := t.ownsSlot(ctx)
	if err != nil {
		return err
	}
	tasks, ending := errgroup.WithContext(ctx)
	for _, one := range clusters {
		tasks.Go(func() error {
			return t.Act(ending, one.Name, func(c cluster.Cluster) error {
				if err := c.Down(ending, owns(c.Slot)); err != nil {
					return err
				}
				t.Say("%s: is gone", c.Name)
				return t.forgetCuts(ending, c.Name)
			})
		})
	}
	if err := tasks.Wait(); err != nil {
		return err
	}
	return t.forgetLinks(ctx)
}

// ownsSlot makes a function that tells whether a slot is the testbed's. After the machine was started anew, the slot that
// a cluster had may be another testbed's, whose namespaces have the same names.
func (t *Testbed) ownsSlot(ctx context.Context) (func(plan.Slot) bool, error) {
	if t.Rootless {
		return func(plan.Slot) bool { return false }, nil
	}
	own, ok, err := network.Find(ctx, t.Dir)
	return func(slot plan.Slot) bool { return ok && slot == own }, err
}

// toEnd finds the clusters to end. Those that do not exist are as they are wanted.
func (t *Testbed) toEnd(names []string) ([]cluster.Cluster, error) {
	if len(names) == 0 {
		return t.Named(nil)
	}
	var clusters []cluster.Cluster
	for _, name := range names {
		one, err := t.Cluster(name)
		if errors.Is(err, ErrNoCluster) {
			t.Say("%s: there is none", name)
			continue
		}
		if err != nil {
			return nil, err
		}
		clusters = append(clusters, one)
	}
	return clusters, nil
}

// forgetCuts removes the cuts of a cluster that is gone: another of the same name is not cut off.
func (t *Testbed) forgetCuts(ctx context.Context, name string) error {
	unlock, err := t.lockState(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	cuts, err := t.Cuts()
	if err != nil || len(cuts) == 0 {
		return err
	}
	return writeJSON(t.cutsFile(), slices.DeleteFunc(cuts, func(cut network.Cut) bool {
		return cut.From == name || cut.To == name
	}))
}

// downRest removes what the clusters shared, if there is none any more.
func (t *Testbed) downRest(ctx context.Context) error {
	unlock, err := t.lockState(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	left, err := t.Clusters()
	if err != nil || len(left) > 0 {
		return err
	}
	if !t.Rootless {
		if err := t.release(ctx); err != nil {
			return err
		}
	}
	return t.removeDir()
}

// release gives the slot back, after everything that is still in it.
func (t *Testbed) release(ctx context.Context) error {
	unlock, err := lock(ctx, machineLock)
	if err != nil {
		return err
	}
	defer unlock()
	slot, ok, err := network.Find(ctx, t.Dir)
	if err != nil || !ok {
		return err
	}
	return clearSlot(ctx, slot)
}

// clearSlot removes everything that has the slot's number.
func clearSlot(ctx context.Context, slot plan.Slot) error {
	paths, err := network.Paths(slot.NetnsPrefix())
	if err != nil {
		return err
	}
	cgroups, err := worker.CgroupDirs(slot.Cgroup())
	if err != nil {
		return err
	}
	if err := (process.Place{Netns: paths, Cgroups: cgroups}).Clear(ctx); err != nil {
		return err
	}
	if err := worker.RemoveAll(ctx, slot); err != nil {
		return err
	}
	return network.Release(ctx, slot)
}

// removeDir removes the folder of state, but not what is another testbed's in it.
func (t *Testbed) removeDir() error {
	entries, err := os.ReadDir(t.Dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() == "locks" || !t.owns(entry) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(t.Dir, entry.Name())); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(filepath.Join(t.Dir, "locks")); err != nil { // last: it says what the folder is
		return err
	}
	if err := os.Remove(t.Dir); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return err
	}
	return nil
}

// owns tells whether an entry of the folder of state is the testbed's. A folder with no cluster in it is that of one whose
// maker was killed before it could write that down.
func (t *Testbed) owns(entry fs.DirEntry) bool {
	switch entry.Name() {
	case "images", "cuts.json", "cuts.json.new":
		return true
	}
	return entry.IsDir() && plan.ValidateName(entry.Name()) == nil && !isTestbed(filepath.Join(t.Dir, entry.Name()))
}
