// SPDX-License-Identifier: Apache-2.0

// Command hanse is Hanse's server: each subcommand is a process of its own, with rights of its own.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hanse-dev/hanse/internal/version"
)

func main() {
	if err := newCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "hanse:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	command := &cobra.Command{
		Use:           "hanse",
		Short:         "Kubernetes clusters of different owners share their resources",
		Version:       version.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	command.AddCommand(newManagerCommand(), newKubeletCommand(), newGatewayCommand(), newFabricCommand(),
		newDiscoveryCommand(), newPolicyCommand(), newNetprobeCommand(), newVersionCommand())
	return command
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(command.OutOrStdout(), version.Version)
			return err
		},
	}
}
