// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hanse-dev/hanse/testbed/internal/component"
	"github.com/hanse-dev/hanse/testbed/internal/plan"
)

func lubeck(t *testing.T) Cluster {
	t.Helper()
	return Cluster{
		Cluster: &plan.Cluster{
			Name: "lubeck", Index: 1, Rootless: true, Ports: plan.UsualPorts, Options: plan.DefaultOptions(),
			Dir: filepath.Join(t.TempDir(), "lubeck"), Bin: "/bin",
		},
		Now: time.Now,
		Say: t.Logf,
	}
}

func TestFailureShowsTheLogOfWhatHasEnded(t *testing.T) {
	c := lubeck(t)
	c.Options.Workers = 0
	parts := component.All(c.Cluster)
	for _, part := range parts {
		if err := writeFile(part.LogFile(), []byte("the log of "+part.Name+"\n")); err != nil {
			t.Fatal(err)
		}
	}
	ended := explain(errors.Join(dead{parts[1]}, errors.New("refused")), parts).Error()
	for _, want := range []string{"apiserver has ended", "refused", "end of the log of apiserver", "the log of apiserver"} {
		if !strings.Contains(ended, want) {
			t.Errorf("want %q in:\n%s", want, ended)
		}
	}
	if late := explain(errors.New("too late"), parts).Error(); !strings.Contains(late, "the log of etcd") {
		t.Errorf("nothing has ended, so the first is shown, but:\n%s", late)
	}
}

func TestTail(t *testing.T) {
	var text strings.Builder
	for i := range 100 {
		text.WriteString(strconv.Itoa(i) + "\n")
	}
	if got := tail([]byte(text.String()), 3); got != "97\n98\n99" {
		t.Errorf("got %q", got)
	}
	if got := tail([]byte("only"), 3); got != "only" {
		t.Errorf("got %q", got)
	}
}

func TestWhatTheAPIServerNeedsComesFirst(t *testing.T) {
	first, then := phases(component.All(lubeck(t).Cluster))
	var names []string
	for _, part := range append(first, then...) {
		names = append(names, part.Name)
	}
	if got := strings.Join(names, " "); len(first) != 3 || !strings.HasPrefix(got, "etcd containerd/1 apiserver controller-manager") {
		t.Errorf("%d first: %s", len(first), got)
	}
}

func TestCredentialsAreMadeOnceAndUsable(t *testing.T) {
	c := lubeck(t)
	read := func() string {
		if err := c.ensureCredentials(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(c.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first := read()
	if !strings.Contains(first, `"current-context": "lubeck"`) || !strings.Contains(first, "https://127.0.0.1:6443") {
		t.Errorf("kubeconfig:\n%s", first)
	}
	if read() != first {
		t.Error("the second time it differs")
	}
	if _, err := c.client(); err != nil {
		t.Error(err)
	}
}

func TestStatusOfAClusterThatDoesNotRun(t *testing.T) {
	c := lubeck(t)
	text, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"lubeck  kubernetes v1.37.1", "not ready: ", "apiserver            stopped", "kubelet/1            stopped"} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in:\n%s", want, text)
		}
	}
}
