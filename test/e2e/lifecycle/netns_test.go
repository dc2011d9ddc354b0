// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"

	"github.com/google/go-cmp/cmp"

	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// hasNodesAgain checks that the nodes are as they were.
func hasNodesAgain(ctx context.Context, c *framework.Cluster) error {
	before, err := remembered[map[string][]string](c, framework.RememberedNodes)
	if err != nil {
		return err
	}
	now, err := c.NodeStates(ctx)
	if err != nil {
		return err
	}
	if diff := cmp.Diff(before, now); diff != "" {
		return fmt.Errorf("(-before +now)\n%s", diff)
	}
	return nil
}
