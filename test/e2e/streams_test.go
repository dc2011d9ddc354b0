package e2e

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestLogsAndExec(t *testing.T) {
	shared(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	lubeck.create(t, shellPod(ns, "talker",
		"trap 'exit 0' TERM; n=0; while true; do n=$((n+1)); echo line $n of $HOSTNAME; sleep 1 & wait $!; done"))
	home := lubeck.awaitReadyPods(t, ns, "talker", 1)[0]
	expectSamePod(t, &home, hamburg.mustRemotePod(t, &home))

	t.Run("logs so far", func(t *testing.T) {
		out, err := lubeck.Kubectl(t.Context(), "logs", "-n", ns, "talker")
		if err != nil || !strings.HasPrefix(out, "line 1 of talker\n") {
			t.Errorf("logs: %q, %v", out, err)
		}
	})
	t.Run("logs of the last line", func(t *testing.T) {
		out, err := lubeck.Kubectl(t.Context(), "logs", "-n", ns, "talker", "--tail=1")
		if err != nil || strings.Count(out, "\n") != 1 {
			t.Errorf("logs: %q, %v", out, err)
		}
	})
	t.Run("logs that go on", func(t *testing.T) { followLogs(t, ns) })
	t.Run("exec", func(t *testing.T) {
		out, err := lubeck.Kubectl(t.Context(), "exec", "-n", ns, "talker", "--", "/bin/sh", "-c", "hostname; echo $((6*7))")
		if err != nil || out != "talker\n42\n" {
			t.Errorf("exec: %q, %v", out, err)
		}
	})
	t.Run("exec with an exit code", func(t *testing.T) {
		_, err := lubeck.Kubectl(t.Context(), "exec", "-n", ns, "talker", "--", "/bin/sh", "-c", "exit 7")
		if err == nil || !strings.Contains(err.Error(), "exit status 7") {
			t.Errorf("exec: %v", err)
		}
	})
	t.Run("exec with standard input", func(t *testing.T) {
		cmd := kubectlCommand(t.Context(), "exec", "-i", "-n", ns, "talker", "--", "/bin/sh", "-c", "wc -c")
		cmd.Stdin = strings.NewReader(strings.Repeat("x", 100_000))
		out, err := cmd.Output()
		if err != nil || trimmed(out) != "100000" {
			t.Errorf("exec: %q, %v", out, err)
		}
	})
	t.Run("exec with a terminal", func(t *testing.T) { terminal(t, ns) })
	t.Run("logs of a container that is not there", func(t *testing.T) {
		_, err := lubeck.Kubectl(t.Context(), "logs", "-n", ns, "talker", "-c", "nobody")
		if err == nil {
			t.Error("logs of an unknown container: no error")
		}
	})
}

func kubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, filepath.Join(root, "bin", "kubectl"), append([]string{"--kubeconfig", lubeck.Kubeconfig}, args...)...)
}

// followLogs reads lines that are written after kubectl began to follow.
func followLogs(t *testing.T, ns string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := kubectlCommand(ctx, "logs", "-f", "--tail=1", "-n", ns, "talker")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	seen := map[string]bool{}
	for len(seen) < 4 && lines.Scan() {
		seen[lines.Text()] = true
	}
	cancel()
	_ = cmd.Wait() // ended by us
	if len(seen) < 4 {
		t.Errorf("only %d lines came: %v", len(seen), seen)
	}
}

// terminal types into a shell in the remote container as a person does.
func terminal(t *testing.T, ns string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := kubectlCommand(ctx, "exec", "-it", "-n", ns, "talker", "--", "/bin/sh")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 99})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tty.Close() }()
	if _, err := io.WriteString(tty, "test -t 0 && echo terminal-$((6*7)); stty size; exit\n"); err != nil {
		t.Fatal(err)
	}
	screen, _ := io.ReadAll(tty) // ends with EIO when the shell has ended
	if err := waitFor(cmd, time.Minute); err != nil {
		t.Errorf("kubectl exec -it: %v", err)
	}
	if !strings.Contains(string(screen), "terminal-42") || !strings.Contains(string(screen), "33 99") {
		t.Errorf("the screen shows %q", screen)
	}
}

func waitFor(cmd *exec.Cmd, limit time.Duration) error {
	stop := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	defer stop.Stop()
	return cmd.Wait()
}
