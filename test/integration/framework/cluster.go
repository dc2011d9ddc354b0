// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/harness"
)

// waitTimeout is how long a test waits for a condition before it fails. It is no measure of speed: the conditions must come
// within it on two cores with a load of 20.
const waitTimeout = 5 * time.Minute

// T is what helpers need of a test.
type T = testing.TB

// A Cluster is a control plane with KWOK nodes, seen by its administrator.
type Cluster struct {
	*harness.Cluster

	values  []string // of the chart, for the package
	mu      sync.Mutex
	servers map[string]*process // component → process that runs
}

func (c *Cluster) server(component string) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.servers[component]
}

func (c *Cluster) setServer(component string, running *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.servers == nil {
		c.servers = map[string]*process{}
	}
	if running == nil {
		delete(c.servers, component)
		return
	}
	c.servers[component] = running
}

// Eventually waits until check returns nil. If that takes too long, it writes logs and objects of all clusters, and fails the
// test with the last error.
func Eventually(t T, condition string, check func(ctx context.Context) error) {
	t.Helper()
	waitFor(t.Context(), t, condition, check)
}

// EventuallyAfter is Eventually for functions that run after the test, when its context has ended.
func EventuallyAfter(t T, condition string, check func(ctx context.Context) error) {
	t.Helper()
	waitFor(context.Background(), t, condition, check)
}

func waitFor(ctx context.Context, t T, condition string, check func(ctx context.Context) error) {
	t.Helper()
	start := time.Now()
	if err := harness.Until(ctx, waitTimeout, check); err != nil {
		dump(t)
		t.Fatalf("%s: %v", condition, err)
	}
	if waited := time.Since(start); waited >= time.Second {
		t.Logf("waited %.1f s: %s", waited.Seconds(), condition)
	}
}

// dump writes the objects and the logs of all clusters to a folder of the test, for people who look for the cause.
func dump(t T) {
	t.Helper()
	results := os.Getenv(resultsVariable)
	if results == "" {
		return
	}
	folder := filepath.Join(results, strings.ReplaceAll(t.Name(), "/", "_"))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	clusters, err := filepath.Glob(filepath.Join(harness.StateFolder(), "*", "kubeconfig"))
	if err != nil {
		t.Log(err)
	}
	for _, kubeconfig := range clusters {
		if err := dumpCluster(ctx, kubeconfig, filepath.Join(folder, filepath.Base(filepath.Dir(kubeconfig)))); err != nil {
			t.Log(err)
		}
	}
	t.Logf("logs and objects are in %s", folder)
}

// dumped are the resources that dump writes.
const dumped = "peers,members,nodes,namespaces,advertisements,accounts,applications,requests,quotes,messages,namespaceoffloadings,namespacemappings," +
	"peeringclaims,podmoves,shadowpods,pods,configmaps,events"

func dumpCluster(ctx context.Context, kubeconfig, folder string) error {
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	logs, err := filepath.Glob(filepath.Join(filepath.Dir(kubeconfig), "logs", "hanse-*.log"))
	if err != nil {
		return err
	}
	for _, log := range logs {
		if text, err := os.ReadFile(log); err == nil {
			if err := os.WriteFile(filepath.Join(folder, filepath.Base(log)), text, 0o600); err != nil {
				return err
			}
		}
	}
	out, err := harness.Run(ctx, "kubectl", "--kubeconfig", kubeconfig, "get", dumped, "-A", "-o", "yaml")
	if err != nil {
		out += "\n# " + err.Error() // what there is of it still helps
	}
	return os.WriteFile(filepath.Join(folder, "objects.yaml"), []byte(out), 0o600)
}

func tail(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return "...\n" + text[len(text)-limit:]
}

// MustCreate creates an object.
func (c *Cluster) MustCreate(t T, object client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// MustHanse runs kubectl-hanse as the cluster's administrator.
func (c *Cluster) MustHanse(t T, args ...string) string {
	t.Helper()
	out, err := c.Hanse(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// MustKubectl runs kubectl as the cluster's administrator.
func (c *Cluster) MustKubectl(t T, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// MustPatch changes an object by a merge patch.
func (c *Cluster) MustPatch(t T, object client.Object, patch string) {
	t.Helper()
	if err := c.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// MustApply applies a manifest, and deletes its objects at the end of the test.
func (c *Cluster) MustApply(t T, manifest string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	c.MustKubectl(t, "apply", "-f", file)
	t.Cleanup(func() {
		if _, err := c.Kubectl(context.Background(), "delete", "-f", file, "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	})
}

// Gone returns an error unless the object is not found.
func (c *Cluster) Gone(ctx context.Context, object client.Object) error {
	err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%T %s exists, finalizers %v", object, object.GetName(), object.GetFinalizers())
}

// DeleteAndWait deletes an object and waits until it is gone. It may run after the test.
func (c *Cluster) DeleteAndWait(t T, object client.Object) {
	t.Helper()
	if err := c.Delete(context.Background(), object); client.IgnoreNotFound(err) != nil {
		t.Error(err)
		return
	}
	EventuallyAfter(t, fmt.Sprintf("%T %s is gone", object, object.GetName()), func(ctx context.Context) error { return c.Gone(ctx, object) })
}

// PeerBothWays makes two clusters peers in both directions, unless they are. What is left of an earlier peering on one side
// ends first.
func PeerBothWays(ctx context.Context, consumer, provider *Cluster) error {
	if consumer.sharesWith(ctx, provider.Name) && provider.sharesWith(ctx, consumer.Name) {
		return nil
	}
	for _, err := range []error{consumer.forget(ctx, provider.Name), provider.forget(ctx, consumer.Name)} {
		if err != nil {
			return err
		}
	}
	return harness.Peer(ctx, consumer.Cluster, provider.Cluster, "--mutual")
}

// sharesWith reports whether the peer is provider and consumer, as far as this cluster knows.
func (c *Cluster) sharesWith(ctx context.Context, name string) bool {
	peer := &v1alpha1.Peer{}
	err := c.Get(ctx, types.NamespacedName{Name: name}, peer)
	return err == nil && peer.DeletionTimestamp.IsZero() &&
		slices.Contains(peer.Spec.Roles, v1alpha1.RoleProvider) && slices.Contains(peer.Spec.Roles, v1alpha1.RoleConsumer)
}

// endOtherPeerings ends the peerings of this cluster that are not among the pairs.
func (c *Cluster) endOtherPeerings(ctx context.Context, pairs [][2]string) error {
	peers := &v1alpha1.PeerList{}
	if err := c.List(ctx, peers); err != nil {
		return err
	}
	for i := range peers.Items {
		name := peers.Items[i].Name
		if slices.Contains(pairs, [2]string{c.Name, name}) || slices.Contains(pairs, [2]string{name, c.Name}) {
			continue
		}
		if err := c.forget(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// forget ends a peering without the other side, and keeps nothing of it.
func (c *Cluster) forget(ctx context.Context, name string) error {
	known := func() bool {
		err := c.Get(ctx, types.NamespacedName{Name: name}, &v1alpha1.Peer{})
		return !apierrors.IsNotFound(err)
	}
	if !known() {
		return nil
	}
	if _, err := c.Hanse(ctx, "unpeer", name, "--force", "--forget"); err != nil && known() { // it may have ended meanwhile
		return fmt.Errorf("forget %s in %s: %w", name, c.Name, err)
	}
	return nil
}

// Forget ends a peering without the other side, after the test.
func (c *Cluster) Forget(t T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	if err := c.forget(ctx, name); err != nil {
		t.Error(err)
	}
}
