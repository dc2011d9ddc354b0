package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/hanse-dev/hanse/internal/install"
)

func newUninstallCommand(global *globalFlags) *cobra.Command {
	removal := install.Removal{}
	timeout := time.Duration(0)
	command := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove Hanse from a cluster, and everything that it made there",
		Long: "Parts from all peers, removes their namespaces and virtual nodes, and then Hanse with its kinds and policies. The\n" +
			"cluster is then as it was before. Nothing is removed while pods still run over there, or pods of others here.",
		Example: `  # Remove Hanse
  kubectl hanse uninstall

  # Also when it no longer works, a peer is gone for ever, or pods still run remotely (they end)
  kubectl hanse uninstall --force`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), timeout)
			defer cancel()
			c, err := global.cluster.connect()
			if err != nil {
				return err
			}
			removal.Namespace = global.namespace
			if err := c.cluster(command).Remove(ctx, removal); err != nil {
				return explain(err, c.name)
			}
			return say(command, "Hanse is removed from %s.\n", c.name)
		},
	}
	flags := command.Flags()
	flags.BoolVar(&removal.Force, "force", false, "end what still runs, and clean up without Hanse where it does not")
	flags.DurationVar(&removal.Patience, "patience", time.Minute, "how long Hanse itself is given to part from its peers")
	flags.DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait in all")
	return command
}
