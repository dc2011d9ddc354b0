// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/harness"
)

// StopAPIServer stops the API server of the cluster, until the end of the test at the latest.
func (c *Cluster) StopAPIServer(t T) {
	t.Helper()
	if _, err := harness.Testbed(t.Context(), "stop", c.Name, "apiserver"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.StartAPIServer(t) })
}

// StartAPIServer starts the API server of the cluster unless it runs, and waits until it answers. It may run after the test.
func (c *Cluster) StartAPIServer(t T) {
	t.Helper()
	if _, err := harness.Testbed(context.WithoutCancel(t.Context()), "start", c.Name, "apiserver"); err != nil {
		t.Fatal(err)
	}
	EventuallyAfter(t, c.Name+" answers", func(ctx context.Context) error { return c.List(ctx, &v1alpha1.PeerList{}) })
}
