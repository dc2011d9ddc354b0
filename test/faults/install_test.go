package faults

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/harness"
)

// install installs Hanse in each cluster, and peers the consumer with all providers. It can be done again.
func install(ctx context.Context, clusters map[string]*cluster) error {
	installing, all := errgroup.WithContext(ctx)
	for _, name := range everyone {
		installing.Go(func() error { return clusters[name].Install(all, "probePeriod=2s") })
	}
	if err := installing.Wait(); err != nil {
		return err
	}
	home := clusters[consumer]
	for _, name := range providers {
		if err := peer(ctx, home, clusters[name]); err != nil {
			return err
		}
	}
	return again(ctx, home.peersReady)
}

// peer lets home consume from the provider, unless it does.
func peer(ctx context.Context, home, provider *cluster) error {
	err := home.Get(ctx, client.ObjectKey{Name: provider.Name}, &v1alpha1.Peer{})
	if client.IgnoreNotFound(err) != nil || err == nil {
		return err
	}
	return harness.Peer(ctx, home.Cluster, provider.Cluster)
}

func (c *cluster) peersReady(ctx context.Context) error {
	for _, name := range providers {
		peer := &v1alpha1.Peer{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, peer); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(peer.Status.Conditions, v1alpha1.ConditionReady) {
			return fmt.Errorf("peer %s is not Ready: %+v", name, peer.Status.Conditions)
		}
	}
	return nil
}

// settle waits until pods run at every provider, and then makes the clock of one cluster's Hanse wrong.
func settle(ctx context.Context, clusters map[string]*cluster, p plan) error {
	for _, name := range everyone {
		if err := again(ctx, clusters[name].settled); err != nil {
			return fmt.Errorf("wait for %s: %w", name, err)
		}
		offset := ""
		if name == p.skewed {
			offset = p.offset.String()
		}
		for _, subcommand := range []string{"manager", "kubelet"} {
			if err := clusters[name].setFlag(ctx, subcommand, flagOffset, offset); err != nil {
				return err
			}
		}
	}
	return nil
}

// settled tells whether the cluster has a twin of the load's namespace, if it is a provider.
func (c *cluster) settled(ctx context.Context) error {
	if c.Name == consumer {
		return nil
	}
	mapping := &v1alpha1.NamespaceMapping{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.TenantNamespace(consumer), Name: loadNamespace}, mapping); err != nil {
		return err
	}
	if !meta.IsStatusConditionTrue(mapping.Status.Conditions, v1alpha1.ConditionReady) {
		return fmt.Errorf("mapping of namespace %s is not Ready: %+v", loadNamespace, mapping.Status.Conditions)
	}
	return nil
}
