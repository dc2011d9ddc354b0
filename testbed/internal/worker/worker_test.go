// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseHierarchies(t *testing.T) {
	for _, test := range []struct {
		name, mountinfo string
		want            []string
	}{
		{
			"v1: one for each controller", `
30 29 0:26 / /sys/fs/cgroup rw - tmpfs x rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu rw,relatime shared:4 - cgroup x rw,cpu
32 30 0:28 / /sys/fs/cgroup/memory rw,relatime - cgroup x rw,memory
33 30 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 x rw`,
			[]string{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"},
		},
		{"v2: one for all", "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 x rw,nsdelegate", []string{"/sys/fs/cgroup"}},
		{"mounted twice", "1 0 0:1 / /c rw - cgroup2 x rw\n2 0 0:1 / /c rw - cgroup2 x rw", []string{"/c"}},
		{"none", "24 1 254:0 / / rw - ext4 /dev/vda rw", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := parseHierarchies(bufio.NewScanner(strings.NewReader(test.mountinfo)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestFoldersThatAWorkerCannotSee(t *testing.T) {
	for dir, want := range map[string]bool{
		"/home/a/.testbed": true, "/tmp/x": true, "/running/x": true, "/var/library": true,
		"/run": false, "/run/x": false, "/var/lib/x": false, "/var/log/x/y": false, "/var/run/x": false,
	} {
		if err := ValidateDir(dir); (err == nil) != want {
			t.Errorf("ValidateDir(%q) = %v, want valid: %v", dir, err, want)
		}
	}
}

// TestNewCpusetHasWhatItsParentHas stands in for a v1 hierarchy, where the kernel makes the files, empty, with the folder.
func TestNewCpusetHasWhatItsParentHas(t *testing.T) {
	root := t.TempDir()
	child := filepath.Join(root, "child")
	if err := os.Mkdir(child, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		filepath.Join(root, "cpuset.cpus"): "0-1\n", filepath.Join(root, "cpuset.mems"): "0\n",
		filepath.Join(child, "cpuset.cpus"): "\n", filepath.Join(child, "cpuset.mems"): "3\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := ensureCgroup(root, "child"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"cpuset.cpus": "0-1", "cpuset.mems": "3"} {
		if got, err := os.ReadFile(filepath.Join(child, name)); err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
		}
	}
}

func TestPodsWeighMoreThanOneProcess(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]string{"cpu.shares": "16384", "cpu.weight": "1600"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := weigh(dir); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
		}
	}
}

func TestTreeIsRemovedFromItsLeaves(t *testing.T) {
	top := filepath.Join(t.TempDir(), "top")
	if err := os.MkdirAll(filepath.Join(top, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is nothing, and that is fine
		if err := removeTree(top); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(top); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}
