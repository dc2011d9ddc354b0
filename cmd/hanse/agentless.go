package main

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/agentless"
	"github.com/hanse-dev/hanse/internal/kubelet"
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

// adaptAgentless returns what makes links to clusters without Hanse of ordinary ones, which the manager ends with itself.
func adaptAgentless(mgr manager.Manager) (kubelet.Adapt, error) {
	links := agentless.NewLinks()
	adapt := func(ctx context.Context, made *peers.Link, peer *v1alpha1.Peer) (kubelet.Link, error) {
		link, err := links.Of(ctx, agentless.Over(made), peer)
		if err != nil {
			return nil, err
		}
		return agentlessLink{link}, nil
	}
	return adapt, mgr.Add(links)
}

// agentlessLink is a kubelet.Link. Two are equal when their links are.
type agentlessLink struct{ *agentless.Link }

// Watch implements kubelet.Link.
func (l agentlessLink) Watch(
	ctx context.Context, example client.Object, namespace string, changed func(types.NamespacedName),
) (kubelet.Mirror, error) {
	made, err := l.Link.Watch(ctx, example, namespace, changed)
	if err != nil {
		return nil, err
	}
	return made, nil
}
