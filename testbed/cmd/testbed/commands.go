// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hanse-dev/hanse/testbed/internal/cluster"
)

// usage says which flag an error is about.
func usage(_ *pflag.FlagSet, flag string, err error) error {
	return fmt.Errorf("--%s: %w", flag, err)
}

func (a *app) down() *cobra.Command {
	return &cobra.Command{
		Use:   "down [CLUSTER...]",
		Short: "End clusters, or all, and leave nothing of them behind",
		RunE: func(command *cobra.Command, names []string) error {
			return a.testbed.Down(command.Context(), names)
		},
	}
}

func (a *app) status() *cobra.Command {
	return &cobra.Command{
		Use:   "status [CLUSTER...]",
		Short: "Show clusters, and which of their components run",
		RunE: func(command *cobra.Command, names []string) error {
			clusters, err := a.testbed.Named(names)
			if err != nil {
				return err
			}
			if len(clusters) == 0 {
				fmt.Println("no clusters in", a.testbed.Dir)
			}
			for _, one := range clusters {
				text, err := one.Status(command.Context())
				if err != nil {
					return err
				}
				fmt.Print(text)
			}
			cuts, err := a.testbed.Cuts()
			for _, cut := range cuts {
				what := "nothing gets"
				if cut.OneWay {
					what = "no new connection gets"
				}
				fmt.Printf("cut: %s from %s to %s\n", what, cut.From, cut.To)
			}
			return err
		},
	}
}

func (a *app) kubeconfig() *cobra.Command {
	return &cobra.Command{
		Use:     "kubeconfig CLUSTER",
		Short:   "Print the path of an administrator's kubeconfig",
		Example: "  export KUBECONFIG=$(testbed kubeconfig lubeck)",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			found, err := a.testbed.Cluster(args[0])
			if err != nil {
				return err
			}
			fmt.Println(found.Kubeconfig())
			return nil
		},
	}
}

func (a *app) load() *cobra.Command {
	return &cobra.Command{
		Use:   "load IMAGE.tar [CLUSTER...]",
		Short: "Put the images of an archive into each worker of clusters, or of all",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if _, err := os.Stat(args[0]); err != nil {
				return err
			}
			clusters, err := a.testbed.Named(args[1:])
			if err != nil {
				return err
			}
			for _, one := range clusters {
				if err := one.Load(command.Context(), args[0]); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func (a *app) cut() *cobra.Command {
	var oneWay bool
	command := &cobra.Command{
		Use:   "cut A B",
		Short: "Cut two clusters off from each other",
		Long: `Cut two clusters off from each other: no packet gets from one to the other any more.

With --one-way, A can no longer open connections to B, nor use those that it has opened, while B still reaches A, as
when A is behind a firewall.`,
		Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, args []string) error {
			return a.testbed.Cut(command.Context(), args[0], args[1], oneWay)
		},
	}
	command.Flags().BoolVar(&oneWay, "one-way", false, "cut only what A opens to B")
	return command
}

func (a *app) heal() *cobra.Command {
	return &cobra.Command{
		Use:   "heal A B",
		Short: "End the cut between two clusters",
		Args:  cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, args []string) error {
			return a.testbed.Heal(command.Context(), args[0], args[1])
		},
	}
}

func (a *app) detour() *cobra.Command {
	return &cobra.Command{
		Use:   "detour A B ADDRESS",
		Short: "Lead connections of a cluster to another's API server elsewhere; off ends it",
		Long: `Lead the connections that cluster A opens to the API server of B to another address, such as 10.210.0.1:7000, where a
relay may be slow or break. Connections that are open stay. The address "off" ends the detour; there is one at a time for
each cluster A.`,
		Args: cobra.ExactArgs(3),
		RunE: func(command *cobra.Command, args []string) error {
			to := netip.AddrPort{}
			if args[2] != "off" {
				var err error
				if to, err = netip.ParseAddrPort(args[2]); err != nil {
					return err
				}
			}
			return a.testbed.Detour(command.Context(), args[0], args[1], to)
		},
	}
}

// component is a command that does something to one component of a cluster.
func (a *app) component(verb, short string) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " CLUSTER COMPONENT",
		Short: short,
		Long: short + `.

Components are etcd, apiserver, controller-manager, scheduler, coredns, kwok, metrics-server, provisioner, snapshot-controller,
scheduler/NAME for an extra scheduler, and for each worker N containerd/N, kubelet/N and proxy/N.`,
		Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, args []string) error {
			ctx := command.Context()
			return a.testbed.Act(ctx, args[0], func(c cluster.Cluster) error {
				switch verb {
				case "start":
					return c.Start(ctx, args[1])
				case "stop":
					return c.Stop(ctx, args[1])
				default:
					return c.Kill(ctx, args[1])
				}
			})
		},
	}
}
