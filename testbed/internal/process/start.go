// SPDX-License-Identifier: Apache-2.0

package process

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Spec is a process to start.
type Spec struct {
	Command []string
	Env     []string
	Log     string // a file that it adds its output to
	PIDFile string
	Hash    string
	Files   []*os.File // that it finds open, from 3
}

// Hash sums up anything that can be written as JSON.
func Hash(of any) (string, error) {
	text, err := json.Marshal(of)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}

// Start starts a process in a session of its own, so that it outlives this one, and writes its record.
func Start(spec Spec) (Record, error) {
	if err := os.MkdirAll(filepath.Dir(spec.Log), 0o750); err != nil {
		return Record{}, err
	}
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640) //nolint:gosec // logs are for the user's group too
	if err != nil {
		return Record{}, err
	}
	defer func() { _ = log.Close() }()
	command := exec.Command(spec.Command[0], spec.Command[1:]...) //nolint:gosec,noctx // it outlives every context of ours
	command.Env, command.Stdout, command.Stderr = spec.Env, log, log
	command.ExtraFiles = spec.Files
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return Record{}, fmt.Errorf("start %s: %w", spec.Command[0], err)
	}
	record, err := recordOf(command.Process.Pid, spec.Hash)
	if err != nil {
		return Record{}, fmt.Errorf("look at process %d: %w", command.Process.Pid, err)
	}
	if err := command.Process.Release(); err != nil {
		return Record{}, err
	}
	return record, record.write(spec.PIDFile)
}
