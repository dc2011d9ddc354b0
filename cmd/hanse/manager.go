package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/namespaces"
	"github.com/hanse-dev/hanse/internal/peering"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/reflector"
	"github.com/hanse-dev/hanse/internal/tenant"
	"github.com/hanse-dev/hanse/internal/trace"
	"github.com/hanse-dev/hanse/internal/version"
)

// managerFlags are those of `hanse manager`.
type managerFlags struct {
	server       serverFlags
	market       marketFlags
	peering      peering.Config
	podCIDR      string
	addressPools []string
	offloading   offloadingFlags
	tracer       *trace.Tracer
}

func newManagerCommand() *cobra.Command {
	flags := &managerFlags{}
	command := &cobra.Command{
		Use:   "manager",
		Short: "Run the controllers: peers, advertisements, namespaces, and the pods of others",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := flags.parse(); err != nil {
				return err
			}
			return flags.server.outlive(command.Context(), flags.run)
		},
	}
	flags.bind(command.Flags())
	return command
}

func (f *managerFlags) bind(flags *pflag.FlagSet) {
	f.peering.Default()
	f.server.bind(flags)
	f.server.faults.bind(flags)
	f.server.tracing.bind(flags)
	flags.StringVar(&f.peering.ClusterID, "cluster-id", "",
		"id of this cluster: a DNS label of at most 30 characters that never changes; by default one is made from the cluster's key")
	flags.StringVar(&f.podCIDR, "pod-cidr", "", "range of this cluster's pods; by default guessed from the nodes")
	flags.StringSliceVar(&f.addressPools, "address-pool", nil,
		"ranges out of which each peer's pods get theirs; by default "+joined(peering.DefaultAddressPools()))
	flags.DurationVar(&f.peering.ProbePeriod, "probe-period", f.peering.ProbePeriod,
		"how often the API server of a peer is probed; less often with more than 300 peers, at most ten a second")
	flags.DurationVar(&f.peering.BandwidthInterval, "bandwidth-interval", f.peering.BandwidthInterval,
		"how often it is measured how fast data comes from a provider, by a sample of 256Ki; 0 turns it off, for consumers of this cluster too")
	flags.DurationVar(&f.peering.PartingDeadline, "parting-deadline", f.peering.PartingDeadline,
		"how long a peer that runs pods here has to leave after its Peer was deleted")
	flags.StringSliceVar(&f.peering.Servers, "api-server", nil,
		"addresses of this cluster's API server as peers reach it, the best first; by default those of Service kubernetes")
	flags.DurationVar(&f.peering.SessionLife, "session-life", f.peering.SessionLife,
		"for how long a peer's credentials live unless it renews them, and ours are asked for")
	flags.DurationVar(&f.peering.RenewalPeriod, "renewal-period", f.peering.RenewalPeriod, "how often our credentials are renewed")
	f.market.bind(flags)
	f.offloading.bind(flags)
}

func joined(prefixes []netip.Prefix) string {
	var texts []string
	for _, prefix := range prefixes {
		texts = append(texts, prefix.String())
	}
	return strings.Join(texts, ",")
}

func (f *managerFlags) run(ctx context.Context) error {
	mgr, err := f.server.newManager("manager", ctrl.Options{Cache: f.cache()})
	if err != nil {
		return err
	}
	if err := f.introduce(ctx, mgr); err != nil {
		return err
	}
	return f.server.tracing.run(ctx, "hanse-manager", f.peering.ClusterID, func(tracer *trace.Tracer) error {
		f.tracer = tracer
		return f.control(ctx, mgr)
	})
}

// control runs the controllers.
func (f *managerFlags) control(ctx context.Context, mgr manager.Manager) error {
	links, err := f.server.addLinks(mgr, peers.Config{UserAgent: "hanse-manager", Adapt: f.market.agentlessOffers()})
	if err != nil {
		return err
	}
	for _, add := range []func(manager.Manager, *peers.Links) error{
		f.addPeering, f.market.addPolicies, f.market.addAdvertising, f.addTenant, f.addNamespaces, f.addReflector,
	} {
		if err := add(mgr, links); err != nil {
			return err
		}
	}
	return mgr.Start(ctx)
}

