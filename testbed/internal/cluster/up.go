// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hanse-dev/hanse/testbed/internal/component"
	"github.com/hanse-dev/hanse/testbed/internal/kube"
	"github.com/hanse-dev/hanse/testbed/internal/network"
	"github.com/hanse-dev/hanse/testbed/internal/plan"
	"github.com/hanse-dev/hanse/testbed/internal/process"
	"github.com/hanse-dev/hanse/testbed/internal/wait"
	"github.com/hanse-dev/hanse/testbed/internal/worker"
)

// How often to look whether something is ready, and for how long.
const (
	pace        = 100 * time.Millisecond
	waitTimeout = 3 * time.Minute
)

// Surroundings are what a cluster shares with the others of its testbed.
type Surroundings struct {
	Cuts    []network.Cut
	Subnets map[string][]netip.Prefix // name of a cluster → where its nodes have their addresses
	Images  []string                  // archives that each new worker gets
}

// Up brings the cluster up: it starts what does not run, and waits until all of it works.
func (c Cluster) Up(ctx context.Context, around Surroundings) error {
	if err := c.prepare(ctx, around); err != nil {
		return c.failure(err)
	}
	first, then := phases(component.All(c.Cluster))
	fresh, err := c.startAll(ctx, first)
	if err != nil {
		return c.failure(err)
	}
	client, err := c.client()
	if err != nil {
		return c.failure(err)
	}
	loading, loadCtx := errgroup.WithContext(ctx)
	for _, node := range c.Workers() {
		if slices.Contains(fresh, fmt.Sprintf("containerd/%d", node.Number)) {
			loading.Go(func() error { return c.loadImages(loadCtx, node, around.Images) })
		}
	}
	err = c.await(ctx, "its API server to be ready", []string{"apiserver", "etcd"}, client.Ready)
	if err := errors.Join(err, loading.Wait()); err != nil {
		return c.failure(err)
	}
	later, err := c.startAll(ctx, then)
	if err != nil {
		return c.failure(err)
	}
	if err := c.settle(ctx, client); err != nil {
		return c.failure(err)
	}
	if len(fresh)+len(later) > 0 {
		c.say("is ready: %s", c.Kubeconfig())
	}
	return nil
}

func (c Cluster) failure(err error) error {
	return fmt.Errorf("cluster %s: %w", c.Name, err)
}

// phases divides the components into those that need no API server, with the API server itself, and the others.
func phases(parts []component.Component) (first, then []component.Component) {
	for _, part := range parts {
		if part.Cable || part.Name == "etcd" || part.Name == "apiserver" || strings.HasPrefix(part.Name, "containerd/") {
			first = append(first, part)
		} else {
			then = append(then, part)
		}
	}
	return first, then
}

// prepare makes all that must be there before the first process.
func (c Cluster) prepare(ctx context.Context, around Surroundings) error {
	if err := c.ensureCredentials(); err != nil {
		return err
	}
	if err := os.MkdirAll(c.LogDir(), 0o755); err != nil { //nolint:gosec // logs are for everyone
		return err
	}
	if c.Rootless {
		return c.stopSurplus(ctx)
	}
	if _, err := os.Stat(c.PIDDir()); errors.Is(err, fs.ErrNotExist) {
		// A new cluster. What is on its nodes was left by one whose folder is gone.
		if err := c.clearNodes(ctx); err != nil {
			return err
		}
	}
	for _, node := range c.Nodes() {
		if err := network.Ensure(ctx, node); err != nil {
			return err
		}
	}
	if err := network.Join(ctx, c.Cluster); err != nil {
		return err
	}
	if err := network.Filter(ctx, c.Cluster, around.Cuts, around.Subnets); err != nil {
		return err
	}
	for _, node := range c.Workers() {
		if err := worker.EnsureMachine(ctx, node); err != nil {
			return err
		}
	}
	return c.stopSurplus(ctx)
}

// Connect joins the cluster's nodes to the others as its links say, while it runs.
func (c Cluster) Connect(ctx context.Context) error {
	if err := network.Join(ctx, c.Cluster); err != nil {
		return c.failure(err)
	}
	for _, part := range component.All(c.Cluster) {
		if !part.Cable {
			continue
		}
		if _, err := c.start(ctx, part); err != nil {
			return c.failure(err)
		}
	}
	return c.stopSurplus(ctx)
}

