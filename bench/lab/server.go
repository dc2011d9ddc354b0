// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// graceful is how long a server may take to end.
const graceful = 15 * time.Second

// A Server is a process of Hanse that runs on this machine instead of in a pod.
type Server struct {
	Process
	Started time.Time // just before its process began

	metrics  string // the address of its metrics; empty if it has none
	cmd      *exec.Cmd
	stopping atomic.Bool // that it ends is wanted
	ended    chan struct{}
	clock    clock.Clock
}

// StartHanse starts `hanse <role>` for the cluster, with the rights of its own service account, and as the same pod again.
func (c *Cluster) StartHanse(ctx context.Context, fail context.CancelCauseFunc, role string, args ...string) (*Server, error) {
	kubeconfig, err := c.ServerKubeconfig(ctx, v1alpha1.SystemNamespace, role)
	if err != nil {
		return nil, err
	}
	metrics, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	args = append([]string{role, "--metrics-bind-address=" + metrics, "--health-probe-bind-address=0"}, args...)
	server, err := c.start(fail, "hanse-"+role, kubeconfig, c.program("hanse", args...))
	if err == nil {
		server.metrics = metrics
	}
	return server, err
}

// StartHanseIn starts `hanse <role>` in a space, with the rights of its service account in the namespace of the network, as a
// pod on a node.
func (c *Cluster) StartHanseIn(ctx context.Context, fail context.CancelCauseFunc, space *Space, node, role string) (*Server, error) {
	kubeconfig, err := c.ServerKubeconfig(ctx, v1alpha1.NetworkNamespace(v1alpha1.SystemNamespace), role)
	if err != nil {
		return nil, err
	}
	hanse := c.program("hanse", role, "--metrics-bind-address=0", "--health-probe-bind-address=0")
	cmd := space.command(hanse.Path, hanse.Args[1:]...)
	cmd.Env = []string{"NODE_NAME=" + node, "POD_IPS=" + space.Address.String()}
	return c.start(fail, "hanse-"+role+"-"+space.Name, kubeconfig, cmd)
}

// freeAddress returns an address of this machine that nobody listens at.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return listener.Addr().String(), listener.Close()
}

// StartProgram starts another program beside the cluster, under a name of its own.
func (c *Cluster) StartProgram(fail context.CancelCauseFunc, name, program string, args ...string) (*Server, error) {
	return c.start(fail, name, "", c.program("bench-"+program, args...))
}

// program is one of ours, which ends when it is told to.
func (c *Cluster) program(name string, args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(c.bed.Bin, name), args...) //nolint:gosec,noctx // see above
}

// start starts a program. When it ends by itself, fail is called. Its log is beside the cluster's own.
func (c *Cluster) start(fail context.CancelCauseFunc, name, kubeconfig string, cmd *exec.Cmd) (*Server, error) {
	logs, err := os.Create(filepath.Join(c.bed.State, c.Name, "logs", name+".log")) //nolint:gosec // our own folder
	if err != nil {
		return nil, fmt.Errorf("make log of %s: %w", name, err)
	}
	defer func() { _ = logs.Close() }() // the process has its own handle
	// No proxy of this machine's environment stands between clusters on this machine.
	cmd.Env = append([]string{"KUBECONFIG=" + kubeconfig, "HOME=" + c.bed.State, "POD_NAME=" + name}, cmd.Env...)
	cmd.Stdout, cmd.Stderr = logs, logs
	s := &Server{cmd: cmd, ended: make(chan struct{}), clock: clock.RealClock{}}
	s.Started = s.clock.Now()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s of %s: %w", name, c.Name, err)
	}
	s.Process = Process{Name: c.Name + " " + name, PID: cmd.Process.Pid}
	go s.await(fail, logs.Name())
	return s, nil
}

func (s *Server) await(fail context.CancelCauseFunc, log string) {
	_ = s.cmd.Wait() // how it ended is in its state
	if !s.stopping.Load() {
		fail(fmt.Errorf("%s ended: %s\n%s", s.Name, s.cmd.ProcessState, tail(log)))
	}
	close(s.ended)
}

// tail returns the end of a log: the log itself goes with its cluster.
func tail(path string) []byte {
	text, err := os.ReadFile(path) //nolint:gosec // our own file
	if err != nil {
		return []byte(err.Error())
	}
	return text[max(0, len(text)-4096):]
}

// Stop ends the server and waits until it is gone.
func (s *Server) Stop() {
	s.stopping.Store(true)
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may be gone already
	select {
	case <-s.ended:
	case <-s.clock.After(graceful):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}

// Kill ends the server as a fault does: it has no time to do anything.
func (s *Server) Kill() {
	s.stopping.Store(true)
	_ = s.cmd.Process.Kill() // it may be gone already
	<-s.ended
}

// StartManager starts `hanse manager`.
func (c *Cluster) StartManager(ctx context.Context, fail context.CancelCauseFunc, args ...string) (*Server, error) {
	return c.StartHanse(ctx, fail, "manager", append(args, "--cluster-id="+c.Name)...)
}

// StartKubelet starts `hanse kubelet`.
func (c *Cluster) StartKubelet(ctx context.Context, fail context.CancelCauseFunc) (*Server, error) {
	address, err := c.HostAddress(ctx)
	if err != nil {
		return nil, err
	}
	return c.StartHanse(ctx, fail, "kubelet", "--node-ip="+address)
}
