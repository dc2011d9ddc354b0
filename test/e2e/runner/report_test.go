// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFailure(t *testing.T) {
	for name, test := range map[string]struct{ output, want string }{
		"what a test says, with the lines of an error, and without waits": {
			output: "=== RUN   TestA\n    a_test.go:12: waited 3.1 s: a pod runs\n    a_test.go:20: kubectl get: exit 1\n        not found\n--- kubectl\n    noise\n--- FAIL: TestA (1s)\n",
			want:   "    a_test.go:20: kubectl get: exit 1\n        not found",
		},
		"the end of what a test prints that panics": {output: "=== RUN   TestA\npanic: oops\n", want: "=== RUN   TestA\npanic: oops"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, failure(test.output)); diff != "" {
				t.Errorf("failure (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReport(t *testing.T) {
	folder := t.TempDir()
	stale := filepath.Join(folder, "failed", "TestOld")
	if err := os.MkdirAll(stale, 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := newReport(folder)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); err == nil {
		t.Error("details of an earlier run are still there")
	}
	r.add(result{story: storyNamed("TestB"), duration: 1500 * time.Millisecond})
	r.add(result{story: storyNamed("TestA"), failed: true, output: "    a_test.go:3: <wrong>\n"})
	var out bytes.Buffer
	if err := r.finish(&out); !errors.Is(err, errFailed) {
		t.Errorf("error %v, want %v", err, errFailed)
	}
	if text := out.String(); !strings.Contains(text, "1 stories passed, 1 failed") || !strings.Contains(text, "a_test.go:3: <wrong>") {
		t.Errorf("report:\n%s", text)
	}
	data, err := os.ReadFile(filepath.Join(folder, "e2e.xml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`<testsuite name="test/e2e/offloading" tests="2" failures="1"`, `classname="test/e2e/offloading" name="TestB" time="1.500"`, `a_test.go:3: &lt;wrong&gt;`,
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("e2e.xml lacks %s:\n%s", want, data)
		}
	}
	if log, err := os.ReadFile(filepath.Join(folder, "stories", "TestA.log")); err != nil || !strings.Contains(string(log), "<wrong>") {
		t.Errorf("log %q, %v", log, err)
	}
}
