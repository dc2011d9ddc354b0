package main

import (
	"os"
	"path/filepath"
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
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(page)))
	if err != nil {
		t.Fatal(err)
	}
	reference := commands.Reference{Page: markdown.Parse(page, string(text)), Program: "hanse", Root: newCommand(), Choices: choicesOf}
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
