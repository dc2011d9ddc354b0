// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const events = `{"Action":"start","Package":"github.com/hanse-dev/hanse/a"}
{"Action":"run","Package":"github.com/hanse-dev/hanse/a","Test":"TestGood"}
{"Action":"output","Package":"github.com/hanse-dev/hanse/a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"github.com/hanse-dev/hanse/a","Test":"TestGood","Output":"    a_test.go:1: nobody reads this\n"}
{"Action":"pass","Package":"github.com/hanse-dev/hanse/a","Test":"TestGood","Elapsed":1.26}
{"Action":"output","Package":"github.com/hanse-dev/hanse/a","Test":"TestBad/one","Output":"    a_test.go:2: \u001bwrong\n"}
{"Action":"fail","Package":"github.com/hanse-dev/hanse/a","Test":"TestBad/one","Elapsed":0.5}
{"Action":"pass","Package":"github.com/hanse-dev/hanse/a","Test":"TestBad/two","Elapsed":0.25}
{"Action":"fail","Package":"github.com/hanse-dev/hanse/a","Test":"TestBad","Elapsed":0.75}
{"Action":"skip","Package":"github.com/hanse-dev/hanse/a","Test":"TestOther","Elapsed":0}
{"Action":"fail","Package":"github.com/hanse-dev/hanse/a","Elapsed":2}
this is no event
{"ImportPath":"github.com/hanse-dev/hanse/b","Action":"build-output","Output":"b.go:1: syntax error\n"}
{"Action":"output","Package":"github.com/hanse-dev/hanse/b","Output":"FAIL\tb [build failed]\n"}
{"Action":"fail","Package":"github.com/hanse-dev/hanse/b","Elapsed":0}
{"Action":"run","Package":"github.com/hanse-dev/hanse/c","Test":"TestCrash"}
{"Action":"output","Package":"github.com/hanse-dev/hanse/c","Test":"TestCrash","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"github.com/hanse-dev/hanse/c","Elapsed":9}
{"Action":"pass","Package":"github.com/hanse-dev/hanse/d","Elapsed":9}
`

func read(t *testing.T) (*Report, string) {
	t.Helper()
	var out strings.Builder
	r := New(&out)
	if err := r.Read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	return r, out.String()
}

func TestEachTestHasALineAndFailuresHaveTheirOutput(t *testing.T) {
	r, printed := read(t)
	want := `--- PASS: TestGood (1.3s) a
    a_test.go:2: ` + "\x1b" + `wrong
--- FAIL: TestBad/one (0.5s) a
--- FAIL: TestBad (0.8s) a
--- SKIP: TestOther (0.0s) a
this is no event
b.go:1: syntax error
FAIL	b [build failed]
--- FAIL: TestMain (0.0s) b
panic: test timed out
--- FAIL: TestCrash (0.0s) c
`
	if diff := cmp.Diff(want, printed); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !r.Failed() {
		t.Error("nothing failed")
	}
}

func TestSummaryCountsTestsAndNamesTheSlowest(t *testing.T) {
	r, printed := read(t)
	out, ok := r.out.(*strings.Builder)
	if !ok {
		t.Fatal("the report prints elsewhere")
	}
	r.Summary(1)
	want := "\nthe slowest tests:\n    1.3 s  a TestGood\n1 tests passed, 3 failed, 1 were skipped\n"
	if got := strings.TrimPrefix(out.String(), printed); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestJUnitHasASuiteForEachPackage(t *testing.T) {
	r, _ := read(t)
	var written strings.Builder
	if err := r.WriteJUnit(&written); err != nil {
		t.Fatal(err)
	}
	var got testSuites
	if err := xml.Unmarshal([]byte(written.String()), &got); err != nil {
		t.Fatalf("%v:\n%s", err, written.String())
	}
	type suite struct {
		Name                     string
		Tests, Failures, Skipped int
		Time                     string
	}
	var suites []suite
	for _, s := range got.Suites {
		suites = append(suites, suite{s.Name, s.Tests, s.Failures, s.Skipped, s.Time})
	}
	want := []suite{{"a", 5, 2, 1, "2.010"}, {"b", 1, 1, 0, "0.000"}, {"c", 1, 1, 0, "0.000"}}
	if diff := cmp.Diff(want, suites); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if text := got.Suites[0].Cases[1].Failure.Text; text != "    a_test.go:2: wrong\n" {
		t.Errorf("the failure says %q", text)
	}
}
