// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// networkFlags are those of verbs that try out the network.
type networkFlags struct {
	peer    string
	output  string
	timeout time.Duration
}

func (f *networkFlags) bind(flags *pflag.FlagSet, timeout time.Duration) {
	f.output = "table"
	flags.StringVar(&f.peer, "peer", "", "only this peer; by default every one that runs pods of this cluster")
	flags.VarP(oneOf(&f.output, "table", "json"), "output", "o", "table or json")
	flags.DurationVar(&f.timeout, "timeout", timeout, "how long to try")
}

func newTestCommand(global *globalFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "test",
		Short: "Try out what connects this cluster to peers",
		Example: `  # Do pods and Services of this cluster and of all peers reach each other?
  kubectl hanse test network`,
	}
	command.AddCommand(newTestNetworkCommand(global))
	return command
}

func newTestNetworkCommand(global *globalFlags) *cobra.Command {
	flags, full := &networkFlags{}, false
	command := &cobra.Command{
		Use:   "network",
		Short: "Try whether pods and Services of two clusters reach each other",
		Long: "Starts small pods in this cluster and at peers, in namespaces of their own, and has them reach each other: pods, Services\n" +
			"by cluster IP and by name, DNS, the API server of this cluster, large packets, and pods from the network of a node. The\n" +
			"table says what works, and the likely cause of what does not. Everything that was made is removed again. The exit code\n" +
			"is 1 if anything does not work or could not be tested.",
		Example: `  # One peer, from every node of this cluster
  kubectl hanse test network --peer hamburg --full`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return runOnStage(command, global, flags, stagePlan{host: true, everyNode: full}, func(ctx context.Context, s *stage) error {
				rows := s.testNetwork(ctx)
				return errors.Join(printNetwork(command.OutOrStdout(), rows, flags.output), networkVerdict(rows))
			})
		},
	}
	flags.bind(command.Flags(), 5*time.Minute)
	command.Flags().BoolVar(&full, "full", false, "also from every node of this cluster, and from each peer to each other one")
	return command
}

// runOnStage does a verb's work with pods that are made for it, and removes them whatever happens.
func runOnStage(
	command *cobra.Command, global *globalFlags, flags *networkFlags, plan stagePlan, work func(context.Context, *stage) error,
) error {
	return global.withHanse(command, flags.timeout, func(ctx context.Context, c *connection, system string) error {
		s, err := newStage(ctx, c, c.cluster(command), system, flags.peer)
		if err != nil {
			return err
		}
		return s.use(ctx, plan, work)
	})
}

// peersToTry are the peers that run pods of this cluster, or the one that is named.
func (s *snapshot) peersToTry(named string) ([]string, error) {
	if named != "" {
		peer := s.peer(named)
		switch {
		case peer == nil:
			return nil, noPeer(named)
		case !peer.HasRole(v1alpha1.RoleProvider):
			return nil, fmt.Errorf("peer %s runs no pods of this cluster, so none can be started there: have its administrator test it from there", named)
		}
		return []string{named}, nil
	}
	names := namesOf(s.peers.Items, func(p *v1alpha1.Peer) string {
		if !p.HasRole(v1alpha1.RoleProvider) {
			return ""
		}
		return p.Name
	})
	if len(names) == 0 {
		return nil, errors.New("there is no peer that runs pods of this cluster: see `kubectl hanse status`")
	}
	return names, nil
}

// testNetwork has the pods of the stage ask each other, and says what came of it.
func (s *stage) testNetwork(ctx context.Context) []networkRow {
	var rows []networkRow
	for _, peer := range s.peers {
		f := s.factsOf(ctx, peer)
		trials := s.trials(f)
		rows = append(rows, judged(f, s.try(ctx, trials))...)
	}
	return rows
}

var errNetwork = errors.New("the network does not do all that it should")

// networkVerdict is an error if not everything works.
func networkVerdict(rows []networkRow) error {
	bad := len(slices.DeleteFunc(slices.Clone(rows), func(r networkRow) bool { return r.Result == resultWorks }))
	if bad == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d of %d do not work, or could not be tested: see %s", errNetwork, bad, len(rows), connectingNetworks)
}

// connectingNetworks is the page that tells what to do.
const connectingNetworks = "docs/how-to/connect-networks.md"
