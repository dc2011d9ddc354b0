// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/docs/commands"
	"github.com/hanse-dev/hanse/docs/markdown"
)

// names returns the values of the flag, for comparison with the documentation.
func (c choice[T]) names() []string {
	var all []string
	for _, value := range c.values {
		all = append(all, string(value))
	}
	return all
}

func choicesOf(flag *pflag.Flag) []string {
	if c, isChoice := flag.Value.(interface{ names() []string }); isChoice {
		return c.names()
	}
	return nil
}

// TestReferenceDescribesEachFlag compares docs/reference/cli.md with the commands: their sections, and names, short forms,
// defaults and enumerations of their flags.
func TestReferenceDescribesEachFlag(t *testing.T) {
	const page = "docs/reference/cli.md"
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(page)))
	if err != nil {
		t.Fatal(err)
	}
	reference := commands.Reference{
		Page: markdown.Parse(page, string(text)), Program: "kubectl hanse", Root: newCommand(), Choices: choicesOf,
	}
	for _, problem := range reference.Problems() {
		t.Error(problem)
	}
}

const root = "../.."

var inNotes = regexp.MustCompile("kubectl hanse [^(`\n]*")

// readPages reads the pages that show commands of today, and the notes that Helm prints. The changelog names commands of the
// past.
func readPages(t *testing.T) []markdown.Page {
	t.Helper()
	pages, err := markdown.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	notes := markdown.Page{File: "charts/hanse/templates/NOTES.txt"}
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(notes.File)))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		for _, command := range inNotes.FindAllString(line, -1) {
			notes.Blocks = append(notes.Blocks, markdown.Block{Line: i + 1, Text: command})
		}
	}
	pages = append(pages, notes)
	return slices.DeleteFunc(pages, func(page markdown.Page) bool { return page.File == "CHANGELOG.md" })
}

// TestDocumentedCommandsAreValid parses each command that a page shows, as the client would.
func TestDocumentedCommandsAreValid(t *testing.T) {
	count := 0
	for _, page := range readPages(t) {
		shown, problems := commands.Invalid(page, newCommand, "kubectl hanse", "kubectl-hanse")
		count += shown
		for _, problem := range problems {
			t.Error(problem)
		}
	}
	if count < 100 {
		t.Errorf("only %d commands found", count)
	}
}

// TestDocumentedValuesAreValid renders the chart with the values that a page sets: by install or by helm, or by --set alone.
func TestDocumentedValuesAreValid(t *testing.T) {
	count := 0
	for _, page := range readPages(t) {
		for _, shown := range page.Commands() {
			args := valuesOf(shown.Words)
			if !slices.Contains(args, "--set") {
				continue
			}
			count++
			command := newCommand()
			command.SetArgs(append([]string{"install", "--dry-run=client"}, args...))
			command.SetOut(io.Discard)
			if err := command.ExecuteContext(t.Context()); err != nil {
				t.Errorf("%s:%d: %v: correct the value", page.File, shown.Line, err)
			}
		}
	}
	if count < 10 {
		t.Errorf("only %d commands with values found", count)
	}
}

// valuesOf returns the flags of a shown command by which it sets values of the chart.
func valuesOf(words []string) []string {
	args, isInstall := markdown.Arguments(words, "kubectl hanse install", "kubectl-hanse install")
	_, isHelm := markdown.Arguments(words, "helm")
	if !isInstall && !isHelm && words[0] != "--set" {
		return nil
	}
	if isInstall {
		return args
	}
	var found []string
	for i, word := range words[:len(words)-1] {
		if word == "--set" {
			found = append(found, "--set", words[i+1])
		}
	}
	return found
}

// TestSamplesAreOutput compares each sample output in a page with the golden file that a comment above it names. The first
// line of a sample is the command.
func TestSamplesAreOutput(t *testing.T) {
	count := 0
	for _, page := range readPages(t) {
		for _, block := range page.Blocks {
			if block.Sample == "" {
				continue
			}
			count++
			output, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(block.Sample)))
			if err != nil {
				t.Errorf("%s:%d: %v: correct the comment", page.File, block.Line, err)
				continue
			}
			_, sample, _ := strings.Cut(block.Text, "\n")
			if diff := cmp.Diff(string(output), sample); diff != "" {
				t.Errorf("%s:%d: the sample is not the output in %s: copy the file into the page (-output +page)\n%s", page.File, block.Line, block.Sample, diff)
			}
		}
	}
	if count < 2 {
		t.Errorf("only %d samples found", count)
	}
}

