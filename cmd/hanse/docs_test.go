// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/hanse-dev/hanse/docs/commands"
	"github.com/hanse-dev/hanse/docs/markdown"
	"github.com/hanse-dev/hanse/internal/policy"
)

// choicesOf returns the values of flags whose type does not know them.
func choicesOf(flag *pflag.Flag) []string {
	switch flag.Name {
	case "question":
		var all []string
		for _, question := range policy.Questions() {
			all = append(all, string(question))
		}
		return all
	case "log-format":
		return []string{"json", "text"}
	}
	return nil
}

// TestReferenceDescribesEachFlag compares docs/reference/cli.md with the commands: their sections, and names, short forms,
// defaults and enumerations of their flags.
func TestReferenceDescribesEachFlag(t *testing.T) {
	const page = "docs/reference/cli.md"
	reference := commands.Reference{Page: markdown.Parse(page, readFileOf(t, page)), Program: "hanse", Root: newCommand(), Choices: choicesOf}
	for _, problem := range reference.Problems() {
		t.Error(problem)
	}
}

// TestDocumentedCommandsAreValid parses each command that a page shows, as the server would.
func TestDocumentedCommandsAreValid(t *testing.T) {
	pages, err := markdown.Read(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		_, problems := commands.Invalid(page, newCommand, "hanse")
		for _, problem := range problems {
			t.Error(problem)
		}
	}
}

var (
	passedValue = regexp.MustCompile(`\.Values\.([A-Za-z.]+) }}{{ \$flags = append \$flags \(printf "--([a-z-]+)=`)
	passedGroup = regexp.MustCompile(`(?s)\$flag := dict (.*?)}}`)
	passedPair  = regexp.MustCompile(`"([A-Za-z]+)" "([a-z-]+)"`)
)

// TestReferenceStatesDefaultsOfTheManager compares defaults in docs/reference/helm-values.md with the manager's, where the
// chart leaves them to the manager.
func TestReferenceStatesDefaultsOfTheManager(t *testing.T) {
	template := readFileOf(t, "charts/hanse/templates/deployments.yaml")
	flagOf := map[string]string{} // value of the chart → flag of the manager
	for _, found := range passedValue.FindAllStringSubmatch(template, -1) {
		flagOf[found[1]] = found[2]
	}
	for _, pair := range passedPair.FindAllStringSubmatch(passedGroup.FindString(template), -1) {
		flagOf["advertising."+pair[1]] = pair[2]
	}
	if len(flagOf) < 15 {
		t.Errorf("only %d values found that are flags of the manager", len(flagOf))
	}
	const page = "docs/reference/helm-values.md"
	for _, table := range markdown.Parse(page, readFileOf(t, page)).Tables {
		for _, row := range table.Rows {
			name, isFlag := flagOf[strings.Trim(row.Cells[0], "`")]
			if !isFlag {
				continue
			}
			if problem := commands.CheckDefault(newManagerCommand().Flags().Lookup(name), nil, row.Cells[1]); problem != "" {
				t.Errorf("%s:%d: %s: %s (--%s)", page, row.Line, row.Cells[0], problem, name)
			}
		}
	}
}

func readFileOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
