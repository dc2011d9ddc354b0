// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/netip"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/hanse-dev/hanse/internal/agentless"
	"github.com/hanse-dev/hanse/internal/kubelet"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trace"
)

func newKubeletCommand() *cobra.Command {
	server := &serverFlags{}
	config := kubelet.Config{}
	command := &cobra.Command{
		Use:   "kubelet",
		Short: "Run every virtual node of this cluster",
		Long: "Shows each cluster that offers something as a virtual node, takes the pods that are bound to it out, and\n" +
			"brings their status, logs and shells back.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return server.outlive(command.Context(), func(ctx context.Context) error { return runKubelet(ctx, server, config) })
		},
	}
	server.bind(command.Flags())
	server.faults.bind(command.Flags())
	server.tracing.bind(command.Flags())
	bindKubelet(command.Flags(), &config)
	config.PodIPs = podIPs()
	own, _ := netip.ParseAddr(os.Getenv("POD_IP")) // there is a check for one that is none
	command.Flags().TextVar(&config.NodeIP, "node-ip", own,
		"address at which the API server reaches this process; by default the environment variable POD_IP")
	return command
}

func runKubelet(ctx context.Context, server *serverFlags, config kubelet.Config) error {
	id := ""
	if server.tracing.config.Endpoint != "" { // nothing else needs it
		var err error
		if id, err = server.clusterID(ctx); err != nil {
			return err
		}
	}
	mgr, err := server.newManager("kubelet", ctrl.Options{Cache: cache.Options{ByObject: kubelet.CacheByObject()}})
	if err != nil {
		return err
	}
	links, err := server.addLinks(mgr, peers.Config{UserAgent: "hanse-kubelet", Adapt: agentless.Adapt, Pods: kubelet.PodsOf(mgr.GetClient())})
	if err != nil {
		return err
	}
	return server.tracing.run(ctx, "hanse-kubelet", id, func(tracer *trace.Tracer) error {
		config.Tracer = tracer
		if err := kubelet.SetupWithManager(mgr, config, links, server.faults.clock()); err != nil {
			return err
		}
		return mgr.Start(ctx)
	})
}

func bindKubelet(flags *pflag.FlagSet, config *kubelet.Config) {
	config.Default()
	flags.IntVar(&config.FirstPort, "first-port", config.FirstPort, "first port of the kubelet API; each virtual node has one")
	flags.IntVar(&config.LastPort, "last-port", config.LastPort, "last port of the kubelet API")
	flags.IntVar(&config.Workers, "workers", config.Workers, "how many pods are worked on at the same time")
	flags.DurationVar(&config.LeaseDuration, "lease-duration", config.LeaseDuration,
		"how long a virtual node counts as alive after its last sign of life")
	flags.DurationVar(&config.LeaseRenewal, "lease-renewal", config.LeaseRenewal,
		"how often a virtual node gives a sign of life; less often with more than 400 nodes, down to twice in --lease-duration")
	flags.DurationVar(&config.DefaultToleration, "default-toleration", config.DefaultToleration,
		"for how long pods tolerate a node that is not ready if their authors have not said: as this cluster's API server has it")
	flags.StringVar(&config.CertFile, "tls-cert-file", "", "serving certificate of the kubelet API; by default one is made at start")
	flags.StringVar(&config.KeyFile, "tls-private-key-file", "", "key of the serving certificate")
}
