// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hanse-dev/hanse/internal/discovery"
)

// discoveryFlags are those of `hanse discovery`.
type discoveryFlags struct {
	server serverFlags
	config discovery.Config
}

func newDiscoveryCommand() *cobra.Command {
	flags := &discoveryFlags{}
	command := &cobra.Command{
		Use:   "discovery",
		Short: "Announce this cluster, and find others",
		Long: "Announces this cluster on the local network by multicast DNS and finds others there, or by the DNS SRV records of a\n" +
			"domain. What is found becomes a Peer without roles, until an administrator accepts it.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return flags.server.outlive(command.Context(), flags.run)
		},
	}
	flags.bind(command.Flags())
	return command
}

func (f *discoveryFlags) bind(flags *pflag.FlagSet) {
	f.config.Default()
	f.server.bind(flags)
	flags.BoolVar(&f.config.Multicast, "multicast", false, "announce and look on the local network")
	flags.StringSliceVar(&f.config.Domains, "domain", nil, "domains whose SRV records _hanse._tcp are looked up")
	flags.DurationVar(&f.config.Period, "period", f.config.Period, "how often to look")
	flags.StringSliceVar(&f.config.Self.Servers, "api-server", nil,
		"addresses of this cluster's API server to announce; by default none are")
	flags.IPVar(&f.config.Address, "node-ip", net.ParseIP(os.Getenv("POD_IP")),
		"address of this machine on the local network; by default the environment variable POD_IP")
}

func (f *discoveryFlags) run(ctx context.Context) error {
	id, err := f.server.clusterID(ctx)
	if err != nil {
		return err
	}
	f.config.Self.ClusterID = id
	mgr, err := f.server.newManager("discovery", ctrl.Options{})
	if err != nil {
		return err
	}
	if err := discovery.New(f.config, mgr.GetClient()).SetupWithManager(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
