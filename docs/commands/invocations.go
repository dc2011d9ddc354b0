package commands

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Parse finds the command that the arguments name, parses its flags and validates its arguments, and does not run the
// command. The tree must be a new one: flags keep their values.
func Parse(root *cobra.Command, args []string) (*cobra.Command, error) {
	command, err := Flags(root, args)
	if err != nil {
		return nil, err
	}
	return command, errors.Join(command.ValidateArgs(command.Flags().Args()), command.ValidateRequiredFlags(), command.ValidateFlagGroups())
}

// Flags finds the command that the arguments name, and parses its flags only: sentences leave out arguments.
func Flags(root *cobra.Command, args []string) (*cobra.Command, error) {
	command, rest, err := root.Find(args)
	if err != nil {
		return nil, err
	}
	if err := command.ParseFlags(rest); err != nil {
		return nil, fmt.Errorf("%s: %w", command.CommandPath(), err)
	}
	if operands := command.Flags().Args(); !command.Runnable() && len(operands) > 0 {
		return nil, fmt.Errorf("%s has no command %q", command.CommandPath(), strings.Join(operands, " "))
	}
	return command, nil
}