// TestOutputForSamples writes the output that docs/how-to/run-a-broker.md shows.
func TestOutputForSamples(t *testing.T) {
	euros := func(amount string) *v1alpha1.OfferedPrice {
		return &v1alpha1.OfferedPrice{Amount: amount, Currency: "EUR"}
	}
	app := &v1alpha1.Application{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	app.Status.Auction = &v1alpha1.ApplicationAuction{
		Round: 1, Phase: v1alpha1.AuctionClosed, Deadline: metav1.NewTime(now),
		Offers: []v1alpha1.AuctionOffer{
			{
				Peer: "bremen", Broker: "hamburg", Interest: 60, Price: euros("1m"), Won: []string{"web"},
				Components: []v1alpha1.AuctionComponent{{Name: "web", Interest: 60, Price: euros("1m")}},
			},
			{Peer: "hamburg", Interest: 40, Price: euros("2m"), Components: []v1alpha1.AuctionComponent{{Name: "web", Interest: 40, Price: euros("2m")}}},
		},
	}
	member := newMember("bremen", "hamburg")
	member.Status.Offer.Prices = &v1alpha1.Prices{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{
		corev1.ResourceCPU: resource.MustParse("50m"),
	}}
	c := newWorld(t, app, member, newBroker("hamburg", metav1.ConditionTrue, "")).client
	auction, members := &bytes.Buffer{}, &bytes.Buffer{}
	if err := showAuction(t.Context(), auction, c, client.ObjectKeyFromObject(app), ""); err != nil {
		t.Fatal(err)
	}
	if err := showMembers(t.Context(), members, c, "table", now); err != nil {
		t.Fatal(err)
	}
	golden(t, "sample-auction.txt", auction.String())
	golden(t, "sample-members.txt", members.String())
}

// TestExamplesAreValid parses the examples in the help of each command.
func TestExamplesAreValid(t *testing.T) {
	count := 0
	var check func(*cobra.Command)
	check = func(command *cobra.Command) {
		page := markdown.Page{File: "example of " + command.CommandPath(), Blocks: []markdown.Block{{Line: 1, Text: command.Example}}}
		shown, problems := commands.Invalid(page, newCommand, "kubectl hanse")
		count += shown
		for _, problem := range problems {
			t.Error(problem)
		}
		for _, child := range command.Commands() {
			check(child)
		}
	}
	check(newCommand())
	if count < 40 {
		t.Errorf("only %d examples found", count)
	}
}

var quoted = regexp.MustCompile("`(kubectl hanse [^`]*)`")

// TestMessagesNameValidCommands checks the commands that messages of Hanse tell users to run, in all programs and in the chart.
func TestMessagesNameValidCommands(t *testing.T) {
	count := 0
	for _, tree := range []string{"api", "charts", "cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, tree), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "testdata") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			page := markdown.Page{File: path}
			for i, line := range strings.Split(string(text), "\n") {
				for _, found := range quoted.FindAllStringSubmatch(line, -1) {
					page.Spans = append(page.Spans, markdown.Span{Line: i + 1, Text: found[1]})
				}
			}
			count += len(page.Spans)
			_, problems := commands.Invalid(page, newCommand, "kubectl hanse")
			for _, problem := range problems {
				t.Error(problem)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if count < 30 {
		t.Errorf("only %d commands found", count)
	}
}

var gap = regexp.MustCompile(` {2,}`)

// TestReferenceDescribesEachColumn compares the tables of columns in docs/reference/cli.md with the headers in golden files. The
// first column of a header, which is a name, needs no description.
func TestReferenceDescribesEachColumn(t *testing.T) {
	const file = "docs/reference/cli.md"
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	page := markdown.Parse(file, string(text))
	for section, output := range map[string]string{
		"kubectl hanse status [PEER]": "status-wide.txt", "kubectl hanse table": "table-wide.txt", "kubectl hanse members": "members-wide.txt",
	} {
		var described []string
		for _, table := range page.TablesUnder(section, "column") {
			for _, row := range table.Rows {
				described = append(described, strings.Split(row.Cells[0], ", ")...)
			}
		}
		printed := headerOf(t, output)
		for _, column := range printed[1:] {
			if !slices.Contains(described, column) {
				t.Errorf("%s, %s: the column %s is not described: add it", file, section, column)
			}
		}
		for _, column := range described {
			if !slices.Contains(printed, column) {
				t.Errorf("%s, %s: there is no column %s: remove it", file, section, column)
			}
		}
	}
}

// headerOf returns the columns of the first table in a golden file.
func headerOf(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		if cells := gap.Split(strings.TrimSpace(line), -1); len(cells) > 3 {
			return cells
		}
	}
	t.Fatalf("testdata/%s has no table", name)
	return nil
}
