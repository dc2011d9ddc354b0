// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hanse-dev/hanse/docs/markdown"
)

const head = "| flag | default | meaning |\n|---|---|---|\n"

// tree is a program with a global flag, two verbs, a group, and a command for other programs.
func tree() *cobra.Command {
	run := func(*cobra.Command, []string) {}
	root := &cobra.Command{Use: "tool"}
	root.PersistentFlags().String("context", "", "context to use")
	drain := &cobra.Command{Use: "drain PEER", Args: cobra.ExactArgs(1), Run: run}
	drain.Flags().StringP("output", "o", "table", "table or json")
	drain.Flags().Duration("timeout", 60e9, "how long to wait")
	cordon := &cobra.Command{Use: "cordon PEER", Args: cobra.ExactArgs(1), Run: run}
	cordon.Flags().StringP("output", "o", "table", "table or json")
	group := &cobra.Command{Use: "explain"}
	pod := &cobra.Command{Use: "pod NAME", Args: cobra.ExactArgs(1), Run: run}
	pod.Flags().String("since", "", "first day; by default 1d")
	pod.Flags().Bool("request", false, "for other programs")
	_ = pod.Flags().MarkHidden("request")
	group.AddCommand(pod)
	root.AddCommand(drain, cordon, group, &cobra.Command{Use: "probe", Hidden: true, Run: run})
	return root
}

var right = []string{
	"## tool\n", head, "| `--context` | the current one | which |\n",
	"### tool cordon, drain PEER\n", head, "| `-o`, `--output` | `table` | `table` or `json` |\n",
	"| `--timeout` | `1m` | `drain` only: how long |\n",
	"### tool explain pod NAME\n", head, "| `--since` | `1d` | first day |\n",
}

func problems(page string) []string {
	reference := Reference{Page: markdown.Parse("cli.md", page), Program: "tool", Root: tree(), Choices: func(flag *pflag.Flag) []string {
		if flag.Name == "output" {
			return []string{"table", "json"}
		}
		return nil
	}}
	return reference.Problems()
}

func TestReference(t *testing.T) {
	for name, test := range map[string]struct{ replace, by, want string }{
		"a page that is right":                  {"", "", ""},
		"a command without a section":           {"### tool explain pod NAME\n", "### other\n", "cli.md has no section ### tool explain pod: add one"},
		"a section without a command":           {"### tool explain pod NAME\n", "### tool exec NAME\n### tool explain pod NAME\n", `cli.md:10: there is no command "tool exec NAME": remove its section`},
		"a flag that is not described":          {"| `--since` | `1d` | first day |\n", "", "cli.md does not describe tool explain pod --since"},
		"a description without a flag":          {"| `--since`", "| `--until` | | last day |\n| `--since`", "cli.md:13: tool explain pod has no flag --until"},
		"a flag of one command only":            {"`drain` only: ", "", "cli.md:9: tool cordon has no flag --timeout"},
		"another default":                       {"`1m`", "`2m`", "the default is `1m0s`, and the page says `2m`"},
		"a default that is not stated":          {"`1m`", "", "the default is `1m0s`, and the page says \"\""},
		"a default that the help does not have": {"`1d`", "`2d`", "the flag has no default"},
		"a value that is not described":         {"`table` or `json`", "`table` or wide", "tool drain --output accepts `json`, too: add it"},
		"another short form":                    {"`-o`, ", "", `the short form of tool drain --output is "o", not ""`},
		"a global flag that is not described":   {"| `--context` | the current one | which |\n", "", "cli.md does not describe tool --context"},
		"another table":                         {"### tool explain pod NAME\n| flag | default |", "### tool explain pod NAME\n| flag | standard |", "cli.md:11: the columns of a table of flags are flag, default and meaning"},
	} {
		t.Run(name, func(t *testing.T) {
			page := strings.Join(right, "")
			if test.replace != "" && !strings.Contains(page, test.replace) {
				t.Fatalf("the page has no %q", test.replace)
			}
			got := strings.Join(problems(strings.ReplaceAll(page, test.replace, test.by)), "\n")
			if test.replace == "" {
				got = strings.Join(problems(page), "\n")
			}
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestParse(t *testing.T) {
	for args, want := range map[string]string{
		"drain hamburg -o json":      "",
		"explain pod web":            "",
		"drain":                      "accepts 1 arg(s), received 0",
		"drain hamburg --force":      "tool drain: unknown flag: --force",
		"explain deployment":         `tool explain has no command "deployment"`,
		"exec":                       `unknown command "exec" for "tool"`,
		"drain hamburg --timeout 5x": `tool drain: invalid argument "5x" for "--timeout" flag: time: unknown unit "x" in duration "5x"`,
	} {
		got := ""
		if _, err := Parse(tree(), strings.Fields(args)); err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", args, diff)
		}
	}
}

func TestInvalid(t *testing.T) {
	page := markdown.Parse("page.md", "Use `tool drain`, `tool drain --timeout` or `tool exec`.\n\n    tool drain hamburg\n    tool drain\n    tool explain\n")
	count, problems := Invalid(page, tree, "tool")
	want := []string{
		"page.md:4: accepts 1 arg(s), received 0: correct the command",
		"page.md:5: tool explain needs a subcommand: correct the command",
		"page.md:1: `tool exec`: unknown command \"exec\" for \"tool\": correct the command",
	}
	if diff := cmp.Diff(want, problems); diff != "" || count != 3 {
		t.Errorf("%d commands: %s", count, diff)
	}
}
