// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	testreport "github.com/hanse-dev/hanse/test/report"
)

// A report collects results. It prints each as it comes, as go test does.
type report struct {
	folder  string
	begin   time.Time
	results []result
	errs    []error
}

// newReport returns a report that writes to the folder, from which it removes what an earlier run left of stories.
func newReport(folder string) (*report, error) {
	for _, old := range []string{"failed", "stories"} {
		if err := os.RemoveAll(filepath.Join(folder, old)); err != nil {
			return nil, err
		}
	}
	return &report{folder: folder, begin: time.Now()}, os.MkdirAll(filepath.Join(folder, "stories"), 0o755)
}

// problem notes an error that is of no story. It makes the run fail.
func (r *report) problem(err error) { r.errs = append(r.errs, err) }

// add adds the result of a story.
func (r *report) add(result result) {
	r.results = append(r.results, result)
	verdict := "PASS"
	if result.failed {
		verdict = "FAIL"
	}
	fmt.Printf("--- %s: %s (%.1fs)\n", verdict, result.story.name, result.duration.Seconds())
	if result.failed {
		fmt.Println(indent(failure(result.output)))
	}
	log := filepath.Join(r.folder, "stories", result.story.name+".log")
	if err := os.WriteFile(log, []byte(result.output), 0o644); err != nil {
		r.problem(err)
	}
}

// testLine is the start of what a test said: file and line.
var testLine = regexp.MustCompile(`^ {4,}[a-z_0-9]+\.go:\d+: `)

// maxFailure is how many lines of a failure are printed. The log has all.
const maxFailure = 40

// failure returns what a story that failed said, without how long it waited for what: errors of a command have several lines, which are
// indented further. Of a story that said nothing, such as one that panicked, it returns the end of the output.
func failure(output string) string {
	var said []string
	isPart := false
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\n")
		switch {
		case testLine.MatchString(line):
			isPart = !strings.Contains(line, ": waited ")
		case !strings.HasPrefix(line, "    "):
			isPart = false
		}
		if isPart {
			said = append(said, line[:min(len(line), 500)])
		}
	}
	if len(said) == 0 {
		return lastLines(output, maxFailure)
	}
	return strings.Join(said[max(0, len(said)-maxFailure):], "\n")
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}

// finish prints the table of all stories and what failed, writes the JUnit file, and returns an error if a story failed.
func (r *report) finish(out io.Writer) error {
	slices.SortFunc(r.results, func(a, b result) int {
		return cmp.Or(cmp.Compare(a.story.capability, b.story.capability), cmp.Compare(a.story.name, b.story.name))
	})
	r.print(out)
	err := errors.Join(append(r.errs, r.writeJUnit())...)
	if failed := r.failures(); len(failed) > 0 {
		err = errors.Join(err, errFailed)
	}
	return err
}

func (r *report) failures() []result {
	return slices.DeleteFunc(slices.Clone(r.results), func(result result) bool { return !result.failed })
}

// print prints the table, the failures, and how many passed and failed.
func (r *report) print(out io.Writer) {
	var text strings.Builder
	fmt.Fprintf(&text, "\n%-50s %-12s %8s\n", "STORY", "CAPABILITY", "SECONDS")
	for _, result := range r.results {
		mark := ""
		if result.failed {
			mark = "  FAILED"
		}
		fmt.Fprintf(&text, "%-50s %-12s %8.1f%s\n", result.story.name, result.story.capability, result.duration.Seconds(), mark)
	}
	failed := r.failures()
	for _, result := range failed {
		fmt.Fprintf(&text, "\n%s failed; see %s\n%s\n", result.story.name, filepath.Join(r.folder, "failed", result.story.name),
			indent(failure(result.output)))
	}
	fmt.Fprintf(&text, "\n%d stories passed, %d failed, in %.0f s; results are in %s\n", len(r.results)-len(failed), len(failed),
		time.Since(r.begin).Seconds(), r.folder)
	_, _ = io.WriteString(out, text.String())
}

// writeJUnit writes the results to e2e.xml, with a suite for each capability.
func (r *report) writeJUnit() error {
	junit := testreport.New(io.Discard)
	for _, result := range r.results {
		action := "pass"
		if result.failed {
			action = "fail"
		}
		junit.Results = append(junit.Results, &testreport.Result{
			Package: "test/e2e/" + result.story.capability, Test: result.story.name, Action: action, Elapsed: result.duration,
			Output: failure(result.output),
		})
	}
	return junit.WriteFile(filepath.Join(r.folder, "e2e.xml"))
}
