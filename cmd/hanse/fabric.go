// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hanse-dev/hanse/internal/fabric"
	"github.com/hanse-dev/hanse/internal/kernel"
)

// fabricFlags are those of `hanse fabric`.
type fabricFlags struct {
	server    serverFlags
	config    fabric.Config
	vxlanPort int
}

func newFabricCommand() *cobra.Command {
	flags := &fabricFlags{}
	command := &cobra.Command{
		Use:   "fabric",
		Short: "Lead traffic between this node and the gateway",
		Long: "Leads what pods of this node say to those of peers to the gateway of the cluster, and guards the pods of peers that\n" +
			"run here. It runs on the network of its node, with NET_ADMIN. All that it makes goes when its DaemonSet is deleted.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return flags.server.outlive(command.Context(), flags.run)
		},
	}
	flags.bind(command.Flags())
	return command
}

func (f *fabricFlags) bind(flags *pflag.FlagSet) {
	f.server.bind(flags)
	f.server.faults.bind(flags)
	hide(flags, "leader-elect") // each node has its own
	flags.IntVar(&f.vxlanPort, "vxlan-port", kernel.DefaultVXLANPort, "UDP port of the VXLAN between gateway and nodes; the same for hanse gateway")
	flags.BoolVar(&f.config.Remove, "remove", false, "leave the node as it was at each end of this process, also while the DaemonSet stays")
}

func (f *fabricFlags) run(ctx context.Context) error {
	f.server.leaderElect = false
	f.config.Namespace, f.config.Node = f.server.namespace, os.Getenv("NODE_NAME")
	f.config.Clock = f.server.faults.clock()
	mgr, err := f.server.newManager("fabric", ctrl.Options{Cache: fabric.Cache(f.server.namespace)})
	if err != nil {
		return err
	}
	made := kernel.NewNode(kernel.NodeConfig{VXLANPort: f.vxlanPort})
	if err := fabric.SetupWithManager(mgr, f.config, made); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