// stopSurplus ends components that the cluster had with other options, and workers with all that is in them.
func (c Cluster) stopSurplus(ctx context.Context) error {
	wanted := map[string]bool{} // path of the file with the process → wanted
	for _, part := range component.All(c.Cluster) {
		wanted[part.PIDFile()] = true
	}
	files, err := filepath.Glob(filepath.Join(c.PIDDir(), "*.json"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if wanted[file] {
			continue
		}
		record, err := process.Read(file)
		if err != nil {
			return err
		}
		c.say("%s is not wanted any more, it is stopped", strings.TrimSuffix(filepath.Base(file), ".json"))
		if err := errors.Join(record.End(ctx, endTimeout), os.Remove(file)); err != nil {
			return err
		}
	}
	return c.removeWorkers(ctx, func(number int) bool { return number > c.Options.Workers })
}

// startAll starts components and tells which did not run.
func (c Cluster) startAll(ctx context.Context, parts []component.Component) (fresh []string, err error) {
	for _, part := range parts {
		started, err := c.start(ctx, part)
		if err != nil {
			return nil, err
		}
		if started {
			fresh = append(fresh, part.Name)
		}
	}
	if len(fresh) > 0 {
		c.say("started %s", strings.Join(fresh, ", "))
	}
	return fresh, nil
}

func (c Cluster) loadImages(ctx context.Context, node plan.Node, images []string) error {
	runtime := fmt.Sprintf("containerd/%d", node.Number)
	err := c.await(ctx, "the container runtime of "+node.Name(), []string{runtime}, func(ctx context.Context) error {
		return worker.RuntimeReady(ctx, node)
	})
	if err != nil {
		return err
	}
	for _, image := range images {
		if err := worker.Load(ctx, node, image); err != nil {
			return err
		}
	}
	return nil
}

// Load puts the images of an archive into each worker.
func (c Cluster) Load(ctx context.Context, archive string) error {
	for _, node := range c.Workers() {
		if err := worker.Load(ctx, node, archive); err != nil {
			return c.failure(err)
		}
	}
	return nil
}

// await waits for a condition that depends on components, and gives up as soon as one of them ends.
func (c Cluster) await(ctx context.Context, what string, names []string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	var parts []component.Component
	for _, name := range names {
		part, err := component.Find(c.Cluster, name)
		if err != nil {
			return err
		}
		parts = append(parts, part)
	}
	var last error
	err := wait.Until(ctx, pace, func() (bool, error) {
		if err := alive(parts); err != nil {
			return false, err
		}
		err := try(ctx)
		if err != nil && ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if err == nil {
		return nil
	}
	return explain(fmt.Errorf("wait for %s: %w", what, errors.Join(err, last)), parts)
}

// apply puts objects in place, one after the other.
func (c Cluster) apply(ctx context.Context, client *kube.Client, objects []kube.Object) error {
	for _, object := range objects {
		err := c.await(ctx, object.Path, []string{"apiserver"}, func(ctx context.Context) error {
			return client.Apply(ctx, object.Path, object.Body)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// define puts definitions in place, and objects of their kinds.
func (c Cluster) define(ctx context.Context, client *kube.Client) error {
	for _, definition := range kube.Definitions(c.Cluster) {
		text, err := os.ReadFile(definition.File)
		if err != nil {
			return err
		}
		err = c.await(ctx, definition.Path, []string{"apiserver"}, func(ctx context.Context) error {
			return client.ApplyText(ctx, definition.Path, text)
		})
		if err != nil {
			return err
		}
	}
	return c.apply(ctx, client, kube.Defined(c.Cluster))
}

// settle puts the first objects in place and waits until everything answers. Rights come first: a component gives up that waits for its
// own for too long.
func (c Cluster) settle(ctx context.Context, client *kube.Client) error {
	if err := c.apply(ctx, client, kube.Base(c.Cluster)); err != nil {
		return err
	}
	if err := c.define(ctx, client); err != nil {
		return err
	}
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error {
		return c.await(ctx, "the default ServiceAccount", []string{"controller-manager"}, func(ctx context.Context) error {
			return client.Get(ctx, "/api/v1/namespaces/default/serviceaccounts/default", nil)
		})
	})
	tasks.Go(func() error { return c.simulate(ctx, client) })
	if !c.Rootless {
		tasks.Go(func() error { return c.forgetWorkers(ctx, client) })
		tasks.Go(func() error { return c.await(ctx, "cluster DNS to answer", []string{"coredns"}, c.askDNS) })
		tasks.Go(func() error { return c.joinWorkers(ctx, client) })
	}
	return tasks.Wait()
}
