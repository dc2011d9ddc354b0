// SPDX-License-Identifier: Apache-2.0

package offers

import (
	"syscall"
	"testing"

	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// freeze stops the hanse process of that subcommand, which says and does nothing until it is thawed, at the story's end at
// the latest.
func freeze(t *testing.T, c *framework.Cluster, subcommand string) (thaw func()) {
	t.Helper()
	pid := c.HansePID(t, subcommand)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	thaw = func() { _ = syscall.Kill(pid, syscall.SIGCONT) } // Kubernetes may have started another
	t.Cleanup(thaw)
	return thaw
}
