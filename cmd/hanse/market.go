// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/accounts"
	"github.com/hanse-dev/hanse/internal/advertisement"
	"github.com/hanse-dev/hanse/internal/agentless"
	"github.com/hanse-dev/hanse/internal/broker"
	"github.com/hanse-dev/hanse/internal/market"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/policy"
)

// bindMarket binds the flags of what is offered and accepted, and of the policies that decide about it.
func (f *managerFlags) bindMarket(flags *pflag.FlagSet) {
	f.advertising.Default()
	f.advertising.SilenceTimeout = 0 // depends on another flag
	f.policies.Default()
	c := &f.advertising
	flags.DurationVar(&c.RenewInterval, "hello-interval", c.RenewInterval, "how often an advertisement is said again, in a few numbers")
	flags.DurationVar(&c.SilenceTimeout, "hello-timeout", 0,
		"for how long a provider may be silent before its offer ends, and how long ours live; by default three hello intervals")
	flags.DurationVar(&c.FullInterval, "full-interval", c.FullInterval, "how often all of an advertisement is said again")
	flags.DurationVar(&c.MinInterval, "min-interval", c.MinInterval, "the least time between two advertisements for one consumer")
	flags.DurationVar(&c.SettleInterval, "settle-interval", c.SettleInterval, "after how long a change is told that is below the threshold")
	flags.Int64Var(&c.Threshold, "threshold", c.Threshold, "by how many percent a resource must move for consumers to be told at once")
	flags.Func("margin", "`resources` that are never offered to anybody, such as cpu=1,memory=2Gi", func(text string) error {
		for one := range strings.SplitSeq(text, ",") {
			name, amount, _ := strings.Cut(one, "=")
			quantity, err := resource.ParseQuantity(amount)
			if err != nil {
				return fmt.Errorf("%s: %w", one, err)
			}
			if c.Margin == nil {
				c.Margin = corev1.ResourceList{}
			}
			c.Margin[corev1.ResourceName(name)] = quantity
		}
		return nil
	})
	flags.StringSliceVar(&c.LabelKeys, "node-label", c.LabelKeys, "labels of nodes that are told where all nodes agree")
	flags.IntVar(&c.MaxImages, "max-images", c.MaxImages, "how many images are told")
	flags.StringSliceVar(&c.ImagePatterns, "image-pattern", c.ImagePatterns,
		"images that every consumer may know of, such as docker.io/*; those that its own pods use are told in any case")
	flags.BoolVar(&c.Aggregate, "aggregate", false, "make what our providers offer a part of what we offer")
	flags.Int64Var(&c.AggregateShare, "aggregate-share", 0, "how many percent to add to the prices of what is passed on")
	flags.DurationVar(&c.Bounds.ClockSkew, "clock-skew", c.Bounds.ClockSkew, "how far a peer's clock may be off")
	flags.DurationVar(&f.accounts, "accounting-period", accounts.DefaultPeriod,
		"how often it is written down what peers and this cluster have used of each other; whole seconds that divide a day")
	flags.DurationVar(&f.policies.Deadline, "policy-deadline", f.policies.Deadline, "how long the policies may take to answer a question")
	hide(flags, "full-interval", "min-interval", "settle-interval", "threshold", "max-images", "clock-skew", "policy-deadline")
}

func (f *managerFlags) addAdvertising(mgr manager.Manager, links *peers.Links) error {
	if err := f.advertising.Validate(); err != nil {
		return err
	}
	recorder := mgr.GetEventRecorder("hanse-advertisement")
	f.publisher = advertisement.NewPublisher(f.advertising, mgr.GetClient(), mgr.GetCache(), f.maker, f.clock, recorder)
	receiver := advertisement.NewReceiver(f.advertising, mgr.GetClient(), links, f.maker, f.clock, recorder)
	f.maker.Gather(policy.Outgoing, f.publisher.Gather)
	f.maker.Gather(policy.Incoming, receiver.Gather)
	return errors.Join(f.publisher.SetupWithManager(mgr), receiver.SetupWithManager(mgr))
}

// agentlessOffers makes the offers of clusters without Hanse.
func (f *managerFlags) agentlessOffers() func(*peers.Link, *v1alpha1.Peer) (*peers.Transport, error) {
	c := &f.advertising
	return agentless.Offers(agentless.Config{
		ClusterID: c.ClusterID, Interval: c.RenewInterval, TimeToLive: c.SilenceTimeout, LabelKeys: c.LabelKeys, Clock: f.clock,
	})
}

func (f *managerFlags) addMarket(mgr manager.Manager, links *peers.Links) error {
	members, err := broker.SetupWithManager(mgr, broker.Config{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Links: links, Clock: f.clock,
		ClusterID: f.peering.ClusterID, Key: f.peering.ClusterKey,
	})
	if err != nil {
		return err
	}
	return market.SetupWithManager(mgr, market.Config{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Links: links, Home: f.publisher, Members: members, Events: mgr.GetEventRecorder("hanse-market"), Clock: f.clock,
		ClusterID: f.peering.ClusterID, Key: f.peering.ClusterKey,
	})
}

func (f *managerFlags) addAccounts(mgr manager.Manager, links *peers.Links) error {
	return accounts.SetupWithManager(mgr, accounts.Config{
		Client: mgr.GetClient(), Links: links, Events: mgr.GetEventRecorder("hanse-accounts"), Clock: f.clock,
		ClusterID: f.peering.ClusterID, Key: f.peering.ClusterKey, Period: f.accounts,
	})
}
