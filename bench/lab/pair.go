// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// waitTimeout is how long to wait for what is not measured.
const waitTimeout = 5 * time.Minute

// A Pair is a consumer that offloads to one provider. Both are control planes without workers, so that the provider's
// nodes are simulated and Hanse's servers are processes of this machine.
type Pair struct {
	Consumer, Provider *Cluster

	Kubelet, Manager, ProviderManager *Server // of Hanse, nil until Offload

	Twin   string // the namespace at the provider of the offloaded pods
	bed    Testbed
	config PairConfig
}

// PairConfig says what the clusters of a pair are like.
type PairConfig struct {
	Nodes int // simulated ones of the provider
	// SchedulerQPS is how many requests a second a scheduler may make; 0: as many as by default (50, at most 100 at
	// once), which hides everything that is faster than that.
	SchedulerQPS int
	// Values are of Hanse's chart, as key=value, and ManagerFlags of `hanse manager`, on both sides.
	Values, ManagerFlags []string
}

// PodsPerNode is for how many pods an experiment has a simulated node, so that each has an address of the node's range.
const PodsPerNode = 100

// NodesFor returns how many simulated nodes are right for so many pods.
func NodesFor(pods int) int { return max(10, (pods+PodsPerNode-1)/PodsPerNode) }

// Pair brings two clusters up. The pair that it returns is to be closed in any case.
func (t Testbed) Pair(ctx context.Context, config PairConfig) (*Pair, error) {
	p := &Pair{bed: t, config: config}
	flags := []string{"--workers", "0", "--audit"}
	if config.SchedulerQPS > 0 {
		qps := strconv.Itoa(config.SchedulerQPS)
		flags = append(flags, "--arg", "scheduler:kube-api-qps="+qps, "--arg", "scheduler:kube-api-burst="+qps)
	}
	if err := t.Up(ctx, flags, "consumer"); err != nil {
		return p, err
	}
	if err := t.Up(ctx, append(flags, "--simulated-nodes", strconv.Itoa(config.Nodes)), "provider"); err != nil {
		return p, err
	}
	var err error
	p.Consumer, p.Provider, err = t.Clusters(ctx)
	return p, err
}

// Offload installs Hanse on both sides, starts its servers, peers the two, and makes a namespace of the consumer whose
// pods are offloaded. It returns when there is room for so many of them.
func (p *Pair) Offload(ctx context.Context, fail context.CancelCauseFunc, namespace string, room int) error {
	if err := errors.Join(p.Consumer.Install(ctx, p.config.Values...), p.Provider.Install(ctx, p.config.Values...)); err != nil {
		return err
	}
	var err error
	if p.Manager, err = p.Consumer.StartManager(ctx, fail, p.config.ManagerFlags...); err != nil {
		return err
	}
	if p.Kubelet, err = p.Consumer.StartKubelet(ctx, fail); err != nil {
		return err
	}
	if p.ProviderManager, err = p.Provider.StartManager(ctx, fail, p.config.ManagerFlags...); err != nil {
		return err
	}
	// Where there is to be a network and no gateway runs, the Peer is never Ready, and its node is.
	if err := p.Consumer.Peer(ctx, p.Provider, "--wait=false"); err != nil {
		return err
	}
	if err := p.awaitNode(ctx); err != nil {
		return err
	}
	if p.Twin, err = p.OffloadNamespace(ctx, namespace, room); err != nil {
		return err
	}
	return p.awaitQuota(ctx)
}

// awaitNode waits until the consumer uses the provider's offer.
func (p *Pair) awaitNode(ctx context.Context) error {
	return Until(ctx, "there is a virtual node", 200*time.Millisecond, waitTimeout, func(ctx context.Context) error {
		node := &corev1.Node{}
		err := p.Consumer.Get(ctx, client.ObjectKey{Name: v1alpha1.VirtualNodeName(p.Provider.Name)}, node)
		if err == nil && !Ready(node) {
			err = errors.New("it is not Ready")
		}
		return err
	})
}

