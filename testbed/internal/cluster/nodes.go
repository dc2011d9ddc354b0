// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hanse-dev/hanse/testbed/internal/component"
	"github.com/hanse-dev/hanse/testbed/internal/kube"
	"github.com/hanse-dev/hanse/testbed/internal/network"
	"github.com/hanse-dev/hanse/testbed/internal/plan"
	"github.com/hanse-dev/hanse/testbed/internal/process"
	"github.com/hanse-dev/hanse/testbed/internal/worker"
)

// joinWorkers waits until each worker's Node has its range of pod addresses, sets up its pod network with it, and waits
// until the Node is ready and Services work on it.
func (c Cluster) joinWorkers(ctx context.Context, client *kube.Client) error {
	podCIDRs := map[int]plan.Ranges{}
	for _, node := range c.Workers() {
		err := c.await(ctx, "a range of pod addresses for "+node.Name(), c.parts(node, "kubelet", "containerd"), func(ctx context.Context) error {
			var object kube.Node
			if err := client.Get(ctx, kube.NodePath(node.Name()), &object); err != nil {
				return err
			}
			if len(object.Spec.PodCIDRs) == 0 {
				return errors.New("the Node has none yet")
			}
			podCIDRs[node.Number] = object.Spec.PodCIDRs
			return nil
		})
		if err != nil {
			return err
		}
		file := component.CNIConfig(podCIDRs[node.Number])
		if err := writeFile(filepath.Join(component.CNIDir(node), file.Path), []byte(file.Text)); err != nil {
			return err
		}
	}
	if err := network.Route(ctx, c.Cluster, podCIDRs); err != nil {
		return err
	}
	for _, node := range c.Workers() {
		if err := c.awaitWorker(ctx, client, node); err != nil {
			return err
		}
	}
	return nil
}

func (c Cluster) awaitWorker(ctx context.Context, client *kube.Client, node plan.Node) error {
	err := c.await(ctx, "node "+node.Name(), c.parts(node, "kubelet", "containerd"), func(ctx context.Context) error {
		var object kube.Node
		if err := client.Get(ctx, kube.NodePath(node.Name()), &object); err != nil {
			return err
		}
		if err := object.Readiness(); err != nil {
			return err
		}
		// The Node may be ready because a kubelet that has ended since said so. One that tells how its containers do is
		// complete.
		return client.Get(ctx, kube.NodePath(node.Name())+"/proxy/stats/summary?only_cpu_and_memory=true", nil)
	})
	if err != nil {
		return err
	}
	return c.await(ctx, "Services on "+node.Name(), c.parts(node, "proxy"), func(ctx context.Context) error {
		return healthy(ctx, "http://"+netip.AddrPortFrom(node.Address(), component.ProxyHealthPort).String()+"/healthz")
	})
}

func (c Cluster) parts(node plan.Node, kinds ...string) []string {
	names := make([]string, len(kinds))
	for i, kind := range kinds {
		names[i] = fmt.Sprintf("%s/%d", kind, node.Number)
	}
	return names
}

// askTimeout bounds one question to a component.
const askTimeout = 2 * time.Second

func healthy(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // and no proxy
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}

// askDNS asks for a name that each cluster has.
func (c Cluster) askDNS(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, network, net.JoinHostPort(c.Address().String(), "53"))
	}}
	found, err := resolver.LookupNetIP(ctx, "ip", "kubernetes.default.svc.cluster.local.")
	if err != nil {
		return err
	}
	if len(found) != 1 || found[0].Unmap() != c.KubernetesService() {
		return fmt.Errorf("the address of kubernetes.default is %v, not %s", found, c.KubernetesService())
	}
	return nil
}

// workerPlace is where all processes of a worker are: its own, and those of its containers.
func workerPlace(node plan.Node) (process.Place, error) {
	cgroups, err := worker.CgroupDirs(node.Cgroup())
	return process.Place{Netns: []string{node.NetnsPath()}, Cgroups: cgroups}, err
}

// removeWorkers removes the workers that exist and are surplus, found by their network namespaces.
func (c Cluster) removeWorkers(ctx context.Context, surplus func(number int) bool) error {
	if c.Rootless {
		return nil
	}
	paths, err := network.Paths(c.Slot.NetnsPrefix() + c.Name + "-")
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range paths {
		name, number, ok := c.Slot.ParseNetns(filepath.Base(path))
		if ok && name == c.Name && number > 0 && surplus(number) {
			errs = append(errs, c.removeWorker(ctx, plan.Node{Cluster: c.Cluster, Number: number}))
		}
	}
	return errors.Join(errs...)
}

func (c Cluster) removeWorker(ctx context.Context, node plan.Node) error {
	place, err := workerPlace(node)
	if err != nil {
		return err
	}
	if err := place.Clear(ctx); err != nil {
		return fmt.Errorf("remove %s: %w", node.Name(), err)
	}
	return errors.Join(
		worker.RemoveMachine(ctx, node), network.Remove(ctx, node),
		os.RemoveAll(node.Dir()), os.RemoveAll(node.ConfigDir()), os.RemoveAll(node.LogDir()),
	)
}

// forgetWorkers deletes the Nodes of workers that the cluster had once.
func (c Cluster) forgetWorkers(ctx context.Context, client *kube.Client) error {
	nodes, err := kube.Nodes(ctx, client, "")
	if err != nil {
		return err
	}
	for _, node := range nodes {
		number, err := strconv.Atoi(strings.TrimPrefix(node.Metadata.Name, c.Name+"-worker-"))
		if err != nil || number <= c.Options.Workers {
			continue
		}
		if err := client.Delete(ctx, kube.NodePath(node.Metadata.Name)); err != nil {
			return err
		}
	}
	return nil
}

// simulators is how many simulated nodes are made at a time.
const simulators = 8

// simulate makes the simulated nodes that are missing, removes those that are too many, and waits until all are ready.
func (c Cluster) simulate(ctx context.Context, client *kube.Client) error {
	surplus, missing, err := c.compareSimulated(ctx, client)
	if err != nil {
		return err
	}
	tasks, taskCtx := errgroup.WithContext(ctx)
	tasks.SetLimit(simulators)
	for _, name := range surplus {
		tasks.Go(func() error { return client.Delete(taskCtx, kube.NodePath(name)) })
	}
	for _, node := range missing {
		tasks.Go(func() error { return client.Apply(taskCtx, node.Path, node.Body) })
	}
	if err := tasks.Wait(); err != nil {
		return err
	}
	if c.Options.SimulatedNodes == 0 {
		return nil
	}
	return c.await(ctx, "the simulated nodes", []string{"kwok"}, func(ctx context.Context) error {
		nodes, err := kube.Nodes(ctx, client, kube.SimulatedSelector)
		for _, node := range nodes {
			if err == nil {
				err = node.Readiness()
			}
		}
		return err
	})
}

func (c Cluster) compareSimulated(ctx context.Context, client *kube.Client) (surplus []string, missing []kube.Object, err error) {
	nodes, err := kube.Nodes(ctx, client, kube.SimulatedSelector)
	if err != nil {
		return nil, nil, err
	}
	there := map[string]bool{} // name of a node → exists and is not wanted, as far as is known
	for _, node := range nodes {
		there[node.Metadata.Name] = true
	}
	for n := 1; n <= c.Options.SimulatedNodes; n++ {
		name := kube.SimulatedName(c.Cluster, n)
		if there[name] {
			delete(there, name)
			continue
		}
		missing = append(missing, kube.SimulatedNode(c.Cluster, n))
	}
	for name := range there {
		surplus = append(surplus, name)
	}
	return surplus, missing, nil
}
