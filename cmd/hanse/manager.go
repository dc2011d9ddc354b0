// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/advertisement"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/mover"
	"github.com/hanse-dev/hanse/internal/multicluster"
	"github.com/hanse-dev/hanse/internal/namespaces"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peering"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/policymaker"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/reflector"
	"github.com/hanse-dev/hanse/internal/remoteevents"
	"github.com/hanse-dev/hanse/internal/tenant"
	"github.com/hanse-dev/hanse/internal/trace"
	"github.com/hanse-dev/hanse/internal/version"
	"github.com/hanse-dev/hanse/internal/volumes"
)

// managerFlags are those of `hanse manager`, and what is made of them.
type managerFlags struct {
	server      serverFlags
	peering     peering.Config
	advertising advertisement.Config
	accounts    time.Duration // how often they are written
	policies    policymaker.Config
	offloading  namespaces.Default // without a selector no namespace is offloaded by default
	podMetadata offload.Metadata
	reflected   map[string]string // kind → which of its objects
	reach       reflection.Reaches
	listed      []reflection.ListedKind // of which objects of ours go to peers
	allowed     []reflection.ListedKind // of which peers may have objects here
	clock       clock.Clock
	maker       *policymaker.Maker
	publisher   *advertisement.Publisher
	tracer      *trace.Tracer
	remote      *remoteevents.Writer
}

