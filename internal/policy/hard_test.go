// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hanse-dev/hanse/internal/testkit/cputime"
)

// fill repeats a text until the source is as large as a module may be.
func fill(before, repeated, after string) string {
	return before + strings.Repeat(repeated, (maxSource-len(before)-len(after)-30)/len(repeated)) + after
}

// numbered is fill with the numbers n and n+1 in the text, and the last one in after.
func numbered(repeated, after string) string {
	b := &strings.Builder{}
	n := 0
	for ; b.Len() < maxSource-len(after)-200; n++ {
		fmt.Fprintf(b, repeated, n, n+1)
	}
	return b.String() + fmt.Sprintf(after, n)
}

// Each of these kept some part of OPA busy for minutes or made it call itself a hundred thousand times when modules had
// no bounds. Now each compiles, or is refused, in seconds, and if it compiles it answers.
func TestWhatIsHardToCompileTakesBoundedTime(t *testing.T) {
	for name, source := range map[string]string{
		"operators":          fill("x := 1", "+1", ""),
		"unions":             fill("x := {1}", "|{1}", ""),
		"else":               fill("x := 1 if false", " else := 1 if false", "\n"),
		"reference":          fill("x := input", ".a", ""),
		"rule name":          fill("x", ".a", " := 1"),
		"with":               fill("x if { input ", "with input as 1 ", "}"),
		"body":               fill("x if {", "input.a == 1\n", "}"),
		"rules":              fill("", "deny contains \"a\" if input.a\n", ""),
		"brackets":           fill("x := ", "[", ""),
		"parentheses":        fill("x := ", "(", ""),
		"arrays":             "x := " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
		"comprehensions":     "x := " + strings.Repeat("[1|", 50) + "true" + strings.Repeat("]", 50),
		"allowed nesting":    "x := " + strings.Repeat("[1|", maxClosures) + "true" + strings.Repeat("]", maxClosures),
		"in heads":           "deny contains " + strings.Repeat("[", 40) + "1" + strings.Repeat("|true]", 40),
		"many nestings":      fill("x := [", "[1|[1|[1|[1|[1|true]]]]],", "1]"),
		"many comprehension": fill("x := [", "[1|true],", "1]"),
		"long expressions":   fill("x if {", "1"+strings.Repeat("+input.a", 45)+"\n", "}"),
		"every":              "x if {" + strings.Repeat("every y in [1] { y; ", 40) + "true" + strings.Repeat("}", 41),
		"chain of rules":     numbered("r%d := r%d\n", "r%d := 1"),
		"chain of types":     numbered("r%d := {\"x\": r%d}\n", "r%d := 1"),
		"doubling types":     strings.ReplaceAll(numbered("r%d := [r%d, r%[2]d]\n", "r%d := 1"), "\n\n", "\n"),
		"chain of variables": "x if {\n" + numbered("r%d = r%d\n", "r%d = 1\n") + "}",
		"names in an object": numbered("a.r%d.b := {\"x\": %d}\n", "y := %d"),
		"large number":       "deny contains \"x\" if 1e999999999 * 2 > input.a",
	} {
		t.Run(name, func(t *testing.T) {
			var set *Set
			var err error
			took := cputime.Of(func() {
				set, err = Compile(Incoming, []Module{{Name: "cm/hard.rego", Source: "package hanse.incoming\n" + source}})
			})
			t.Logf("%d bytes: %s, %.100v", len(source), took, err)
			if took > 20*time.Second {
				t.Errorf("took %s of CPU time", took)
			}
			if err == nil {
				if _, err := set.Decide(t.Context(), input(t, `{"a": 1}`)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func input(t testing.TB, text string) Input {
	t.Helper()
	in, err := ParseInput([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return in
}
