// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// waitTimeout bounds each wait for something to happen.
const waitTimeout = 90 * time.Second

// bed is a testbed of a test's own.
type bed struct {
	t     *testing.T
	bin   string
	state string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	if os.Getenv("TESTBED_E2E") == "" {
		t.Skip("real clusters: set TESTBED_E2E=1, or use make test-e2e")
	}
	if os.Geteuid() != 0 {
		t.Skip("real clusters need root")
	}
	bin := os.Getenv("TESTBED_BIN")
	if bin == "" {
		var err error
		if bin, err = filepath.Abs("../../bin"); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.MkdirTemp("", "testbed") //nolint:usetesting // its name is short, and its end is part of the test
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, bin: bin, state: filepath.Join(dir, "state")}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("logs are left in %s", b.state)
			return
		}
		// A test that went well has ended its clusters, but not if it was only one story of several.
		_, _ = b.try("down")
		_ = os.RemoveAll(dir)
	})
	return b
}

// try runs the testbed and returns all that it said.
func (b *bed) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*waitTimeout)
	defer cancel()
	return output(exec.CommandContext(ctx, filepath.Join(b.bin, "testbed"), append([]string{"--state", b.state}, args...)...))
}

func (b *bed) run(args ...string) string {
	b.t.Helper()
	text, err := b.try(args...)
	if err != nil {
		b.t.Fatalf("testbed %s: %v\n%s", strings.Join(args, " "), err, text)
	}
	return text
}

func (b *bed) kubectlTry(cluster string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	kubeconfig := "--kubeconfig=" + filepath.Join(b.state, cluster, "kubeconfig")
	return output(exec.CommandContext(ctx, filepath.Join(b.bin, "kubectl"), append([]string{kubeconfig}, args...)...))
}

func (b *bed) kubectl(cluster string, args ...string) string {
	b.t.Helper()
	text, err := b.kubectlTry(cluster, args...)
	if err != nil {
		b.t.Fatalf("kubectl of %s: %s: %v\n%s", cluster, strings.Join(args, " "), err, text)
	}
	return strings.TrimSpace(text)
}

func (b *bed) apply(cluster, manifest string) {
	b.t.Helper()
	file := filepath.Join(b.t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		b.t.Fatal(err)
	}
	b.kubectl(cluster, "apply", "-f", file)
}

// shell runs a command in the pod of that name.
func (b *bed) shell(cluster, pod, command string) (string, error) {
	return b.kubectlTry(cluster, "exec", pod, "--", "sh", "-c", command)
}

// pid is the process of a component, or 0.
func (b *bed) pid(cluster, component string) int {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.state, cluster, "pids", strings.ReplaceAll(component, "/", "-")+".json"))
	if err != nil {
		b.t.Fatal(err)
	}
	var record struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal(text, &record); err != nil {
		b.t.Fatal(err)
	}
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", record.PID)); err != nil || bytes.Contains(stat, []byte(") Z ")) {
		return 0
	}
	return record.PID
}

// eventually waits until there is no error.
func (b *bed) eventually(what string, try func() error) {
	b.t.Helper()
	deadline := time.Now().Add(waitTimeout)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("wait for %s: %v", what, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func output(command *exec.Cmd) (string, error) {
	var text bytes.Buffer
	command.Stdout, command.Stderr = &text, &text
	command.WaitDelay = time.Second
	err := command.Run()
	return text.String(), err
}
