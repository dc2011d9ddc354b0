// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// limits are settings of the kernel that the kubelets of several workers exceed, where each machine is meant to have
// one. Their usual values are from when memory was small.
var limits = map[string]int{
	"fs/inotify/max_user_instances": 8192,
	"fs/inotify/max_user_watches":   1 << 20,
}

// RaiseLimits raises the kernel's limits that are too low for several workers. They stay so: somebody else may rely on
// them by the time that the testbed goes.
func RaiseLimits() error {
	for name, least := range limits {
		path := filepath.Join("/proc/sys", name)
		text, err := os.ReadFile(path) //nolint:gosec // a file of the kernel
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if now, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && now >= least {
			continue
		}
		if err := os.WriteFile(path, []byte(strconv.Itoa(least)), 0o644); err != nil { //nolint:gosec // a file of the kernel
			return fmt.Errorf("raise %s to %d: %w", name, least, err)
		}
	}
	return nil
}
