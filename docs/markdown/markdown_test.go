// SPDX-License-Identifier: Apache-2.0

package markdown

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const page = "# Title\n" +
	"A `span`, and text\n" +
	"    that goes on.\n" +
	"\n" +
	"    first block\n" +
	"\n" +
	"      goes on\n" +
	"\n" +
	"1. an item\n" +
	"\n" +
	"   of two paragraphs\n" +
	"\n" +
	"       block in the item\n" +
	"\n" +
	"<!-- sample: peer.yaml -->\n" +
	"```yaml\n" +
	"kind: Peer\n" +
	"# no heading\n" +
	"```\n" +
	"## Flags\n" +
	"| flag | meaning |\n" +
	"|---|---|\n" +
	"| `--a` | `x|y` or z\\|w |\n" +
	"| `--b` | |\n"

func TestParse(t *testing.T) {
	want := Page{
		File:     "page.md",
		Headings: []Heading{{Line: 1, Text: "Title"}, {Line: 20, Text: "Flags"}},
		Blocks: []Block{
			{Line: 5, Text: "first block\n\n  goes on\n"},
			{Line: 13, Text: "block in the item\n"},
			{Line: 17, Language: "yaml", Text: "kind: Peer\n# no heading\n", Sample: "peer.yaml"},
		},
		Tables: []Table{{Line: 21, Heading: "Flags", Columns: []string{"flag", "meaning"}, Rows: []Row{
			{Line: 23, Cells: []string{"`--a`", "`x|y` or z|w"}}, {Line: 24, Cells: []string{"`--b`", ""}},
		}}},
		Spans: []Span{{Line: 2, Text: "span"}, {Line: 23, Text: "--a"}, {Line: 23, Text: "x|y"}, {Line: 24, Text: "--b"}},
	}
	if diff := cmp.Diff(want, Parse("page.md", page)); diff != "" {
		t.Error(diff)
	}
}

func TestShell(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []Command
	}{
		"words and a comment": {"kubectl hanse status # all peers", []Command{{1, []string{"kubectl", "hanse", "status"}}}},
		"a prompt":            {"$ kubectl get pods", []Command{{1, []string{"kubectl", "get", "pods"}}}},
		"quotes":              {`a --set 'x={b, c}' "d $HOME e"`, []Command{{1, []string{"a", "--set", "x={b, c}", "d home e"}}}},
		"a pipe":              {"a b | c -", []Command{{1, []string{"a", "b"}}, {1, []string{"c", "-"}}}},
		"redirections":        {"a - < in > out 2>&1", []Command{{1, []string{"a", "-"}}}},
		"a number in a word":  {"a b2>c", []Command{{1, []string{"a", "b2"}}}},
		"a substitution":      {"a --image $(cat file) --id $cluster", []Command{{1, []string{"a", "--image", "output", "--id", "cluster"}}}},
		"a continued line":    {"a \\\n  b\nc", []Command{{1, []string{"a", "b"}}, {3, []string{"c"}}}},
		"a loop": {"until a x && a y; do b; done", []Command{
			{1, []string{"a", "x"}}, {1, []string{"a", "y"}}, {1, []string{"b"}}, {1, []string{"done"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, ParseShell(1, test.text)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestInvocations(t *testing.T) {
	p := Parse("page.md", "    bin/kubectl-hanse status\n    kubectl hanse check --pre\n    kubectl get pods\n\n```go\nkubectl hanse no\n```\n")
	want := []Command{{1, []string{"status"}}, {2, []string{"check", "--pre"}}}
	if diff := cmp.Diff(want, p.Invocations("kubectl hanse", "kubectl-hanse")); diff != "" {
		t.Error(diff)
	}
}
