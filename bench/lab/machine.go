// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/prometheus/procfs"
)

// Machine describes this machine and how busy it is, in lines.
func Machine() ([]string, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	cpus, err := fs.CPUInfo()
	if err != nil {
		return nil, fmt.Errorf("read processors: %w", err)
	}
	memory, err := fs.Meminfo()
	if err != nil {
		return nil, fmt.Errorf("read memory: %w", err)
	}
	load, err := fs.LoadAvg()
	if err != nil {
		return nil, fmt.Errorf("read load: %w", err)
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return nil, fmt.Errorf("read version of the kernel: %w", err)
	}
	lines := []string{fmt.Sprintf("Linux %s, %s", strings.TrimSpace(string(kernel)), runtime.Version())}
	if len(cpus) > 0 {
		lines = append(lines, fmt.Sprintf("%d cores (%s)", len(cpus), cpus[0].ModelName))
	}
	if memory.MemTotal != nil {
		lines = append(lines, fmt.Sprintf("%d GiB of memory", *memory.MemTotal>>20))
	}
	return append(lines, fmt.Sprintf("Load of the machine before the start: %.1f over a minute, %.1f over five", load.Load1, load.Load5)), nil
}
