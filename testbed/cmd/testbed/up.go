// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
)

// upFlags are the options of clusters as the user wrote them.
type upFlags struct {
	plan.Options
	podCIDR, serviceCIDR  string
	families              string
	args, extraSchedulers []string
	rootless              bool
}

func (a *app) up() *cobra.Command {
	flags := &upFlags{}
	command := &cobra.Command{
		Use:   "up CLUSTER...",
		Short: "Bring clusters up, and wait until they work",
		Long: `Bring clusters up, and wait until they work.

A cluster that is up already is left alone; what has stopped is started. An option that is not given stays what it is,
so this also changes running clusters: the number of workers, flags of components, and so on. CIDRs, NAT, Traefik and the
version of Kubernetes are for ever.`,
		Example: `  testbed up lubeck hamburg
  testbed up lubeck --workers 3 --audit
  testbed up bremen --workers 0 --simulated-nodes 100
  testbed up rostock --rootless --simulated-nodes 2
  testbed up home --nat
  testbed up both --ip-families dual
  testbed up old --kubernetes v1.36.3
  testbed up lubeck --extra-scheduler slow:200ms --arg controller-manager:node-monitor-grace-period=8s`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, names []string) error {
			change, err := flags.change(command.Flags())
			if err != nil {
				return err
			}
			a.testbed.Rootless = a.testbed.Rootless || flags.rootless
			return a.testbed.Up(command.Context(), names, change)
		},
	}
	flags.add(command.Flags())
	return command
}

func (f *upFlags) add(set *pflag.FlagSet) {
	f.Options = plan.DefaultOptions()
	set.IntVar(&f.Workers, "workers", f.Workers, "how many workers each cluster has")
	set.IntVar(&f.SimulatedNodes, "simulated-nodes", 0, "how many nodes each cluster has that KWOK simulates")
	set.DurationVar(&f.SimulatedStart, "simulated-start", 0, "how long pods on simulated nodes take to start")
	set.StringVar(&f.families, "ip-families", "ipv4", "ipv4, ipv6 or dual: sets both CIDRs to what clusters have of these")
	set.StringVar(&f.podCIDR, "pod-cidr", f.PodCIDR.String(), "the range of pod addresses, or one of each family with a comma between")
	set.StringVar(&f.serviceCIDR, "service-cidr", f.ServiceCIDR.String(), "the range of Service addresses, or one of each family")
	set.StringVar(&f.Kubernetes, "kubernetes", f.Kubernetes, "the version of Kubernetes; another than this is built, once")
	set.StringArrayVar(&f.extraSchedulers, "extra-scheduler", nil,
		"one more scheduler, as NAME[:delay]; the delay is how much longer it takes for each pod")
	set.StringArrayVar(&f.args, "arg", nil, "a flag of a component, as COMPONENT:FLAG=VALUE")
	set.BoolVar(&f.Metrics, "metrics", false, "run metrics-server, for kubectl top and HorizontalPodAutoscalers")
	set.BoolVar(&f.Storage, "storage", false, "make volumes for claims: directories on the workers' disks, of the default StorageClass local")
	set.BoolVar(&f.Snapshots, "snapshots", false, "take VolumeSnapshots of these volumes, with the default VolumeSnapshotClass local; includes --storage")
	set.BoolVar(&f.Ingress, "ingress", false, "run Traefik, the controller of the default IngressClass traefik, at node ports 30080 and 30443")
	set.BoolVar(&f.Multicluster, "multicluster", false, "have the DNS answer for clusterset.local, by ServiceImports")
	set.BoolVar(&f.NAT, "nat", false, "put the nodes behind NAT: they reach other clusters, and are reached by none")
	set.BoolVar(&f.rootless, "rootless", false, "use the loopback interface and no root, also as root: control planes and simulated nodes only")
	set.BoolVar(&f.Audit, "audit", false, "log each API request to logs/audit.log in the cluster's folder")
}

// change makes a function that sets those options that the user gave.
func (f *upFlags) change(set *pflag.FlagSet) (func(*plan.Options), error) {
	if err := f.parse(set); err != nil {
		return nil, err
	}
	pods, services, err := plan.DefaultRanges(f.families)
	if err != nil {
		return nil, usage(set, "ip-families", err)
	}
	return func(options *plan.Options) {
		if set.Changed("ip-families") {
			options.PodCIDR, options.ServiceCIDR = pods, services
		}
		for name, apply := range map[string]func(){
			"workers":         func() { options.Workers = f.Workers },
			"simulated-nodes": func() { options.SimulatedNodes = f.SimulatedNodes },
			"simulated-start": func() { options.SimulatedStart = f.SimulatedStart },
			"pod-cidr":        func() { options.PodCIDR = f.PodCIDR },
			"service-cidr":    func() { options.ServiceCIDR = f.ServiceCIDR },
			"kubernetes":      func() { options.Kubernetes = f.Kubernetes },
			"extra-scheduler": func() { options.ExtraSchedulers = f.ExtraSchedulers },
			"arg":             func() { options.Args = f.Args },
			"audit":           func() { options.Audit = f.Audit },
			"metrics":         func() { options.Metrics = f.Metrics },
			"storage":         func() { options.Storage = f.Storage },
			"snapshots":       func() { options.Snapshots = f.Snapshots },
			"ingress":         func() { options.Ingress = f.Ingress },
			"multicluster":    func() { options.Multicluster = f.Multicluster },
			"nat":             func() { options.NAT = f.NAT },
		} {
			if set.Changed(name) {
				apply()
			}
		}
	}, nil
}

func (f *upFlags) parse(set *pflag.FlagSet) error {
	var err error
	if f.PodCIDR, err = plan.ParseRanges(f.podCIDR); err != nil {
		return usage(set, "pod-cidr", err)
	}
	if f.ServiceCIDR, err = plan.ParseRanges(f.serviceCIDR); err != nil {
		return usage(set, "service-cidr", err)
	}
	for _, text := range f.extraSchedulers {
		if text == "" { // takes away the ones that a cluster has
			continue
		}
		scheduler, err := plan.ParseExtraScheduler(text)
		if err != nil {
			return usage(set, "extra-scheduler", err)
		}
		f.ExtraSchedulers = append(f.ExtraSchedulers, scheduler)
	}
	for _, text := range f.args {
		if text == "" {
			continue
		}
		arg, err := plan.ParseArg(text)
		if err != nil {
			return usage(set, "arg", err)
		}
		f.Args = append(f.Args, arg)
	}
	return nil
}
