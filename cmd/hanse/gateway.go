// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hanse-dev/hanse/internal/gateway"
	"github.com/hanse-dev/hanse/internal/kernel"
	"github.com/hanse-dev/hanse/internal/topology"
)

// gatewayFlags are those of `hanse gateway`.
type gatewayFlags struct {
	server    serverFlags
	config    gateway.Config
	vxlanPort int
}

func newGatewayCommand() *cobra.Command {
	flags := &gatewayFlags{}
	command := &cobra.Command{
		Use:   "gateway",
		Short: "Connect the pods of this cluster and of peers",
		Long: "Carries all traffic between the pods of this cluster and those of peers, through a tunnel to each. Of several gateways\n" +
			"one is active, and another takes over when it is gone. It runs in a pod with a network of its own, NET_ADMIN, and, where\n" +
			"the kernel has no WireGuard, /dev/net/tun.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return flags.server.outlive(command.Context(), flags.run)
		},
	}
	flags.bind(command.Flags())
	command.AddCommand(newForward6Command())
	return command
}

// newForward6Command is for the init container of the gateway's pod, which may write sysctls, and for nobody else.
func newForward6Command() *cobra.Command {
	return &cobra.Command{
		Use:    "forward-ipv6",
		Short:  "Have the kernel forward IPv6 in this pod, if there is any, and go on with connections that come from another gateway",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(*cobra.Command, []string) error {
			forwards := kernel.Forward6()
			if errors.Is(forwards, kernel.ErrNoIPv6) {
				forwards = nil
			}
			return errors.Join(forwards, kernel.Liberal())
		},
	}
}

func (f *gatewayFlags) bind(flags *pflag.FlagSet) {
	f.config.Default()
	f.server.bind(flags)
	f.server.faults.bind(flags)
	hide(flags, "leader-elect") // it elects in its own way
	flags.IntVar(&f.config.Port, "port", f.config.Port, "UDP port of WireGuard")
	flags.IntVar(&f.vxlanPort, "vxlan-port", kernel.DefaultVXLANPort, "UDP port of the VXLAN between gateway and nodes; the same for hanse fabric")
	flags.DurationVar(&f.config.LeaseDuration, "lease-duration", f.config.LeaseDuration,
		"how long the active gateway may be silent before another takes over")
	flags.DurationVar(&f.config.LeaseRenewal, "lease-renewal", f.config.LeaseRenewal, "how often the active gateway says that it is there")
}

func (f *gatewayFlags) run(ctx context.Context) error {
	f.server.leaderElect = false
	f.config.Namespace, f.config.Pod, f.config.Node = f.server.namespace, os.Getenv("POD_NAME"), os.Getenv("NODE_NAME")
	f.config.Addresses = podIPs()
	f.config.MTU = linkMTU(f.config.Addresses)
	f.config.Clock = f.server.faults.clock()
	mgr, err := f.server.newManager("gateway", ctrl.Options{Cache: topology.Cache(f.server.namespace)})
	if err != nil {
		return err
	}
	made := kernel.NewGateway(kernel.GatewayConfig{VXLANPort: f.vxlanPort, Log: ctrl.Log.WithName("wireguard")})
	if err := gateway.SetupWithManager(mgr, f.config, made); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// podIPs returns all addresses of this pod, the main one first.
func podIPs() []netip.Addr {
	var all []netip.Addr
	for text := range strings.SplitSeq(os.Getenv("POD_IPS"), ",") {
		if address, err := netip.ParseAddr(text); err == nil { // who needs one checks that there is one
			all = append(all, address)
		}
	}
	return all
}

// linkMTU returns the MTU of the interface that has one of the addresses, 0 if none has.
func linkMTU(addresses []netip.Addr) int {
	links, _ := net.Interfaces()
	for _, link := range links {
		own, _ := link.Addrs()
		for _, a := range own {
			prefix, err := netip.ParsePrefix(a.String())
			if err == nil && slices.Contains(addresses, prefix.Addr()) {
				return link.MTU
			}
		}
	}
	return 0
}
