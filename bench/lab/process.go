// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"time"

	"github.com/prometheus/procfs"
)

// A Process is a running process that is measured.
type Process struct {
	Name string
	PID  int
}

// Usage is what a process has taken.
type Usage struct {
	CPU      time.Duration // since its start
	Resident int           // bytes now
	Own      int           // those of them that are no part of a file, such as of its program
	Peak     int           // the most bytes so far
}

// Usage reads what the process has taken until now.
func (p Process) Usage() (Usage, error) {
	proc, err := procfs.NewProc(p.PID)
	if err != nil {
		return Usage{}, fmt.Errorf("read usage of %s: %w", p.Name, err)
	}
	stat, err := proc.Stat()
	if err != nil {
		return Usage{}, fmt.Errorf("read usage of %s: %w", p.Name, err)
	}
	status, err := proc.NewStatus()
	if err != nil {
		return Usage{}, fmt.Errorf("read usage of %s: %w", p.Name, err)
	}
	return Usage{
		CPU:      time.Duration(stat.CPUTime() * float64(time.Second)),
		Resident: stat.ResidentMemory(),
		Own:      int(status.RssAnon), //nolint:gosec // bytes of memory fit
		Peak:     int(status.VmHWM),   //nolint:gosec // bytes of memory fit
	}, nil
}

// A Meter reads the processor time of groups of processes, and that of the whole machine.
type Meter struct {
	groups map[string][]Process // name of the group → its processes
}

// Others is the group of a Reading for all that was not measured.
const Others = "others"

// Reading is processor time by group, Others among them.
type Reading map[string]time.Duration

// NewMeter makes a meter. This process is always measured, as group bench.
func NewMeter(groups map[string][]Process) Meter {
	all := map[string][]Process{"bench": {{Name: "bench", PID: os.Getpid()}}}
	for name, group := range groups {
		all[name] = group
	}
	return Meter{groups: all}
}

// Read reads the processor time used until now.
func (m Meter) Read() (Reading, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	machine, err := fs.Stat()
	if err != nil {
		return nil, fmt.Errorf("read processor time of the machine: %w", err)
	}
	t := machine.CPUTotal
	busy := time.Duration((t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ) * float64(time.Second))
	reading := Reading{}
	for name, group := range m.groups {
		for _, process := range group {
			usage, err := process.Usage()
			if err != nil {
				return nil, err
			}
			reading[name] += usage.CPU
			busy -= usage.CPU
		}
	}
	reading[Others] = busy
	return reading, nil
}

// Since returns what was used since an earlier reading of the same meter.
func (r Reading) Since(earlier Reading) Reading {
	used := Reading{}
	for name, cpu := range r {
		used[name] = max(0, cpu-earlier[name])
	}
	return used
}
