// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/hanse-dev/hanse/testbed/internal/wait"
)

// Place is where processes are found.
type Place struct {
	Netns   []string // paths of network namespaces
	Cgroups []string // folders of control groups; those below them count too
	PIDs    []Record
}

// Find lists the processes that are in the place, and their descendants.
func (p Place) Find() ([]int, error) {
	processes, err := all()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	found := map[int]bool{}
	for _, record := range p.PIDs {
		if record.Alive() {
			found[record.PID] = true
		}
	}
	if err := p.inNetns(processes, found); err != nil {
		return nil, err
	}
	for _, folder := range p.Cgroups {
		if err := inCgroup(folder, found); err != nil {
			return nil, err
		}
	}
	withDescendants(processes, found)
	delete(found, os.Getpid()) // never ourselves
	return slices.Sorted(maps.Keys(found)), nil
}

func (p Place) inNetns(processes map[int]stat, found map[int]bool) error {
	wanted := map[uint64]bool{} // inode of a namespace → ours
	for _, path := range p.Netns {
		inode, err := inodeOf(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		wanted[inode] = true
	}
	if len(wanted) == 0 {
		return nil
	}
	for pid := range processes {
		if inode, err := inodeOf(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && wanted[inode] {
			found[pid] = true
		}
	}
	return nil
}

func inodeOf(path string) (uint64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Sys().(*syscall.Stat_t).Ino, nil //nolint:forcetypeassert // always so on Linux
}

func inCgroup(folder string, found map[int]bool) error {
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || entry.IsDir() || entry.Name() != "cgroup.procs" {
			return err
		}
		file, err := os.Open(path) //nolint:gosec // a file of the kernel
		if err != nil {
			return nil // the group is gone, and so are its processes
		}
		defer func() { _ = file.Close() }()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			if pid, err := strconv.Atoi(strings.TrimSpace(lines.Text())); err == nil && pid > 0 {
				found[pid] = true
			}
		}
		return nil
	})
}

func withDescendants(processes map[int]stat, found map[int]bool) {
	for grown := true; grown; {
		grown = false
		for pid, seen := range processes {
			if !found[pid] && found[seen.parent] {
				found[pid], grown = true, true
			}
		}
	}
}

// Clear kills every process in the place, again and again until there is none.
func (p Place) Clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	var left []int
	err := wait.Until(ctx, pace, func() (bool, error) {
		var err error
		if left, err = p.Find(); err != nil || len(left) == 0 {
			return err == nil, err
		}
		for _, pid := range left {
			if err := kill(pid); err != nil {
				return false, err
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("kill processes %v: %w", left, err)
	}
	return nil
}

// kill kills a process that may be gone already.
func kill(pid int) error {
	process, err := os.FindProcess(pid)
	if err != nil {
		return nil // gone already
	}
	defer func() { _ = process.Release() }()
	if err := process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
