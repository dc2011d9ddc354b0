// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
	"github.com/hanse-dev/hanse/testbed/internal/wait"
)

// hierarchies lists where control groups are mounted: once for each controller with cgroup v1, in one place with v2.
func hierarchies() ([]string, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return parseHierarchies(bufio.NewScanner(file))
}

func parseHierarchies(mountinfo *bufio.Scanner) ([]string, error) {
	var found []string
	for mountinfo.Scan() {
		before, after, ok := strings.Cut(mountinfo.Text(), " - ")
		if fields := strings.Fields(before); ok && len(fields) > mountPoint && strings.HasPrefix(after, "cgroup") {
			found = append(found, fields[mountPoint])
		}
	}
	slices.Sort(found)
	return slices.Compact(found), mountinfo.Err()
}

// CgroupDirs lists the folders of a control group in all hierarchies.
func CgroupDirs(group string) ([]string, error) {
	roots, err := hierarchies()
	for i, root := range roots {
		roots[i] = filepath.Join(root, group)
	}
	return roots, err
}

// weight is how many processes outside all groups the pods of a testbed count for together when processors are busy. By default
// it would be one, beside dozens: of etcd, API servers and kubelets. Then the parts of Hanse in pods would starve first.
const weight = 16

func ensureCgroups(node plan.Node) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		for _, group := range []string{node.Cluster.Slot.Cgroup(), node.Cgroup()} {
			if err := ensureCgroup(root, group); err != nil {
				return fmt.Errorf("control group %s in %s: %w", group, root, err)
			}
		}
		if err := weigh(filepath.Join(root, node.Cluster.Slot.Cgroup())); err != nil {
			return err
		}
	}
	return nil
}

// weigh gives a group its weight, in the one hierarchy that has processors. The files are those of v1 and v2, in the unit of each for
// one process.
func weigh(dir string) error {
	for name, one := range map[string]int{"cpu.shares": 1024, "cpu.weight": 100} {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); err != nil {
			if err := ignoreMissing(err); err != nil {
				return err
			}
			continue
		}
		if err := os.WriteFile(file, []byte(strconv.Itoa(weight*one)), 0o644); err != nil { //nolint:gosec // as the kernel makes them
			return err
		}
	}
	return nil
}

// ensureCgroup makes one control group. In a v1 hierarchy of cpusets a new group has neither processors nor memory, and
// nothing can run in it; in a v2 hierarchy a parent hands its controllers on only when told.
func ensureCgroup(root, group string) error {
	dir := filepath.Join(root, group)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as the kernel makes them
		return err
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		if err := inherit(filepath.Join(filepath.Dir(dir), name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return handOn(filepath.Dir(dir))
}

func inherit(from, to string) error {
	if now, err := os.ReadFile(to); err != nil || strings.TrimSpace(string(now)) != "" { //nolint:gosec // a file of the kernel
		return ignoreMissing(err)
	}
	value, err := os.ReadFile(from) //nolint:gosec // a file of the kernel
	if err != nil || strings.TrimSpace(string(value)) == "" {
		return ignoreMissing(err)
	}
	return os.WriteFile(to, value, 0o644) //nolint:gosec // as the kernel makes them
}

func handOn(dir string) error {
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers")) //nolint:gosec // a file of the kernel
	if err != nil {
		return ignoreMissing(err)
	}
	for _, controller := range strings.Fields(string(controllers)) {
		// Some controllers cannot be handed on everywhere; the kubelet says so if it needs one that is missing.
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644) //nolint:gosec // as the kernel makes them
	}
	return nil
}

// How often to try to remove a control group, and for how long: one whose last process was killed is busy for a moment.
const (
	pace        = 20 * time.Millisecond
	waitTimeout = 10 * time.Second
)

// removeCgroups removes a group and all below it.
func removeCgroups(ctx context.Context, group string) error {
	dirs, err := CgroupDirs(group)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	return wait.Success(ctx, pace, func(context.Context) error {
		var errs []error
		for _, dir := range dirs {
			errs = append(errs, removeTree(dir))
		}
		return errors.Join(errs...)
	})
}

// removeTree removes folders, the deepest first. The files of a control group go with its folder.
func removeTree(top string) error {
	var folders []string
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			folders = append(folders, path)
		}
		return ignoreMissing(err)
	})
	errs := []error{err}
	for _, folder := range slices.Backward(folders) {
		errs = append(errs, ignoreMissing(os.Remove(folder)))
	}
	return errors.Join(errs...)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
