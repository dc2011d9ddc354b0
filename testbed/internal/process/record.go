// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hanse-dev/hanse/testbed/internal/wait"
)

// Record is what is written down about a process.
type Record struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"startTime"`
	Boot      string `json:"boot"`
	Hash      string `json:"hash"` // of everything that it was started with
}

// Read reads a record. Without a file it is one of no process.
func Read(path string) (Record, error) {
	text, err := os.ReadFile(path) //nolint:gosec // a file of the testbed's own
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, nil
	}
	if err != nil {
		return Record{}, err
	}
	var record Record
	if err := json.Unmarshal(text, &record); err != nil {
		// Half a record was left by somebody who was killed; the process is found by its namespace.
		return Record{}, nil //nolint:nilerr // said above
	}
	return record, nil
}

func (r Record) write(path string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func recordOf(pid int, hash string) (Record, error) {
	boot, err := bootID()
	if err != nil {
		return Record{}, err
	}
	seen, err := readStat(pid)
	if err != nil {
		return Record{}, err
	}
	return Record{PID: pid, StartTime: seen.startTime, Boot: boot, Hash: hash}, nil
}

// Alive tells whether the process of the record still runs.
func (r Record) Alive() bool {
	if r.PID <= 0 {
		return false
	}
	now, err := recordOf(r.PID, r.Hash)
	if err != nil || now != r {
		return false
	}
	seen, err := readStat(r.PID)
	return err == nil && !seen.dead()
}

// Signal sends a signal to the process of the record, and to no other that has got its id since.
func (r Record) Signal(signal syscall.Signal) error {
	if r.PID <= 0 {
		return nil
	}
	process, err := os.FindProcess(r.PID) // it holds a handle, so a look after this is a look at the same process
	if err != nil {
		return fmt.Errorf("find process %d: %w", r.PID, err)
	}
	defer func() { _ = process.Release() }()
	if !r.Alive() {
		return nil
	}
	if err := process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to process %d: %w", signal, r.PID, err)
	}
	return nil
}

// End asks the process to end, waits, and kills it if it takes longer than the grace period.
func (r Record) End(ctx context.Context, grace time.Duration) error {
	if err := r.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	gentle, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if r.gone(gentle) == nil {
		return nil
	}
	return r.Kill(ctx)
}

// Kill kills the process and waits until it is gone.
func (r Record) Kill(ctx context.Context) error {
	if err := r.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	return r.gone(ctx)
}

func (r Record) gone(ctx context.Context) error {
	return wait.Until(ctx, pace, func() (bool, error) { return !r.Alive(), nil })
}

// How often to look whether a process is gone, and how long a killed one may take.
const (
	pace        = 20 * time.Millisecond
	killTimeout = 15 * time.Second
)
