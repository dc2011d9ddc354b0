// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hanse-dev/hanse/docs/markdown"
)

// Parse finds the command that the arguments name, parses its flags and validates its arguments, and does not run the
// command. The tree must be a new one: flags keep their values. Files that the arguments name need not exist.
func Parse(root *cobra.Command, args []string) (*cobra.Command, error) {
	command, err := parseFlags(root, args)
	if errors.Is(err, fs.ErrNotExist) {
		return command, nil // the flags behind the file are not parsed
	}
	if err != nil {
		return nil, err
	}
	if !command.Runnable() {
		return nil, fmt.Errorf("%s needs a subcommand", command.CommandPath())
	}
	return command, errors.Join(command.ValidateArgs(command.Flags().Args()), command.ValidateRequiredFlags(), command.ValidateFlagGroups())
}

// Named checks a command that a sentence names: sentences leave out arguments, and the value of the last flag.
func Named(root *cobra.Command, args []string) error {
	_, err := parseFlags(root, args)
	if noValue := (*pflag.ValueRequiredError)(nil); errors.As(err, &noValue) {
		return nil
	}
	return err
}

// parseFlags finds the command that the arguments name, and parses its flags.
func parseFlags(root *cobra.Command, args []string) (*cobra.Command, error) {
	command, rest, err := root.Find(args)
	if err != nil {
		return nil, err
	}
	if err := command.ParseFlags(rest); err != nil {
		return command, fmt.Errorf("%s: %w", command.CommandPath(), err)
	}
	if operands := command.Flags().Args(); !command.Runnable() && len(operands) > 0 {
		return nil, fmt.Errorf("%s has no command %q", command.CommandPath(), strings.Join(operands, " "))
	}
	return command, nil
}

// Invalid checks each command that a page shows in its blocks of code and in its sentences. newRoot returns a new tree, and
// names are what users type to call the program. It returns the number of commands in blocks, and the problems.
func Invalid(page markdown.Page, newRoot func() *cobra.Command, names ...string) (count int, problems []string) {
	report := func(line int, err error) {
		problems = append(problems, fmt.Sprintf("%s:%d: %v: correct the command", page.File, line, err))
	}
	for _, shown := range page.Invocations(names...) {
		count++
		if _, err := Parse(newRoot(), shown.Words); err != nil {
			report(shown.Line, err)
		}
	}
	for _, span := range page.Spans {
		for _, called := range markdown.ParseShell(span.Line, span.Text) {
			if args, isOurs := markdown.Arguments(called.Words, names...); isOurs {
				if err := Named(newRoot(), args); err != nil {
					report(span.Line, fmt.Errorf("`%s`: %w", span.Text, err))
				}
			}
		}
	}
	return count, problems
}
