// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hanse-dev/hanse/internal/netprobe"
)

func TestNetprobeServesAndAsks(t *testing.T) {
	address := freeAddress(t)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		command := newCommand()
		command.SetArgs([]string{"netprobe", "serve", "--name", "stock", "--address", address})
		served <- command.ExecuteContext(ctx)
	}()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		answers := askNetprobe(t, ctx, fmt.Sprintf(`[{"kind":"greet","target":%q},{"kind":"packet","target":%[1]q,"size":1400}]`, address))
		return answers[0].Name == "stock" && answers[1].Error == "", nil
	})
	stop()
	if stopped := <-served; err != nil || stopped != nil {
		t.Errorf("asked: %v; served: %v", err, stopped)
	}
}

func TestNetprobeRefusesWhatIsNoQuestion(t *testing.T) {
	command := newCommand()
	command.SetArgs([]string{"netprobe", "ask"})
	command.SetIn(strings.NewReader(`[{"kind":"packet","target":"10.0.0.1:1","size":100000}]`))
	if err := command.ExecuteContext(t.Context()); err == nil {
		t.Error("no error")
	}
}

func askNetprobe(t *testing.T, ctx context.Context, questions string) []netprobe.Answer {
	t.Helper()
	var out bytes.Buffer
	command := newCommand()
	command.SetArgs([]string{"netprobe", "ask"})
	command.SetIn(strings.NewReader(questions))
	command.SetOut(&out)
	if err := command.ExecuteContext(ctx); err != nil {
		t.Fatal(err)
	}
	answers, err := netprobe.ReadAnswers(&out, strings.Count(questions, "kind"))
	if err != nil {
		t.Fatal(err)
	}
	return answers
}

// freeAddress is an address of loopback at which nobody listens now.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
