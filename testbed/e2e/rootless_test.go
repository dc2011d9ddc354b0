// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func commandContext(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(context.Background(), name, args...)
}

// nobody is the user that has no rights at all.
const nobody = 65534

// TestE2EWithoutRoot has a control plane and simulated nodes as an ordinary user.
func TestE2EWithoutRoot(t *testing.T) {
	b := newBed(t)
	if err := os.Chmod(filepath.Dir(b.state), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Dir(b.state), nobody, nobody); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		command := commandContext(t, filepath.Join(b.bin, "testbed"), append([]string{"--state", b.state}, args...)...)
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		return output(command)
	}
	if text, err := run("status"); err != nil {
		t.Skipf("nobody cannot run %s: %v %s", b.bin, err, text)
	}
	text, err := run("up", "bremen", "--simulated-nodes", "2")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if !strings.Contains(text, "without root: control planes and simulated nodes only") {
		t.Errorf("it does not say what is missing:\n%s", text)
	}
	if text, err := run("up", "rostock", "--workers", "1"); err == nil || !strings.Contains(text, "workers need root") {
		t.Errorf("a worker without root: %v %s", err, text)
	}
	b.kubectl("bremen", "create", "deployment", "any", "--image=example.com/any:v1", "--replicas=3")
	b.kubectl("bremen", "wait", "--for=condition=Available", "deployment/any", "--timeout=60s")
	apiserver := b.pid("bremen", "apiserver")
	if text, err := run("down"); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if _, err := os.Stat(b.state); !os.IsNotExist(err) {
		t.Errorf("the folder of state is left behind: %v", err)
	}
	if environment, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(apiserver), "environ")); err == nil && len(environment) > 0 {
		t.Errorf("the API server is left behind as process %d", apiserver)
	}
}
