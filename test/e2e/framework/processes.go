// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// KillHanse kills the hanse process of that subcommand in the cluster at once, as a crash would.
func (c *Cluster) KillHanse(t *testing.T, subcommand string) {
	t.Helper()
	if err := syscall.Kill(c.HansePID(t, subcommand), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// HansePID finds the hanse process of that subcommand by the UID of its pod, which is in the names of its control groups.
func (c *Cluster) HansePID(t *testing.T, subcommand string) int {
	t.Helper()
	list := &corev1.PodList{}
	err := c.List(t.Context(), list, client.InNamespace(v1alpha1.SystemNamespace), client.MatchingLabels{"app.kubernetes.io/component": subcommand})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("pods of hanse %s in %s: %d, %v", subcommand, c.Name, len(list.Items), err)
	}
	pid, err := ProcessOfPod(list.Items[0].UID, "/hanse")
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// ProcessOfPod returns the id of the process of the pod that runs the executable.
func ProcessOfPod(pod types.UID, executable string) (int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		groups, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(groups), string(pod)) {
			continue // a process that has just ended, or another pod's
		}
		dir := filepath.Dir(file)
		command, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err == nil && strings.HasPrefix(string(command), executable+"\x00") {
			return strconv.Atoi(filepath.Base(dir))
		}
	}
	return 0, fmt.Errorf("no process %s in pod %s", executable, pod)
}
