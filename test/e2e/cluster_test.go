package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/harness"
)

// root is the folder of the repository.
const root = harness.Root

// patience is how long a story waits for an effect before it fails. It is no measure of speed.
const patience = 3 * time.Minute

// A cluster is one real Kubernetes cluster of the testbed, with what stories ask and expect of it.
type cluster struct{ *harness.Cluster }

func trimmed(data []byte) string { return strings.TrimSpace(string(data)) }

// namespace makes a namespace for the story and deletes it at the story's end.
func (c *cluster) namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{}
	ns.GenerateName = "story-"
	if err := c.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.describe(ns.Name)
		}
		if err := c.Delete(context.Background(), ns); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete namespace %s: %v", ns.Name, err)
		}
	})
	return ns.Name
}

// offloaded makes a namespace whose pods are offloaded by the strategy, and waits until they can be.
func (c *cluster) offloaded(t *testing.T, strategy v1alpha1.OffloadingStrategy) string {
	t.Helper()
	return c.offloadedBy(t, v1alpha1.NamespaceOffloadingSpec{Strategy: strategy})
}

// offloadedBy is offloaded with more to say about it.
func (c *cluster) offloadedBy(t *testing.T, spec v1alpha1.NamespaceOffloadingSpec) string {
	t.Helper()
	ns := c.namespace(t)
	offloading := &v1alpha1.NamespaceOffloading{Spec: spec}
	offloading.Name, offloading.Namespace = v1alpha1.NamespaceOffloadingName, ns
	c.create(t, offloading)
	c.awaitPolicy(t, ns, spec.Strategy)
	return ns
}

// describe prints what a person would look at when a story has failed.
func (c *cluster) describe(ns string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, args := range [][]string{
		{"get", "peers,nodes", "-o", "wide"},
		{"get", "pods,namespaceoffloadings", "-n", ns, "-o", "yaml", "--show-managed-fields=false"},
		{"get", "events", "-n", ns},
		{"get", "pods,shadowpods,namespacemappings,advertisements", "-A", "-o", "wide"},
		{"logs", "-n", v1alpha1.SystemNamespace, "-l", "app.kubernetes.io/name=hanse", "--tail=40", "--prefix"},
	} {
		out, err := c.Kubectl(ctx, args...)
		fmt.Printf("--- %s: kubectl %s (%v)\n%s\n", c.Name, strings.Join(args, " "), err, tail(out, 12000))
	}
}

func tail(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return "...\n" + text[len(text)-limit:]
}
