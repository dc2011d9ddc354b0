// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/policymaker"
)

// tryPolicy is what the user sees of `hanse policy test`.
func tryPolicy(t *testing.T, in string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	command := newCommand()
	command.SetIn(strings.NewReader(in))
	command.SetOut(&out)
	command.SetErr(&bytes.Buffer{})
	command.SetArgs(append([]string{"policy", "test"}, args...))
	err := command.ExecuteContext(t.Context())
	return out.String(), err
}

// What the client sends and reads lies in its test data.
func TestWhatTheClientSendsIsAnswered(t *testing.T) {
	trial, err := os.ReadFile("../kubectl-hanse/testdata/policy-trial.json")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("../kubectl-hanse/testdata/policy-answer.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := tryPolicy(t, string(trial), "--request")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestAPolicyIsTriedWithFiles(t *testing.T) {
	const module = "package hanse.incoming\n\ndeny contains \"no\" if input.price > 2\n"
	input := filepath.Join(t.TempDir(), "input.json")
	if err := os.WriteFile(input, []byte(`{"price": 3}`), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := tryPolicy(t, module, "-", "--question", "incoming", "--input", input)
	if err != nil || !strings.Contains(got, `"decision": "Deny"`) {
		t.Errorf("%s, %v", got, err)
	}
	if _, err = tryPolicy(t, "package hanse.incoming\ndeny contains := 3", "-", "--question", "incoming", "--input", input); err == nil {
		t.Error("no error for a broken module")
	}
	if _, err = tryPolicy(t, module, "-", "--question", "incoming", "--input", "-"); err == nil {
		t.Error("no error where standard input is two things")
	}
	if _, err = tryPolicy(t, "", input+"x", "--question", "incoming", "--input", input); err == nil {
		t.Error("no error for a file that is not")
	}
}

func TestTheManagerAnswersTrials(t *testing.T) {
	config := policymaker.Config{Deadline: 10 * time.Second}
	server := httptest.NewServer(trials(policymaker.New(config, nil, nil, clocktesting.NewFakeClock(time.Time{}), nil)))
	defer server.Close()
	module, input := "package hanse.incoming\ndeny contains \"no\"", "{}"
	got, err := askManager(t.Context(), server.URL, policymaker.Trial{Question: policy.Incoming, Module: &module, Input: &input})
	if err != nil || got.Decision != policy.Deny {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := askManager(t.Context(), server.URL+"x", policymaker.Trial{}); err == nil {
		t.Error("no error where nobody listens")
	}
}
