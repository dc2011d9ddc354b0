package main

import (
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/hanse-dev/hanse/internal/agentless"
	"github.com/hanse-dev/hanse/internal/peers"
)

// addAgentless adds what makes the offers of clusters without Hanse.
func (f *marketFlags) addAgentless(mgr manager.Manager, links *peers.Links) error {
	c := &f.advertising
	config := agentless.Config{
		ClusterID: c.ClusterID, Interval: c.HelloInterval, TimeToLive: c.HelloTimeout,
		LabelKeys: c.LabelKeys, Workers: c.Workers,
	}
	return agentless.NewOfferer(config, mgr.GetClient(), agentless.By(links), f.clock).SetupWithManager(mgr)
}
