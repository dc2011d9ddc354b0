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
		Use:   "status [PEER]",
		Short: "Show the peers of a cluster, their nodes, and what they offer",
		Long: "Shows each peer with its virtual node and what it offers or is offered, and each offloaded namespace; of one peer,\n" +
			"all that is known. What is amiss says why.",
		Example: `  kubectl hanse status
  kubectl hanse status -o wide
  kubectl hanse status hamburg
  kubectl hanse status -o json | jq '.peers[] | select(.ready == false) | .reason'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return global.within(command, 30*time.Second, func(ctx context.Context, c *connection) error {
				found, err := observe(ctx, c.client, global.namespace, clock.RealClock{}.Now())
				if err != nil {
					return err
				}
				if len(args) == 0 {
					return printStatus(command.OutOrStdout(), found, output)
				}
				return printStatusOf(command.OutOrStdout(), found, args[0], output)
			})
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "", "wide, json or yaml; by default a table")
	return command
}

func printStatus(to io.Writer, found overview, output string) error {
	if output == "" || output == "wide" {
		return printTables(to, found, output == "wide")
	}
	return encode(to, found, output)
}

// printStatusOf prints all about one peer.
func printStatusOf(to io.Writer, found overview, name, output string) error {
	for i := range found.Peers {
		if found.Peers[i].Name != name {
			continue
		}
		if output == "" || output == "wide" {
			return printPeer(to, &found.Peers[i])
		}
		return encode(to, found.Peers[i], output)
	}
	return fmt.Errorf("there is no Peer %s here: `kubectl hanse status` shows those that there are", name)
}

// encode prints for scripts.
func encode(to io.Writer, what any, output string) error {
	switch output {
	case "json":
		encoder := json.NewEncoder(to)
		encoder.SetIndent("", "  ")
		return encoder.Encode(what)
	case "yaml":
		data, err := yaml.Marshal(what)
		if err != nil {
			return fmt.Errorf("encode the status: %w", err)
		}
		_, err = to.Write(data)
		return err
	default:
		return fmt.Errorf("--output is wide, json or yaml, not %q", output)
	}
}
