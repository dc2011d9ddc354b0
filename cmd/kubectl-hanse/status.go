package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"
)

func newStatusCommand(global *globalFlags) *cobra.Command {
	output := ""
	command := &cobra.Command{
		Use:   "status",
		Short: "Show the peers of a cluster, their nodes, and what they offer",
		Long: "Shows each peer with its virtual node and what it offers or is offered, and each offloaded namespace. What is amiss\n" +
			"says why.",
		Example: `  kubectl hanse status
  kubectl hanse status -o json | jq '.peers[] | select(.ready == false) | .reason'`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), 30*time.Second)
			defer cancel()
			c, err := global.cluster.connect()
			if err != nil {
				return err
			}
			found, err := observe(ctx, c.client, global.namespace, clock.RealClock{}.Now())
			if err != nil {
				return explain(err, c.name)
			}
			return printStatus(command.OutOrStdout(), found, output)
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "", "json or yaml; by default a table")
	return command
}

func printStatus(to io.Writer, found overview, output string) error {
	switch output {
	case "":
		return printTables(to, found)
	case "json":
		encoder := json.NewEncoder(to)
		encoder.SetIndent("", "  ")
		return encoder.Encode(found)
	case "yaml":
		data, err := yaml.Marshal(found)
		if err != nil {
			return fmt.Errorf("encode the status: %w", err)
		}
		_, err = to.Write(data)
		return err
	default:
		return fmt.Errorf("--output is json or yaml, not %q", output)
	}
}