// parse reads the flags that pflag has no type for.
func (f *managerFlags) parse() error {
	if err := f.market.parse(f.server.namespace); err != nil {
		return err
	}
	if err := f.offloading.parse(); err != nil {
		return err
	}
	f.peering.Namespace = f.server.namespace
	f.peering.Version = version.Version
	now := f.server.faults.clock()
	f.peering.Clock, f.market.clock = now, now
	f.market.advertising.PodCIDR = f.podCIDR
	if f.podCIDR != "" {
		prefix, err := netip.ParsePrefix(f.podCIDR)
		if err != nil {
			return fmt.Errorf("--pod-cidr: %w", err)
		}
		f.peering.PodCIDRs = []netip.Prefix{prefix}
	}
	var pools []netip.Prefix
	for _, text := range f.addressPools {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("--address-pool: %w", err)
		}
		pools = append(pools, prefix)
	}
	if len(pools) > 0 {
		f.peering.AddressPools = pools
	}
	return nil
}

// cache keeps of each object what is read of it. Of ConfigMaps those in our own namespace are enough.
func (f *managerFlags) cache() cache.Options {
	strip := cache.TransformStripManagedFields()
	kept := map[client.Object]cache.ByObject{
		&corev1.Pod{}:       {Transform: reflector.KeepReferences(exchange.TrimPod)},
		&corev1.Node{}:      {Transform: exchange.TrimNode},
		&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{f.server.namespace: {}}, Transform: strip},
	}
	maps.Copy(kept, reflector.CacheByObject())
	return cache.Options{DefaultTransform: strip, ByObject: kept}
}

// introduce settles which cluster this is. It happens before anything else, also where another replica leads.
func (f *managerFlags) introduce(ctx context.Context, mgr manager.Manager) error {
	direct, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		return err
	}
	self, err := peering.EnsureClusterInfo(ctx, direct, f.peering)
	if err != nil {
		return err
	}
	f.peering.ClusterID, f.peering.ClusterKey = self.ClusterID, self.Key
	f.market.advertising.ClusterID = self.ClusterID
	f.peering.CA, err = authority(mgr.GetConfig())
	return err
}

func (f *managerFlags) addPeering(mgr manager.Manager, links *peers.Links) error {
	recorder := mgr.GetEventRecorder("hanse-peering")
	controller := peering.New(f.peering, mgr.GetClient(), mgr.GetAPIReader(), peering.OverLinks(links), recorder)
	return controller.SetupWithManager(mgr)
}

// authority returns the certificates that our own API server's is signed by. Peers get them with an invitation.
func authority(config *rest.Config) ([]byte, error) {
	if len(config.CAData) > 0 || config.CAFile == "" {
		return config.CAData, nil
	}
	data, err := os.ReadFile(config.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read the certificate authority of the API server: %w", err)
	}
	return data, nil
}

func (f *managerFlags) addTenant(mgr manager.Manager, _ *peers.Links) error {
	return tenant.SetupWithManager(mgr, tenant.Config{
		Namespace: f.server.namespace, ClusterID: f.peering.ClusterID,
		ServiceAccount: f.peering.ManagerServiceAccount, PodCIDRs: f.peering.PodCIDRs,
		Decider: f.market.maker, Clock: f.server.faults.clock(), SendOn: f.market.advertising.Aggregate,
		Tracer: f.tracer,
	})
}

func (f *managerFlags) addNamespaces(mgr manager.Manager, links *peers.Links) error {
	controllers, err := namespaces.New(namespaces.Config{
		Client:   mgr.GetClient(),
		Live:     mgr.GetAPIReader(),
		Links:    links,
		Decider:  f.market.maker,
		Events:   mgr.GetEventRecorder("hanse-placement"),
		Clock:    f.server.faults.clock(),
		Instance: cmp.Or(os.Getenv("POD_NAME"), f.peering.ManagerServiceAccount),

		Namespace: f.server.namespace,
		Default:   f.offloading.defaults,
		Aggregate: f.market.advertising.Aggregate,
		ClusterID: f.peering.ClusterID,
	})
	if err != nil {
		return err
	}
	f.market.maker.Gather(policy.Placement, controllers.Gather)
	return controllers.SetupWithManager(mgr)
}

func (f *managerFlags) addReflector(mgr manager.Manager, links *peers.Links) error {
	watches, err := metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("make client of metadata: %w", err)
	}
	return reflector.SetupWithManager(mgr, reflector.Config{
		Client:         mgr.GetClient(),
		Live:           mgr.GetAPIReader(),
		Metadata:       watches,
		Links:          links,
		Events:         mgr.GetEventRecorder("hanse-reflector"),
		Namespace:      f.server.namespace,
		ServiceAccount: f.peering.ManagerServiceAccount,
	})
}