func newManagerCommand() *cobra.Command {
	flags := &managerFlags{}
	command := &cobra.Command{
		Use:   "manager",
		Short: "Run the controllers: peers, advertisements, namespaces, and the pods of others",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := flags.complete(); err != nil {
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
	flags.StringToStringVar(&f.reflected, "reflect", nil,
		"which objects have copies at providers that run pods of their namespace, such as Secret=Annotated: of ConfigMap and Secret All, "+
			"Referenced, Annotated or None, by default Referenced; of Service, Ingress and listed kinds All, Annotated or None, by default All")
	f.bindKinds(flags)
	flags.StringSliceVar((*[]string)(&f.podMetadata), "pod-metadata", nil,
		"`patterns` of labels and annotations that pods of consumers have here besides the harmless ones, such as monitoring.example.org/*; "+
			"a ! before one takes out what it matches")
	flags.StringVar(&f.peering.ClusterID, "cluster-id", "",
		"id of this cluster: a DNS label of at most 30 characters that never changes; by default one is made from the cluster's key")
	f.bindNetwork(flags)
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
	f.bindMarket(flags)
	flags.Func("offload-namespaces",
		"`labels` of the namespaces in which to keep a NamespaceOffloading, as in kubectl get -l; by default none",
		func(text string) (err error) {
			f.offloading.Selector, err = labels.Parse(text)
			return err
		})
	flags.Func("offload-spec", "spec of those NamespaceOffloadings, as `JSON`; by default {}", func(text string) error {
		return yaml.UnmarshalStrict([]byte(text), &f.offloading.Spec)
	})
}

// bindKinds binds the flags that list kinds.
func (f *managerFlags) bindKinds(flags *pflag.FlagSet) {
	kinds := func(name string, to *[]reflection.ListedKind, usage string) {
		flags.Func(name, usage, func(text string) error {
			kind, err := reflection.ParseListedKind(text)
			*to = append(*to, kind)
			return err
		})
	}
	kinds("reflect-kind", &f.listed, "a further kind of which objects have copies at providers, as `JSON` such as "+
		`{"group": "example.org", "version": "v1", "kind": "Widget", "omit": ["spec.secret"], "status": true}`)
	kinds("allow-kind", &f.allowed, "a kind of which peers may have objects here where their Peers name it, as `JSON` with group, version and kind, and "+
		"definition, a ConfigMap here with the definition to install where there is none")
}

// bindNetwork binds the flags of what peers are told of the network here, and of how this cluster sees theirs.
func (f *managerFlags) bindNetwork(flags *pflag.FlagSet) {
	c := &f.peering
	ranges := func(name string, to *[]netip.Prefix, usage string) {
		flags.Func(name, usage, func(text string) error {
			for one := range strings.SplitSeq(text, ",") {
				prefix, err := netip.ParsePrefix(one)
				if err != nil {
					return err
				}
				*to = append(*to, prefix)
			}
			return nil
		})
	}
	pools := fmt.Sprintf("by default %v and %v", c.AddressPools, c.ServicePools)
	c.AddressPools, c.ServicePools = nil, nil // the first that is given replaces those
	ranges("pod-cidr", &c.PodCIDRs, "`ranges` of this cluster's pods; by default guessed from the nodes")
	ranges("address-pool", &c.AddressPools, "`ranges` in which peers' pods are seen whose own are taken here; see --service-pool")
	ranges("service-pool", &c.ServicePools, "`ranges` in which peers' Services are seen whose own are taken here; "+pools)
	flags.StringSliceVar(&c.Nameservers, "cluster-dns", nil,
		"`addresses` of this cluster's DNS; by default those of the Service in kube-system with the label k8s-app=kube-dns")
	flags.BoolVar(&c.Gateway, "gateway", false, "tell peers of the gateway of this cluster, and let it connect to theirs")
	flags.StringSliceVar(&c.GatewayEndpoints, "gateway-endpoint", nil,
		"`host:port` at which peers reach the gateway, the best first; by default found out from Service hanse-gateway, and none "+
			"where that has no address outside: then the gateway only dials")
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

// managerBudget is what one peer may cost the manager, which is told of no pods: only of one offer, of the namespaces that we have
// there, and of the metadata of some ten thousand copies at most.
func managerBudget() peers.Budget {
	budget := peers.DefaultBudget
	budget.HeldBytes, budget.LeastBytes = 8<<20, 0
	budget.ReceivedBytes, budget.ListBytes, budget.BytesPerSecond = 6<<20, 8<<20, 2<<20
	return budget
}

// control runs the controllers.
func (f *managerFlags) control(ctx context.Context, mgr manager.Manager) error {
	links, err := f.server.addLinks(mgr, peers.Config{UserAgent: "hanse-manager", Adapt: f.agentlessOffers(), Budget: managerBudget()})
	if err != nil {
		return err
	}
	for _, add := range []func(manager.Manager, *peers.Links) error{
		f.addPeering, f.addPolicies, f.addAdvertising, f.addTenant, f.addNamespaces, f.addRemoteEvents, f.addReflector, f.addVolumes,
		f.addMulticluster, f.addMover, f.addMarket, f.addAccounts,
	} {
		if err := add(mgr, links); err != nil {
			return err
		}
	}
	return mgr.Start(ctx)
}

// complete hands on what several parts need, and checks what only all flags together tell.
func (f *managerFlags) complete() error {
	if f.offloading.Selector == nil && !reflect.DeepEqual(f.offloading.Spec, v1alpha1.NamespaceOffloadingSpec{}) {
		return errors.New("--offload-spec is for --offload-namespaces")
	}
	var err error
	if f.reach, err = reflection.ParseReaches(f.reflected, f.listed); err != nil {
		return fmt.Errorf("--reflect: %w", err)
	}
	namespace := f.server.namespace
	f.peering.Namespace, f.advertising.Namespace, f.policies.Namespace = namespace, namespace, namespace
	f.clock = f.server.faults.clock()
	f.peering.Clock, f.peering.Version = f.clock, version.Version
	f.peering.Default()
	f.advertising.Default()
	return nil
}

// cache keeps of each object what is read of it. Of ConfigMaps those in our own namespace are enough.
func (f *managerFlags) cache() cache.Options {
	strip := cache.TransformStripManagedFields()
	own := map[string]cache.Config{f.server.namespace: {}}
	services := map[string]cache.Config{f.server.namespace: {}, metav1.NamespaceSystem: {}}
	deployments := map[string]cache.Config{f.server.namespace: {}}
	if f.peering.Gateway { // else there is no such namespace, and nobody reflects Services
		deployments[v1alpha1.NetworkNamespace(f.server.namespace)] = cache.Config{}
		services = nil // which is all
	}
	kept := map[client.Object]cache.ByObject{
		&corev1.Pod{}:         {Transform: namespaces.KeepWaiting(reflector.KeepReferences(exchange.TrimPod))},
		&corev1.Node{}:        {Transform: exchange.TrimNode},
		&v1alpha1.ShadowPod{}: {Transform: tenant.TrimShadowPod},
		&corev1.ConfigMap{}:   {Namespaces: own, Transform: strip},
		&corev1.Service{}:     {Namespaces: services, Transform: strip},
		&appsv1.Deployment{}:  {Namespaces: deployments, Transform: strip},
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
	if err := peering.EnsureClusterInfo(ctx, direct, &f.peering); err != nil {
		return err
	}
	f.advertising.ClusterID, f.peering.SendOn = f.peering.ClusterID, f.advertising.Aggregate
	config := rest.CopyConfig(mgr.GetConfig())
	if err := rest.LoadTLSFiles(config); err != nil {
		return fmt.Errorf("read the certificate authority of the API server: %w", err)
	}
	f.peering.CA = config.CAData // peers get it with an invitation
	return nil
}

func (f *managerFlags) addPeering(mgr manager.Manager, links *peers.Links) error {
	recorder := mgr.GetEventRecorder("hanse-peering")
	controller := peering.New(f.peering, mgr.GetClient(), mgr.GetAPIReader(), links, recorder)
	return controller.SetupWithManager(mgr)
}

func (f *managerFlags) addTenant(mgr manager.Manager, _ *peers.Links) error {
	return tenant.SetupWithManager(mgr, tenant.Config{
		Namespace: f.server.namespace, ClusterID: f.peering.ClusterID, ClusterKey: f.peering.ClusterKey,
		ServiceAccount: f.peering.ManagerServiceAccount, PodCIDRs: f.peering.PodCIDRs, PodMetadata: f.podMetadata,
		Decider: f.maker, Clock: f.clock, Room: f.publisher, SendOn: f.advertising.Aggregate,
		Tracer: f.tracer, Network: f.peering.Gateway, Kinds: f.allowed,
	})
}

func (f *managerFlags) addNamespaces(mgr manager.Manager, links *peers.Links) error {
	config := namespaces.Config{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Links: links, Decider: f.maker,
		Events: mgr.GetEventRecorder("hanse-placement"), Clock: f.clock,
		Instance:  cmp.Or(os.Getenv("POD_NAME"), f.peering.ManagerServiceAccount),
		Namespace: f.server.namespace, ClusterID: f.peering.ClusterID, Aggregate: f.advertising.Aggregate,
	}
	if f.offloading.Selector != nil {
		config.Default = &f.offloading
	}
	controllers, err := namespaces.New(config)
	if err != nil {
		return err
	}
	f.maker.Gather(policy.Placement, controllers.Gather)
	return controllers.SetupWithManager(mgr)
}

// addRemoteEvents comes before all who tell of events.
func (f *managerFlags) addRemoteEvents(mgr manager.Manager, links *peers.Links) error {
	f.remote = remoteevents.New(mgr.GetClient(), f.clock, links.MayTell)
	return mgr.Add(f.remote)
}

func (f *managerFlags) addReflector(mgr manager.Manager, links *peers.Links) error {
	watches, err := metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("make client of metadata: %w", err)
	}
	return reflector.SetupWithManager(mgr, reflector.Config{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Metadata: watches, Links: links,
		Clock:     f.clock,
		Events:    mgr.GetEventRecorder("hanse-reflector"),
		Tell:      f.remote.Tell,
		Network:   f.peering.Gateway,
		Reach:     f.reach,
		Listed:    f.listed,
		Namespace: f.server.namespace, ServiceAccount: f.peering.ManagerServiceAccount,
	})
}

func (f *managerFlags) addVolumes(mgr manager.Manager, links *peers.Links) error {
	return volumes.SetupWithManager(mgr, volumes.Config{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Links: links, Events: mgr.GetEventRecorder("hanse-volumes"),
		Namespace: f.server.namespace, Tell: f.remote.Tell, Clock: f.clock,
	})
}

func (f *managerFlags) addMulticluster(mgr manager.Manager, links *peers.Links) error {
	return multicluster.SetupWithManager(mgr, multicluster.Config{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Links: links, Namespace: f.server.namespace, ClusterID: f.peering.ClusterID, Network: f.peering.Gateway,
	})
}

func (f *managerFlags) addMover(mgr manager.Manager, _ *peers.Links) error {
	return mover.SetupWithManager(mgr, mover.Config{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("hanse-mover"), Clock: f.clock,
	})
}

// addPolicies comes before everything that asks them.
func (f *managerFlags) addPolicies(mgr manager.Manager, _ *peers.Links) error {
	recorder := mgr.GetEventRecorder("hanse-policy")
	f.maker = policymaker.New(f.policies, mgr.GetClient(), mgr.GetAPIReader(), f.clock, recorder)
	return errors.Join(f.maker.SetupWithManager(mgr), f.addTrials(mgr))
}
