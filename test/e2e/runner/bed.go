// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/hanse-dev/hanse/test/e2e/framework"
	"github.com/hanse-dev/hanse/test/harness"
)

// A bed is a running set of clusters of one shape.
type bed struct {
	name    string // such as "pair", or "pair-2" for the second one
	shape   framework.Shape
	extras  []framework.Extra
	state   string // the testbed's folder
	ready   bool
	ending  bool
	running int  // how many stories run on it
	alone   bool // a story runs that needs the clusters alone
}

// size returns how many clusters the bed has.
func (b *bed) size() int { return len(b.shape.Names(b.extras)) }

// fits reports whether the bed has what the story needs.
func (b *bed) fits(s story) bool {
	return s.needs.Shape() == b.shape &&
		!slices.ContainsFunc(s.needs.With, func(extra framework.Extra) bool { return !slices.Contains(b.extras, extra) })
}

// bedCommand is the first argument of this program when it starts the clusters of one shape, in a process of its own: the framework knows
// one set of clusters for each process.
const bedCommand = "start-bed"

// bedRequest is the second argument, as JSON.
type bedRequest struct {
	Shape      framework.Shape
	Extras     []framework.Extra
	Kubernetes string
}

// fewCollections has the servers of the clusters, which inherit it, collect garbage a quarter as often as by default. With nine clusters,
// processor time is scarcer than memory.
const fewCollections = "GOGC=400"

func runBedCommand(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("start-bed is for this program itself: use -run")
	}
	var request bedRequest
	if err := json.Unmarshal([]byte(args[0]), &request); err != nil {
		return err
	}
	return framework.StartBed(ctx, request.Shape, request.Extras, request.Kubernetes)
}

// start starts the clusters of the bed and installs Hanse. The output goes to the log.
func (b *bed) start(ctx context.Context, kubernetes string, log io.Writer) error {
	request := bedRequest{Shape: b.shape, Extras: b.extras}
	if b.shape.String() == "pair" {
		request.Kubernetes = kubernetes
	}
	data, err := json.Marshal(request)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.state+"-memory", 0o700); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, program, bedCommand, string(data))
	command.Env = append(os.Environ(), "HANSE_TESTBED_STATE="+b.state, fewCollections)
	command.Stdout, command.Stderr = log, log
	inOwnGroup(command)
	if err := command.Run(); err != nil {
		return fmt.Errorf("start the clusters of %s: %w", b.name, err)
	}
	return nil
}

// end ends the clusters of the bed. It works without a context: clusters must not stay when the program was interrupted.
func (b *bed) end() error {
	out, err := exec.Command(filepath.Join(harness.Root, "bin", "testbed"), "--state", b.state, "down").CombinedOutput() //nolint:noctx // see above
	if err != nil {
		return fmt.Errorf("end the clusters of %s: %w\n%s", b.name, err, out)
	}
	return os.RemoveAll(b.state + "-memory")
}

// graceful is how long a process has to end after SIGTERM.
const graceful = 30 * time.Second

// inOwnGroup has the command and its children form a process group, which gets SIGTERM when the context ends: an interrupt of a
// terminal does not reach it directly, so that a story can clean up.
func inOwnGroup(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = graceful
}
