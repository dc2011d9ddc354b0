// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/hanse-dev/hanse/testbed/internal/cluster"
	"github.com/hanse-dev/hanse/testbed/internal/image"
	"github.com/hanse-dev/hanse/testbed/internal/network"
	"github.com/hanse-dev/hanse/testbed/internal/packages"
	"github.com/hanse-dev/hanse/testbed/internal/plan"
	"github.com/hanse-dev/hanse/testbed/internal/run"
	"github.com/hanse-dev/hanse/testbed/internal/worker"
)

// Up brings clusters up. Change turns the options that a cluster has, or the default ones for a new cluster, into those
// that it is to have.
func (t *Testbed) Up(ctx context.Context, names []string, change func(*plan.Options)) error {
	for _, name := range names {
		if err := plan.ValidateName(name); err != nil {
			return err
		}
	}
	if err := t.validateDir(ctx); err != nil {
		return err
	}
	clusters, err := t.settle(ctx, names, change)
	if err != nil {
		return err
	}
	if err := t.equip(ctx, clusters); err != nil {
		return err
	}
	around, err := t.surroundings()
	if err != nil {
		return err
	}
	tasks, ctx := errgroup.WithContext(ctx)
	for _, one := range clusters {
		tasks.Go(func() error {
			return t.Act(ctx, one.Name, func(c cluster.Cluster) error { return c.Up(ctx, around) })
		})
	}
	return tasks.Wait()
}

// validateDir refuses a folder that holds anything of somebody else's, because going down removes things in it.
// What is left of a testbed's after somebody removed most of it is known by the bridge.
func (t *Testbed) validateDir(ctx context.Context) error {
	if !t.Rootless {
		if err := worker.ValidateDir(t.Dir); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(t.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(entries, func(entry fs.DirEntry) bool {
		return isTestbed(filepath.Join(t.Dir, entry.Name()))
	})
	if len(others) == 0 || isTestbed(t.Dir) {
		return nil
	}
	if !t.Rootless {
		if _, ok, err := network.Find(ctx, t.Dir); ok || err != nil {
			return err
		}
	}
	return fmt.Errorf("folder of state %s: it holds something else than a testbed", t.Dir)
}

// isTestbed tells whether a folder is one of state. Such folders may be in each other: then they are different testbeds.
func isTestbed(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "locks"))
	return err == nil
}

// settle decides what each cluster is to be, and writes it down.
func (t *Testbed) settle(ctx context.Context, names []string, change func(*plan.Options)) ([]*plan.Cluster, error) {
	unlock, err := t.lockState(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	existing, err := t.Clusters()
	if err != nil {
		return nil, err
	}
	clusters, err := t.planned(names, existing, change)
	if err != nil {
		if len(existing) == 0 {
			err = errors.Join(err, t.removeDir()) // nothing has come of it
		}
		return nil, err
	}
	slot, err := t.claim(ctx, existing)
	if err != nil {
		return nil, err
	}
	for _, one := range clusters {
		one.Slot = slot
		if err := t.write(one); err != nil {
			return nil, err
		}
	}
	return clusters, nil
}

var errMoved = errors.New("the addresses of the clusters are used by others now: take all clusters down first")

// claim gets the testbed its slot, after the programs that this takes. Clusters that exist keep the one they have, also
// after the machine was started anew.
func (t *Testbed) claim(ctx context.Context, existing []*plan.Cluster) (plan.Slot, error) {
	if t.Rootless {
		t.Say("without root: control planes and simulated nodes only, on the loopback interface")
		return 0, nil
	}
	unlock, err := lock(ctx, machineLock)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if err := packages.Ensure(ctx, t.Say); err != nil {
		return 0, err
	}
	if err := worker.RaiseLimits(); err != nil {
		return 0, err
	}
	if len(existing) > 0 {
		slot, err := network.Claim(ctx, t.Dir, existing[0].Slot)
		if err == nil && slot != existing[0].Slot {
			err = errMoved
		}
		return slot, err
	}
	slot, err := network.Claim(ctx, t.Dir, 0)
	if err != nil {
		return 0, err
	}
	// There are no clusters, so what is in the slot was left by some whose folder is gone.
	if err := clearSlot(ctx, slot); err != nil {
		return 0, err
	}
	return network.Claim(ctx, t.Dir, slot)
}

// equip makes the binaries and images that the clusters need and that do not exist yet.
func (t *Testbed) equip(ctx context.Context, clusters []*plan.Cluster) error {
	unlock, err := t.lockState(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for _, one := range clusters {
		needs := []string{one.Kubernetes()}
		if one.Options.SimulatedNodes > 0 {
			needs = append(needs, filepath.Join(t.Bin, "kwok"))
		}
		if !t.Rootless {
			needs = append(needs, filepath.Join(t.Bin, "coredns"))
		}
		if one.HasMetrics() {
			needs = append(needs, filepath.Join(t.Bin, "metrics-server"))
		}
		if one.HasStorage() {
			needs = append(needs, filepath.Join(t.Bin, "provisioner"))
		}
		if one.HasSnapshots() {
			needs = append(needs, one.SnapshotController())
		}
		if one.HasIngress() {
			needs = append(needs, one.Traefik())
		}
		for _, binary := range needs {
			if err := t.build(ctx, binary); err != nil {
				return err
			}
		}
	}
	if t.Rootless {
		return nil
	}
	return t.makeBusybox(ctx)
}

// build builds a binary that does not exist. That takes minutes for another version of Kubernetes, once.
func (t *Testbed) build(ctx context.Context, binary string) error {
	if _, err := os.Stat(binary); err == nil {
		return nil
	}
	t.Say("building %s, which takes minutes the first time", filepath.Base(binary))
	return run.Quietly(ctx, "make", "-C", t.Source, "BIN="+t.Bin, binary)
}

func (t *Testbed) busybox() string {
	return filepath.Join(t.Dir, "images", "busybox.tar")
}

func (t *Testbed) makeBusybox(ctx context.Context) error {
	if _, err := os.Stat(t.busybox()); err == nil {
		return nil
	}
	binary, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	spec, err := image.Busybox(ctx, binary)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(t.busybox()), 0o755); err != nil { //nolint:gosec // images are for everyone
		return err
	}
	return image.Write(spec, t.busybox())
}

func (t *Testbed) surroundings() (cluster.Surroundings, error) {
	cuts, err := t.Cuts()
	if err != nil {
		return cluster.Surroundings{}, err
	}
	subnets, err := t.subnets()
	return cluster.Surroundings{
		Cuts: cuts, Subnets: subnets,
		Images: []string{
			filepath.Join(t.Bin, "images", "pause.tar"), filepath.Join(t.Bin, "images", "echo.tar"), t.busybox(),
		},
	}, err
}