// awaitQuota waits until the consumer's tenant namespace has its quota, which is the last that a new peer gets: Kubernetes
// must know Hanse's kinds for some time before.
func (p *Pair) awaitQuota(ctx context.Context) error {
	return Until(ctx, "the tenant namespace has a quota", 200*time.Millisecond, waitTimeout, func(ctx context.Context) error {
		quotas := &corev1.ResourceQuotaList{}
		if err := p.Provider.List(ctx, quotas, client.InNamespace(v1alpha1.TenantNamespace(p.Consumer.Name))); err != nil {
			return err
		}
		if len(quotas.Items) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
}

// Servers are Hanse's servers that run.
func (p *Pair) Servers() []*Server {
	var servers []*Server
	for _, server := range []*Server{p.Kubelet, p.Manager, p.ProviderManager} {
		if server != nil {
			servers = append(servers, server)
		}
	}
	return servers
}

// Meter measures the processes of both clusters, Hanse's servers, and others.
func (p *Pair) Meter(others ...*Server) (Meter, error) {
	groups := map[string][]Process{}
	for _, server := range append(p.Servers(), others...) {
		groups[server.Name] = []Process{server.Process}
	}
	for cluster, components := range map[*Cluster][]string{
		p.Consumer: {"apiserver", "etcd", "scheduler", "controller-manager"},
		p.Provider: {"apiserver", "etcd", "scheduler", "controller-manager", "kwok"},
	} {
		processes, err := cluster.Processes(components...)
		if err != nil {
			return Meter{}, err
		}
		for _, process := range processes {
			groups[process.Name] = []Process{process}
		}
	}
	return NewMeter(groups), nil
}

// Close ends the servers and the clusters.
func (p *Pair) Close(ctx context.Context) error {
	for _, server := range p.Servers() {
		server.Stop()
	}
	return p.bed.Down(context.WithoutCancel(ctx))
}

// OffloadNamespace makes a namespace and waits until so many pods of it can be offloaded. It returns the namespace's twin.
func (p *Pair) OffloadNamespace(ctx context.Context, namespace string, room int) (twin string, err error) {
	if err := p.Consumer.Namespace(ctx, namespace); err != nil {
		return "", err
	}
	offloading := &v1alpha1.NamespaceOffloading{Spec: v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote}}
	offloading.Namespace, offloading.Name = namespace, v1alpha1.NamespaceOffloadingName
	if err := p.Consumer.Create(ctx, offloading); err != nil {
		return "", fmt.Errorf("create NamespaceOffloading: %w", err)
	}
	err = Until(ctx, "pods can be offloaded", 200*time.Millisecond, waitTimeout, func(ctx context.Context) error {
		if err := p.Consumer.Get(ctx, client.ObjectKeyFromObject(offloading), offloading); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(offloading.Status.Conditions, v1alpha1.ConditionReady) || len(offloading.Status.Clusters) != 1 {
			return fmt.Errorf("the NamespaceOffloading is not Ready: %v", offloading.Status)
		}
		twin = offloading.Status.Clusters[0].Twin
		return p.roomAndPolicy(ctx, namespace, room)
	})
	return twin, err
}

// roomAndPolicy checks that the virtual node has room for so many pods, and that admission sends pods there.
func (p *Pair) roomAndPolicy(ctx context.Context, namespace string, room int) error {
	nodes := &corev1.NodeList{}
	if err := p.Consumer.List(ctx, nodes, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}); err != nil {
		return err
	}
	if len(nodes.Items) != 1 || !Ready(&nodes.Items[0]) {
		return fmt.Errorf("%d virtual nodes, want one that is Ready", len(nodes.Items))
	}
	if there := nodes.Items[0].Status.Allocatable.Pods().Value(); there < int64(room) {
		return fmt.Errorf("the virtual node has room for %d pods, %d are needed", there, room)
	}
	probe := Pod(namespace, "probe")
	if err := p.Consumer.Create(ctx, probe, client.DryRunAll); err != nil {
		return err
	}
	if probe.Spec.Affinity == nil {
		return errors.New("the admission policy leaves pods as they are")
	}
	return nil
}
