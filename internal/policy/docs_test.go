// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var regoBlock = regexp.MustCompile("(?s)```rego\n(package hanse\\.([a-z]+)\n.*?)```")

// regoOfTheDocumentation returns the policies that pages show, each named by its page and by which one it is there.
func regoOfTheDocumentation(t *testing.T) []Module {
	t.Helper()
	pages, err := filepath.Glob("../../docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var found []Module
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range regoBlock.FindAllStringSubmatch(string(text), -1) {
			found = append(found, Module{Name: fmt.Sprintf("%s %d", strings.TrimPrefix(page, "../../"), i+1), Source: block[1]})
		}
	}
	if len(found) == 0 {
		t.Error("no page shows a policy")
	}
	return found
}

// What the documentation shows compiles.
func TestRegoOfTheDocumentationCompiles(t *testing.T) {
	for _, shown := range regoOfTheDocumentation(t) {
		question, _, _ := strings.Cut(strings.TrimPrefix(shown.Source, "package hanse."), "\n")
		if _, err := Compile(Question(question), []Module{shown}); err != nil {
			t.Error(err)
		}
	}
}

var inputRow = regexp.MustCompile("^\\| `([a-z]+)`")

// The page about policies has the table of what each question shows to rules.
func TestPageShowsTheInputOfEachQuestion(t *testing.T) {
	page, err := os.ReadFile("../../docs/how-to/write-a-policy.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := inputsShown(string(page))
	for _, point := range decisionPoints {
		checkPage(t, string(page), point, shown[point.question])
	}
}

// inputsShown reads the table of the page: for each question the fields of its input.
func inputsShown(page string) map[Question][]string {
	var header []string
	shown := map[Question][]string{}
	for _, line := range strings.Split(page, "\n") {
		cells := strings.Split(line, "|")
		if strings.HasPrefix(line, "| field of `input` |") {
			header = cells
		}
		if row := inputRow.FindStringSubmatch(line); row != nil && len(cells) == len(header) {
			for i := 2; i < len(cells)-1; i++ {
				if question := Question(strings.TrimSpace(header[i])); strings.TrimSpace(cells[i]) != "" && row[1] != "time" {
					shown[question] = append(shown[question], row[1])
				}
			}
		}
	}
	return shown
}

func checkPage(t *testing.T, page string, point decisionPoint, shown []string) {
	t.Helper()
	slices.Sort(shown)
	if diff := cmp.Diff(slices.Sorted(slices.Values(point.input)), shown); diff != "" {
		t.Errorf("the page shows another input of %s: -table +page\n%s", point.question, diff)
	}
	if _, err := Default(point.question); err != nil {
		t.Error(err)
	}
	if !strings.Contains(page, "| `"+string(point.question)+"` |") {
		t.Errorf("the page does not explain %s", point.question)
	}
	for _, rule := range point.rules {
		if !strings.Contains(page, "`"+rule) {
			t.Errorf("the page does not explain the rule %s of %s", rule, point.question)
		}
	}
}
