// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
	"github.com/hanse-dev/hanse/testbed/internal/run"
)

// Load puts the images of an archive into the worker's container runtime. The runtime reads them from us, because it may
// not see the archive's folder.
func Load(ctx context.Context, node plan.Node, path string) error {
	archive, err := os.Open(path) //nolint:gosec // the file that the user named
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }()
	args := append(enter(node), "ctr", "--namespace=k8s.io", "images", "import", "-")
	if _, err := run.WithInput(ctx, archive, "nsenter", args...); err != nil {
		return fmt.Errorf("load %s into %s: %w", filepath.Base(path), node.Name(), err)
	}
	return nil
}

// RuntimeReady tells whether the worker's container runtime answers.
func RuntimeReady(ctx context.Context, node plan.Node) error {
	return run.Quietly(ctx, "nsenter", append(enter(node), "ctr", "--connect-timeout=1s", "version")...)
}

func enter(node plan.Node) []string {
	return []string{"--net=" + node.NetnsPath(), "--mount=" + node.MountnsPath(), "--"}
}
