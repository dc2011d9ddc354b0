// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// waitDelay is how long a cancelled command has to end by itself.
const waitDelay = 2 * time.Second

// Output runs a command and returns what it printed. An error carries what the command said about it.
func Output(ctx context.Context, name string, args ...string) ([]byte, error) {
	return WithInput(ctx, nil, name, args...)
}

// Quietly runs a command whose output is of interest only if it fails.
func Quietly(ctx context.Context, name string, args ...string) error {
	_, err := Output(ctx, name, args...)
	return err
}

// WithInput runs a command that reads input.
func WithInput(ctx context.Context, input io.Reader, name string, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, name, args...) //nolint:gosec // running commands is what this package is for
	command.Stdin, command.Stdout, command.Stderr = input, &stdout, &stderr
	command.WaitDelay = waitDelay
	if err := command.Run(); err != nil {
		said := strings.TrimSpace(stderr.String())
		if said == "" {
			said = strings.TrimSpace(stdout.String())
		}
		return nil, fmt.Errorf("run %s: %w: %s", strings.Join(append([]string{name}, args...), " "), err, said)
	}
	return stdout.Bytes(), nil
}
