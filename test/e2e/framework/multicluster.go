// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// installMulticluster installs the definitions of multi-cluster Services and of ClusterProfiles, from the modules that have them.
func installMulticluster(ctx context.Context, clusters ...*Cluster) error {
	var files []string
	for module, folder := range map[string]string{"sigs.k8s.io/mcs-api": "config/crd", "sigs.k8s.io/cluster-inventory-api": "config/crd/bases"} {
		list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
		list.Dir = Root
		out, err := list.Output()
		if err != nil {
			return fmt.Errorf("find module %s: %w", module, err)
		}
		found, err := filepath.Glob(filepath.Join(Trim(out), folder, "*_[sc]*.yaml"))
		if err != nil || len(found) == 0 {
			return fmt.Errorf("module %s has no definitions: %w", module, os.ErrNotExist)
		}
		for _, file := range found {
			files = append(files, "-f", file)
		}
	}
	for _, c := range clusters {
		if _, err := c.Kubectl(ctx, append([]string{"apply", "--server-side"}, files...)...); err != nil {
			return err
		}
	}
	return nil
}
