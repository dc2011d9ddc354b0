// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// foreign matches what belongs to a testbed, with the number of its slot.
var foreign = regexp.MustCompile(`(?:hanse-testbed-|hanse_testbed_|hanse|\bh)(\d+)\b`)

// folders are where programs leave files. What is deeper than the second level belongs to some program of the machine.
var folders = []string{"/etc/cni", "/opt", "/run", "/run/netns", "/var/lib", "/var/lib/cni", "/var/log", "/var/log/pods", "/var/log/containers", "/usr/libexec"}

// look lists mounts, links, network namespaces, control groups, packet filter rules, and files.
func look(t *testing.T) []string {
	t.Helper()
	var lines []string
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		lines = append(lines, "mount "+fields[3]+" on "+fields[4])
	}
	links, err := os.ReadDir("/sys/class/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		lines = append(lines, "link "+link.Name())
	}
	for _, folder := range folders {
		entries, _ := os.ReadDir(folder)
		for _, entry := range entries {
			lines = append(lines, "file "+filepath.Join(folder, entry.Name()))
		}
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			lines = append(lines, "cgroup "+path)
		}
		return nil
	})
	rules, err := output(exec.CommandContext(t.Context(), "nft", "list", "tables"))
	if err != nil {
		t.Fatalf("list tables: %v: %s", err, rules)
	}
	for line := range strings.Lines(rules) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// leftovers are the traces that are there now and were not before, without those of other testbeds.
func leftovers(t *testing.T, before []string, slot string) []string {
	t.Helper()
	var left []string
	for _, line := range look(t) {
		if slices.Contains(before, line) {
			continue
		}
		if found := foreign.FindStringSubmatch(line); found != nil && found[1] != slot {
			continue
		}
		left = append(left, line)
	}
	return left
}

// spaces are the namespaces that processes of the testbed are in, its containers' too, without the machine's own.
func spaces(t *testing.T, b *bed) map[string]bool {
	t.Helper()
	slot := b.slot()
	ours := map[string]bool{}
	for _, pid := range pids(t) {
		cgroups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		environment, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if !bytes.Contains(cgroups, []byte("/hanse-testbed-"+slot+"/")) && !bytes.Contains(environment, []byte("HOME="+b.state)) {
			continue
		}
		for _, kind := range []string{"net", "mnt"} {
			space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
			if own, _ := os.Readlink("/proc/self/ns/" + kind); err == nil && space != own {
				ours[space] = true
			}
		}
	}
	return ours
}

// inhabitants are the processes in any of the namespaces, without those of other testbeds: a namespace is known by a number
// that, once it is gone, another may get.
func inhabitants(t *testing.T, spaces map[string]bool, slot string) []string {
	t.Helper()
	var found []string
	for _, pid := range pids(t) {
		cgroups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if owner := foreign.FindSubmatch(cgroups); owner != nil && string(owner[1]) != slot {
			continue
		}
		for _, kind := range []string{"net", "mnt"} {
			if space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind)); err == nil && spaces[space] {
				name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
				found = append(found, fmt.Sprintf("process %d %s", pid, bytes.TrimSpace(name)))
				break
			}
		}
	}
	return found
}

func pids(t *testing.T) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			found = append(found, pid)
		}
	}
	return found
}

// slot is the number of the testbed's slot, which its bridge is named by.
func (b *bed) slot() string {
	b.t.Helper()
	aliases, err := filepath.Glob("/sys/class/net/hanse*/ifalias")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, file := range aliases {
		if text, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(text)) == b.state {
			return strings.TrimPrefix(filepath.Base(filepath.Dir(file)), "hanse")
		}
	}
	b.t.Fatalf("no bridge is %s's", b.state)
	return ""
}

// downLeavesNothing ends all clusters, and compares the machine with what it was before the first of them.
func (b *bed) downLeavesNothing(before []string) {
	b.t.Helper()
	slot, ours := b.slot(), spaces(b.t, b)
	if len(ours) == 0 {
		b.t.Fatal("the testbed has no process to begin with")
	}
	b.run("down")
	if diff := cmp.Diff([]string(nil), leftovers(b.t, before, slot)); diff != "" {
		b.t.Errorf("left behind (-nothing +left):\n%s", diff)
	}
	if diff := cmp.Diff([]string(nil), inhabitants(b.t, ours, slot)); diff != "" {
		b.t.Errorf("still running (-nothing +left):\n%s", diff)
	}
	if _, err := os.Stat(b.state); !os.IsNotExist(err) {
		b.t.Errorf("the folder of state is left behind: %v", err)
	}
}
