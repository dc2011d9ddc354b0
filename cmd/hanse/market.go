package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/advertisement"
	"github.com/hanse-dev/hanse/internal/agentless"
	"github.com/hanse-dev/hanse/internal/namespaces"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/policymaker"
)

// marketFlags are those of what is offered and accepted, and of the policies that decide about it.
type marketFlags struct {
	advertising advertisement.Config
	policies    policymaker.Config
	margin      map[string]string
	maker       *policymaker.Maker
	clock       clock.Clock
}

func (f *marketFlags) bind(flags *pflag.FlagSet) {
	f.advertising.Default()
	f.advertising.HelloTimeout = 0 // depends on another flag
	f.policies.Default()
	c := &f.advertising
	flags.DurationVar(&c.HelloInterval, "hello-interval", c.HelloInterval, "how often an advertisement is said again, in a few numbers")
	flags.DurationVar(&c.HelloTimeout, "hello-timeout", 0,
		"for how long a provider may be silent before its offer ends, and how long ours live; by default three hello intervals")
	flags.DurationVar(&c.FullInterval, "full-interval", c.FullInterval, "how often all of an advertisement is said again")
	flags.DurationVar(&c.MinInterval, "min-interval", c.MinInterval, "the least time between two advertisements for one consumer")
	flags.DurationVar(&c.SettleInterval, "settle-interval", c.SettleInterval, "after how long a change is told that is below the threshold")
	flags.Int64Var(&c.Threshold, "threshold", c.Threshold, "by how many percent a resource must move for consumers to be told at once")
	flags.StringToStringVar(&f.margin, "margin", nil, "what is never offered to anybody, such as cpu=1,memory=2Gi")
	flags.StringSliceVar(&c.LabelKeys, "node-label", c.LabelKeys, "labels of nodes that are told where all nodes agree")
	flags.IntVar(&c.MaxImages, "max-images", c.MaxImages, "how many images are told")
	flags.StringSliceVar(&c.ImagePatterns, "image-pattern", c.ImagePatterns,
		"images that every consumer may know of, such as docker.io/*; those that its own pods use are told in any case")
	flags.BoolVar(&c.Aggregate, "aggregate", false, "make what our providers offer a part of what we offer")
	flags.Int64Var(&c.AggregateShare, "aggregate-share", 0, "how many percent to add to the prices of what is passed on")
	flags.DurationVar(&c.Bounds.ClockSkew, "clock-skew", c.Bounds.ClockSkew, "how far a peer's clock may be off")
	flags.DurationVar(&f.policies.Deadline, "policy-deadline", f.policies.Deadline, "how long the policies may take to answer a question")
	hide(flags, "full-interval", "min-interval", "settle-interval", "threshold", "max-images", "clock-skew", "policy-deadline")
}

// parse reads the flags that pflag has no type for.
func (f *marketFlags) parse(namespace string) error {
	f.advertising.Namespace, f.policies.Namespace = namespace, namespace
	f.advertising.Default()
	if len(f.margin) == 0 {
		return nil
	}
	f.advertising.Margin = corev1.ResourceList{}
	for name, text := range f.margin {
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			return fmt.Errorf("--margin %s: %w", name, err)
		}
		f.advertising.Margin[corev1.ResourceName(name)] = quantity
	}
	return nil
}

// addPolicies comes before everything that asks them.
func (f *marketFlags) addPolicies(mgr manager.Manager, _ *peers.Links) error {
	recorder := mgr.GetEventRecorder("hanse-policy")
	f.maker = policymaker.New(f.policies, mgr.GetClient(), mgr.GetAPIReader(), f.clock, recorder)
	return errors.Join(f.maker.SetupWithManager(mgr), f.addTrials(mgr))
}

func (f *marketFlags) addAdvertising(mgr manager.Manager, links *peers.Links) error {
	if err := f.advertising.Validate(); err != nil {
		return err
	}
	recorder := mgr.GetEventRecorder("hanse-advertisement")
	publisher := advertisement.NewPublisher(f.advertising, mgr.GetClient(), mgr.GetCache(), f.maker, f.clock, recorder)
	receiver := advertisement.NewReceiver(f.advertising, mgr.GetClient(), links, f.maker, f.clock, recorder)
	f.maker.Gather(policy.Outgoing, publisher.Gather)
	f.maker.Gather(policy.Incoming, receiver.Gather)
	return errors.Join(publisher.SetupWithManager(mgr), receiver.SetupWithManager(mgr))
}

// offloadingFlags say which namespaces are offloaded without their users doing anything.
type offloadingFlags struct {
	namespaces string
	spec       string
	defaults   *namespaces.Default
}

func (f *offloadingFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.namespaces, "offload-namespaces", "",
		"labels of the namespaces in which to keep a NamespaceOffloading, as in kubectl get -l; by default none")
	flags.StringVar(&f.spec, "offload-spec", "", "spec of those NamespaceOffloadings, as JSON; by default {}")
}

func (f *offloadingFlags) parse() error {
	if f.namespaces == "" {
		if f.spec != "" {
			return errors.New("--offload-spec is for --offload-namespaces")
		}
		return nil
	}
	selector, err := labels.Parse(f.namespaces)
	if err != nil {
		return fmt.Errorf("--offload-namespaces: %w", err)
	}
	f.defaults = &namespaces.Default{Selector: selector}
	if err := yaml.UnmarshalStrict([]byte(f.spec), &f.defaults.Spec); err != nil {
		return fmt.Errorf("--offload-spec: %w", err)
	}
	return nil
}

// agentlessOffers makes the offers of clusters without Hanse.
func (f *marketFlags) agentlessOffers() func(*peers.Link, *v1alpha1.Peer) (*peers.Transport, error) {
	c := &f.advertising
	return agentless.Offers(agentless.Config{
		ClusterID: c.ClusterID, Interval: c.HelloInterval, TimeToLive: c.HelloTimeout, LabelKeys: c.LabelKeys, Clock: f.clock,
	})
}
