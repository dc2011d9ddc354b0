// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A new version of Kubernetes adds fields. This test fails until somebody has decided what becomes of each.
func TestEachFieldHasALine(t *testing.T) {
	for _, l := range leaves() {
		if lineOf(l.path) == nil {
			t.Errorf("%s has no line", l.path)
		}
	}
}

func TestEachLineHasAField(t *testing.T) {
	used := map[string]bool{}
	for _, l := range leaves() {
		if line := lineOf(l.path); line != nil {
			used[line.path] = true
		}
	}
	seen := map[string]bool{}
	for _, line := range fields {
		if !used[line.path] {
			t.Errorf("no field has the line %s", line.path)
		}
		if seen[line.path] {
			t.Errorf("%s has two lines", line.path)
		}
		seen[line.path] = true
		if line.why == "" && line.verdict != kept {
			t.Errorf("%s is %s without a reason", line.path, line.verdict)
		}
	}
	for _, l := range likes {
		if !hasFieldBelow(l.path) || !hasFieldBelow(l.like) {
			t.Errorf("%s is like %s, but one of them is no field", l.path, l.like)
		}
	}
}

func hasFieldBelow(path string) bool {
	for _, l := range leaves() {
		if strings.HasPrefix(l.path, path) {
			return true
		}
	}
	return false
}

var update = flag.Bool("update", false, "write docs/reference/pod-fields.md anew from the table")

const pageHead = `# What becomes of each field of a pod

A pod that runs in another cluster is made anew there, from the fields in this table and no others. It is made from the
table in the code, by ` + "`go test ./internal/offload -run TestPage -update`" + `, and holds for Kubernetes 1.37.

| what | on the way out (spec) | on the way back (status) |
|---|---|---|
| kept | arrives as it is | is shown at home |
| changed | arrives, but says something else | is shown, but says something else |
| dropped | stays at home, and the pod goes | stays with the provider |
| refused | the pod cannot run in another cluster | |

What is said of a field holds for all below it.

Labels and annotations arrive if they have no domain, or are in the domain ` + "`app.kubernetes.io`" + `, or say in Kubernetes' own
name what has made the pod (` + "`apps.kubernetes.io`, `batch.kubernetes.io`, `kubectl.kubernetes.io`, `statefulset.kubernetes.io`" + `).
All others in domains of Kubernetes stay at home, as does what kubectl notes down for itself. The rest, and
` + "`aadpodidbinding`" + `, could control software of the provider: the provider leaves it out, unless [its administrator allows
it](../how-to/restrict-a-peer.md#say-which-labels-and-annotations-pods-may-have). The pod at home then has the condition
` + "`hanse.dev/metadata`" + `, which names what was left out. Variables that read a label or an annotation have home's value in any case;
a file that shows one that does not arrive everywhere keeps the pod at home.
`

func TestPage(t *testing.T) {
	want := pageHead + "\n## spec\n\n| field | | why |\n|---|---|---|\n"
	for _, part := range []string{"spec", "status"} {
		if part == "status" {
			want += "\n## status\n\n| field | | why |\n|---|---|---|\n"
		}
		want += linesOfPage(part + ".")
	}
	page := filepath.Join("..", "..", "docs", "reference", "pod-fields.md")
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not what the table says: run go test ./internal/offload -run TestPage -update\n%s", page, diff)
	}
}

// linesOfPage are in the order in which Kubernetes has the fields.
func linesOfPage(part string) string {
	text, done := "", map[string]bool{}
	for _, l := range leaves() {
		if !strings.HasPrefix(l.path, part) {
			continue
		}
		row := rowOf(l.path)
		if !done[row] {
			text += row
			done[row] = true
		}
	}
	return text
}

// rowOf is the line of a field, or the one that says that a part is like another.
func rowOf(path string) string {
	if line := lineOf(path); line != nil && strings.HasPrefix(path, line.path) {
		return fmt.Sprintf("| `%s` | %s | %s |\n", line.path, line.verdict, line.why)
	}
	for _, l := range likes {
		if strings.HasPrefix(path, l.path) {
			return fmt.Sprintf("| `%s` | | as `%s` |\n", l.path, l.like)
		}
	}
	return fmt.Sprintf("| `%s` | | |\n", path)
}
