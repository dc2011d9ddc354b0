// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// stat is what /proc tells of a process.
type stat struct {
	state     byte
	parent    int
	threads   int
	startTime uint64 // in clock ticks since the machine started
}

// Positions in /proc/PID/stat, counted after the name of the program, which may hold spaces and parentheses.
const (
	fieldState     = 0
	fieldParent    = 1
	fieldThreads   = 17
	fieldStartTime = 19
)

var errMalformed = errors.New("malformed")

func parseStat(text []byte) (stat, error) {
	end := bytes.LastIndexByte(text, ')')
	if end < 0 {
		return stat{}, errMalformed
	}
	fields := strings.Fields(string(text[end+1:]))
	if len(fields) <= fieldStartTime {
		return stat{}, errMalformed
	}
	parent, err := strconv.Atoi(fields[fieldParent])
	if err != nil {
		return stat{}, fmt.Errorf("parent: %w", err)
	}
	threads, err := strconv.Atoi(fields[fieldThreads])
	if err != nil {
		return stat{}, fmt.Errorf("threads: %w", err)
	}
	start, err := strconv.ParseUint(fields[fieldStartTime], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("start time: %w", err)
	}
	return stat{state: fields[fieldState][0], parent: parent, threads: threads, startTime: start}, nil
}

func readStat(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	return parseStat(text)
}

// dead tells whether nothing of the process runs any more. The first thread of one that was killed may end before the others,
// which still hold its ports and files.
func (s stat) dead() bool {
	return s.state == 'X' || s.state == 'Z' && s.threads <= 1
}

// all lists the processes of the machine. One that ends meanwhile is left out.
func all() (map[int]stat, error) {
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	processes := map[int]stat{}
	for _, folder := range folders {
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			continue
		}
		if seen, err := readStat(pid); err == nil && !seen.dead() {
			processes[pid] = seen
		}
	}
	return processes, nil
}

func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text)), err
}
