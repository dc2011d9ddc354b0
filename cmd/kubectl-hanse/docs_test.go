package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"

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
