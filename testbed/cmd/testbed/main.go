// SPDX-License-Identifier: Apache-2.0

// Command testbed runs real Kubernetes clusters, several of them, on one machine and without a container engine.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/hanse-dev/hanse/testbed/internal/testbed"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// app is what the commands share. It is filled in once the flags are read.
type app struct {
	testbed *testbed.Testbed
	state   string
}

func root() *cobra.Command {
	a := &app{}
	command := &cobra.Command{
		Use:   "testbed",
		Short: "Real Kubernetes clusters, several of them, on one machine and without a container engine",
		Long: `Real Kubernetes clusters, several of them, on one machine and without a container engine.

Each cluster has its own etcd, API server, controller manager, scheduler and DNS, and workers with a real kubelet,
containerd and kube-proxy, each in a network namespace of its own. All clusters are on one bridge, which plays the
Internet, and all use the same pod and service CIDRs, as real ones do.`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return a.open() },
	}
	command.PersistentFlags().StringVar(&a.state, "state", "",
		"the folder of state (default: .testbed beside the folder of this program)")
	command.AddCommand(
		a.up(), a.down(), a.status(), a.kubeconfig(), a.load(), a.cut(), a.heal(), a.detour(), a.link(), relayCommand(),
		a.component("start", "Start a component that does not run"),
		a.component("stop", "Ask a component to end, and wait until it has"),
		a.component("kill", "Kill a component, as kill -9 does"),
	)
	return command
}

// open finds the folders that everything is in.
func (a *app) open() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if program, err = filepath.EvalSymlinks(program); err != nil {
		return err
	}
	bin := filepath.Dir(program)
	if a.state == "" {
		a.state = filepath.Join(filepath.Dir(bin), ".testbed")
	}
	if a.state, err = filepath.Abs(a.state); err != nil {
		return err
	}
	a.testbed = &testbed.Testbed{
		Dir: a.state, Bin: bin, Source: filepath.Join(filepath.Dir(bin), "testbed"),
		Rootless: os.Geteuid() != 0, Now: time.Now, Say: progress(time.Now()),
	}
	rootless, err := a.testbed.IsRootless()
	a.testbed.Rootless = a.testbed.Rootless || rootless
	return err
}

// progress prints lines with the time since the start.
func progress(start time.Time) func(string, ...any) {
	var mutex sync.Mutex
	return func(format string, args ...any) {
		mutex.Lock()
		defer mutex.Unlock()
		fmt.Fprintf(os.Stderr, "%5.1fs  %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
}
