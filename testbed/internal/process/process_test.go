// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hanse-dev/hanse/testbed/internal/wait"
)

func TestParseStat(t *testing.T) {
	rest := " S 7 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 8123456 1 2 3"
	for _, test := range []struct {
		name, text string
		want       stat
		ok         bool
	}{
		{"an ordinary process", "12 (etcd)" + rest, stat{'S', 7, 1, 8123456}, true},
		{"a name made to confuse", "12 (a) R 1 (b) Z)" + rest, stat{'S', 7, 1, 8123456}, true},
		{"no name", "12" + rest, stat{}, false},
		{"cut off", "12 (etcd) S 7 1", stat{}, false},
		{"empty", "", stat{}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := parseStat([]byte(test.text))
			if (err == nil) != test.ok {
				t.Fatalf("got error %v", err)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(stat{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestProcessIsDeadWithItsLastThread(t *testing.T) {
	for _, test := range []struct {
		name string
		of   stat
		want bool
	}{
		{"it runs", stat{state: 'S', threads: 9}, false},
		{"its first thread has ended, others have not", stat{state: 'Z', threads: 3}, false},
		{"all have ended", stat{state: 'Z', threads: 1}, true},
		{"it is being forgotten", stat{state: 'X'}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.of.dead(); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func start(t *testing.T, command ...string) (Record, Spec) {
	t.Helper()
	dir := t.TempDir()
	spec := Spec{
		Command: command, Env: []string{"PATH=" + os.Getenv("PATH")}, Hash: "h",
		Log: filepath.Join(dir, "logs", "x.log"), PIDFile: filepath.Join(dir, "pids", "x.json"),
	}
	record, err := Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = record.Kill(context.Background())
		reap(record.PID)
	})
	return record, spec
}

// reap collects a child of ours, as the machine's first process does once the testbed has ended.
func reap(pid int) {
	_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
}

func TestStartedProcessIsFoundAgainAndEnded(t *testing.T) {
	record, spec := start(t, "sh", "-c", "echo hello; exec sleep 600")
	if again, err := Read(spec.PIDFile); err != nil || again != record || !again.Alive() {
		t.Fatalf("read %+v, %v; want %+v, alive", again, err, record)
	}
	err := wait.Until(t.Context(), pace, func() (bool, error) {
		text, err := os.ReadFile(spec.Log)
		return string(text) == "hello\n", err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := record.End(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if record.Alive() {
		t.Error("it runs after its end")
	}
}

func TestEndKillsWhoDoesNotListen(t *testing.T) {
	record, spec := start(t, "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 600; done")
	err := wait.Until(t.Context(), pace, func() (bool, error) {
		text, err := os.ReadFile(spec.Log)
		return len(text) > 0, err
	})
	if err != nil {
		t.Fatal(err)
	}
	children := Place{PIDs: []Record{record}}
	t.Cleanup(func() { _ = children.Clear(context.Background()) })
	found, err := children.Find()
	if err != nil {
		t.Fatal(err)
	}
	if err := record.End(t.Context(), 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if record.Alive() {
		t.Error("it runs after its end")
	}
	for _, pid := range found {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

func TestRecycledIDIsNotTheProcess(t *testing.T) {
	record, _ := start(t, "sleep", "600")
	for name, stranger := range map[string]Record{
		"started at another time": {PID: record.PID, StartTime: record.StartTime + 1, Boot: record.Boot, Hash: record.Hash},
		"started in another boot": {PID: record.PID, StartTime: record.StartTime, Boot: "another", Hash: record.Hash},
		"no process":              {},
	} {
		if stranger.Alive() {
			t.Errorf("%s: taken for alive", name)
		}
		if err := stranger.Kill(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !record.Alive() {
		t.Error("the process was killed for another's record")
	}
}

func TestHalfARecordIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.json")
	if err := os.WriteFile(path, []byte(`{"pid": 1`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{path, path + ".missing"} {
		if record, err := Read(file); err != nil || record.Alive() || record.PID != 0 {
			t.Errorf("read %+v, %v", record, err)
		}
	}
}

func TestPlaceHasTheDescendantsOfItsProcesses(t *testing.T) {
	record, spec := start(t, "sh", "-c", "sleep 600 & echo $!; wait")
	var child string
	err := wait.Until(t.Context(), pace, func() (bool, error) {
		text, err := os.ReadFile(spec.Log)
		child = strings.TrimSpace(string(text))
		return child != "", err
	})
	if err != nil {
		t.Fatal(err)
	}
	place := Place{PIDs: []Record{record}}
	found, err := place.Find()
	if err != nil || len(found) != 2 || !slices.Contains(found, record.PID) {
		t.Fatalf("found %v, %v; want %d and %s", found, err, record.PID, child)
	}
	if err := place.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), killTimeout)
	defer cancel()
	for _, pid := range found { // a child outlives the parent that it was found by for a moment
		err := wait.Until(ctx, pace, func() (bool, error) {
			processes, err := all()
			_, runs := processes[pid]
			return !runs, err
		})
		if err != nil {
			t.Errorf("process %d still runs: %v", pid, err)
		}
	}
}

func TestHashTellsCommandsApart(t *testing.T) {
	seen := map[string]bool{}
	for _, of := range []any{[]string{"a", "b"}, []string{"ab"}, []string{"a b"}, nil} {
		hash, err := Hash(of)
		if err != nil || seen[hash] {
			t.Errorf("hash of %v is %s, %v", of, hash, err)
		}
		seen[hash] = true
	}
}
