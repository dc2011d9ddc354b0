// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"testing"

	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// logSays waits until the pod has written what it should, and nothing else. A container runs before it writes.
func logSays(t *testing.T, c *framework.Cluster, ns, pod, want string) {
	t.Helper()
	framework.Eventually(t, "the log of "+pod+" says what it should", func(ctx context.Context) error {
		out, err := c.Kubectl(ctx, "logs", "-n", ns, pod)
		if err == nil && out != want {
			err = fmt.Errorf("it says %q, want %q", out, want)
		}
		return err
	})
}
