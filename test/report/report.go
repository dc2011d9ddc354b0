// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// An event is a line of go test -json, as go doc test2json describes it.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build output
	Test       string
	Elapsed    float64 // seconds
	Output     string
}

// A Result is what is known of a test, or with an empty name of what a package printed outside of its tests.
type Result struct {
	Package, Test string
	Action        string // pass, fail or skip
	Elapsed       time.Duration
	Output        string
}

// Failed reports whether the test has failed.
func (r *Result) Failed() bool { return r.Action == "fail" }

// id names a test.
type id struct{ pkg, test string }

// A Report collects the results of a run.
type Report struct {
	Results []*Result // in the order in which they ended

	out   io.Writer
	begun map[id]*Result // tests that run, and packages
}

// New returns a report that prints to out.
func New(out io.Writer) *Report { return &Report{out: out, begun: map[id]*Result{}} }

// Read reads events until their end, and prints a line for each test that ends. What is no event, it prints as it is.
func (r *Report) Read(events io.Reader) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.line(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read test events: %w", err)
		}
	}
}

func (r *Report) line(line []byte) {
	e := event{}
	if err := json.Unmarshal(line, &e); err != nil {
		r.printf("%s", line)
		return
	}
	switch e.Action {
	case "build-output":
		r.printf("%s", e.Output)
	case "output":
		r.result(e).Output += e.Output
	case "pass", "fail", "skip":
		r.end(e)
	}
}

func (r *Report) result(e event) *Result {
	key := id{e.Package, e.Test}
	if r.begun[key] == nil {
		r.begun[key] = &Result{Package: e.Package, Test: e.Test}
	}
	return r.begun[key]
}

// end notes that a test or a package has ended. A package that fails without a failed test has crashed, or did not build.
func (r *Report) end(e event) {
	result := r.result(e)
	delete(r.begun, id{e.Package, e.Test})
	result.Action, result.Elapsed = e.Action, time.Duration(e.Elapsed*float64(time.Second))
	if e.Test == "" {
		r.endPackage(result)
		return
	}
	r.Results = append(r.Results, result)
	if strings.Contains(e.Test, "/") && !result.Failed() {
		return // the test that it belongs to has a line
	}
	r.printResult(result)
}

func (r *Report) endPackage(result *Result) {
	if !result.Failed() {
		return
	}
	for key, test := range r.begun { // tests that a crash has ended
		if key.pkg == result.Package {
			test.Action = "fail"
			delete(r.begun, key)
			r.Results = append(r.Results, test)
			r.printResult(test)
		}
	}
	if slices.ContainsFunc(r.Results, func(other *Result) bool { return other.Package == result.Package && other.Failed() }) {
		if !strings.Contains(result.Output, "panic: ") {
			return
		}
	}
	result.Test = "TestMain"
	r.Results = append(r.Results, result)
	r.printResult(result)
}

func (r *Report) printResult(result *Result) {
	if result.Failed() {
		for line := range strings.Lines(result.Output) {
			if !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(strings.TrimSpace(line), "--- ") {
				r.printf("%s", line)
			}
		}
	}
	r.printf("--- %s: %s (%.1fs) %s\n", strings.ToUpper(result.Action), result.Test, result.Elapsed.Seconds(), short(result.Package))
}

// printf prints. If nobody can read it, the exit code and the file still tell the result.
func (r *Report) printf(format string, args ...any) { _, _ = fmt.Fprintf(r.out, format, args...) }

// short returns the path of a package within this module.
func short(pkg string) string {
	return strings.TrimPrefix(pkg, "github.com/hanse-dev/hanse/")
}

// Summary prints how many tests have passed, failed and been skipped, and the slowest ones.
func (r *Report) Summary(slowest int) {
	tests := slices.DeleteFunc(slices.Clone(r.Results), func(result *Result) bool { return strings.Contains(result.Test, "/") })
	counts := map[string]int{}
	for _, result := range tests {
		counts[result.Action]++
	}
	slices.SortStableFunc(tests, func(a, b *Result) int { return int(b.Elapsed - a.Elapsed) })
	r.printf("%s\n", "\nthe slowest tests:")
	for _, result := range tests[:min(slowest, len(tests))] {
		r.printf("%7.1f s  %s %s\n", result.Elapsed.Seconds(), short(result.Package), result.Test)
	}
	r.printf("%d tests passed, %d failed, %d were skipped\n", counts["pass"], counts["fail"], counts["skip"])
}

// Failed returns whether a test has failed.
func (r *Report) Failed() bool { return slices.ContainsFunc(r.Results, (*Result).Failed) }
