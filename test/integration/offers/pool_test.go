// SPDX-License-Identifier: Apache-2.0

package offers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// TestFreePool: four clusters that are peers of each other, without prices, share what they have. Each runs pods in all others.
func TestFreePool(t *testing.T) {
	begin(t)
	pool := []*framework.Cluster{lubeck, hamburg, bremen, wismar}
	t.Cleanup(func() { part(t, wismar, pool[:3]...) })
	for _, other := range pool[:3] {
		if err := framework.PeerBothWays(t.Context(), other, wismar); err != nil {
			t.Fatal(err)
		}
	}
	for _, member := range pool {
		others := slices.DeleteFunc(slices.Clone(pool), func(c *framework.Cluster) bool { return c == member })
		expectFreeOffers(t, member, others)
		expectPodsAt(t, member, others)
	}
	if out := wismar.MustHanse(t, "table", "--for", "cpu=100m"); strings.Count(out, "yes") != 3 {
		t.Errorf("a small pod does not fit everywhere:\n%s", out)
	}
}

// expectFreeOffers checks that the cluster uses the offer of each provider, and that no offer has prices.
func expectFreeOffers(t *testing.T, c *framework.Cluster, providers []*framework.Cluster) {
	t.Helper()
	for _, provider := range providers {
		c.AwaitOpen(t, provider)
		held, err := c.CopyOf(t.Context(), provider)
		if err != nil || held.Spec.Prices != nil {
			t.Errorf("the offer of %s to %s has prices %v (%v)", provider.Name, c.Name, held.Spec.Prices, err)
		}
	}
}

// expectPodsAt runs a pod of the cluster at each provider.
func expectPodsAt(t *testing.T, c *framework.Cluster, providers []*framework.Cluster) {
	t.Helper()
	ns := c.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote})
	var pods []*corev1.Pod
	for _, provider := range providers {
		pods = append(pods, podFor(ns, "at-"+provider.Name, 10, provider))
		c.MustCreate(t, pods[len(pods)-1])
	}
	for i, provider := range providers {
		home := awaitReady(t, c, pods[i])
		framework.ExpectSamePod(t, home, provider.MustRemotePod(t, home))
	}
}

// part ends the peerings of the cluster with others, after the test.
func part(t *testing.T, c *framework.Cluster, others ...*framework.Cluster) {
	t.Helper()
	var group errgroup.Group
	for _, other := range others {
		group.Go(func() error { c.Forget(t, other.Name); return nil })
		group.Go(func() error { other.Forget(t, c.Name); return nil })
	}
	_ = group.Wait() // no function returns an error
}

// TestAggregate: wismar has one peer, hamburg, whose own nodes are closed. The offer of hamburg includes what the providers of hamburg
// have, and there the pods of wismar run. A pod has its configuration there, and is gone everywhere when wismar deletes it.
func TestAggregate(t *testing.T) {
	sendOn(t)
	ctx := t.Context()
	ns := wismar.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote})
	wismar.MustCreate(t, &corev1.ConfigMap{ObjectMeta: framework.Named(ns, "greeting"), Data: map[string]string{"GREETING": "moin"}})
	pod := framework.Pod(ns, "two-hops")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{
		Name: "WHO", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}},
	}}
	pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "greeting"},
	}}}
	wismar.MustCreate(t, pod)
	home := awaitReady(t, wismar, pod)

	between := hamburg.MustRemotePod(t, home)
	provider := behindHamburg(t, between)
	last := provider.MustRemotePod(t, between)
	framework.ExpectSamePod(t, home, last)
	shadow := &v1alpha1.ShadowPod{}
	if err := provider.Get(ctx, client.ObjectKeyFromObject(last), shadow); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"wismar", "hamburg"}, shadow.Spec.Path); diff != "" {
		t.Errorf("path (-want +got):\n%s", diff)
	}
	expectConfiguration(t, provider, last, ns)

	mustDelete(t, wismar, pod)
	framework.Eventually(t, "the pod is gone everywhere", func(ctx context.Context) error {
		return errors.Join(wismar.Gone(ctx, pod), hamburg.Gone(ctx, between), provider.Gone(ctx, last))
	})
}

// expectConfiguration checks that the container of the pod gets the name of its home namespace, and the data of its ConfigMap.
func expectConfiguration(t *testing.T, provider *framework.Cluster, pod *corev1.Pod, home string) {
	t.Helper()
	container := pod.Spec.Containers[0]
	who := slices.IndexFunc(container.Env, func(env corev1.EnvVar) bool { return env.Name == "WHO" })
	if who < 0 || container.Env[who].Value != home {
		t.Errorf("the environment is %+v, want WHO=%s", container.Env, home)
	}
	if len(container.EnvFrom) != 1 || container.EnvFrom[0].ConfigMapRef == nil {
		t.Fatalf("the environment comes from %+v", container.EnvFrom)
	}
	greeting := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: pod.Namespace, Name: container.EnvFrom[0].ConfigMapRef.Name}
	if err := provider.Get(t.Context(), key, greeting); err != nil || greeting.Data["GREETING"] != "moin" {
		t.Errorf("the ConfigMap has %v (%v)", greeting.Data, err)
	}
}

// sendOn makes wismar a peer of hamburg alone. The own nodes of hamburg are closed until the end of the test, so that hamburg sends pods
// on to lubeck, which is free, and to bremen, which costs 0.02 EUR.
func sendOn(t *testing.T) {
	t.Helper()
	begin(t)
	t.Cleanup(func() {
		part(t, wismar, hamburg)
		install(t, hamburg)
	})
	if err := hamburg.Install(t.Context(), "advertising.aggregate=true", "advertising.aggregateShare=50"); err != nil {
		t.Fatal(err)
	}
	bremen.SetPrices(t, hamburg, "0.02")
	if err := framework.PeerBothWays(t.Context(), wismar, hamburg); err != nil {
		t.Fatal(err)
	}
	awaitAggregate(t)
	hamburg.Cordon(t, hamburg.NodeNames(t)...)
	wismar.AwaitVirtualNode(t, hamburg, "shows what is behind hamburg", func(node *corev1.Node) bool {
		return framework.IsOpen(node) && !node.Status.Allocatable.Cpu().IsZero()
	})
}

// awaitAggregate waits until the offer of hamburg to wismar contains those of its two providers, each for its price and half as much
// again, and until the table of wismar includes them.
func awaitAggregate(t *testing.T) {
	t.Helper()
	framework.Eventually(t, "the offer of hamburg includes its providers", func(ctx context.Context) error {
		held, err := wismar.CopyOf(ctx, hamburg)
		if err != nil {
			return err
		}
		prices := map[string]string{}
		for _, offer := range held.Spec.Nested {
			prices[offer.ClusterID] = "free"
			if offer.Prices != nil {
				price := offer.Prices.PerHour[corev1.ResourceCPU]
				prices[offer.ClusterID] = fmt.Sprintf("%g %s", price.AsApproximateFloat64(), offer.Prices.Currency)
			}
			if len(offer.Path) > 0 || offer.Availability.Cpu().Sign() <= 0 {
				return fmt.Errorf("the offer of %s has path %v: %v", offer.ClusterID, offer.Path, offer.Availability)
			}
		}
		want := map[string]string{"lubeck": "free", "bremen": "0.03 EUR"}
		if diff := cmp.Diff(want, prices); diff != "" || held.Spec.Flags[v1alpha1.FlagAggregated] != "true" {
			return fmt.Errorf("flags %v, prices (-want +got): %s", held.Spec.Flags, diff)
		}
		table, err := wismar.OfferTable(ctx)
		if err != nil {
			return err
		}
		own := held.Spec.Availability.Cpu()
		shown, err := resource.ParseQuantity(table["hamburg"]["CPU"])
		if err != nil || shown.Cmp(*own) <= 0 {
			return fmt.Errorf("the table shows %q of cpu, and hamburg itself has %s (%w)", table["hamburg"]["CPU"], own, err)
		}
		out, err := wismar.Hanse(ctx, "table")
		return contains(out, "hamburg: sends pods on; counted in is what is behind it: bremen, lubeck", err)
	})
}

// behindHamburg returns the cluster to which hamburg has sent the pod on.
func behindHamburg(t *testing.T, pod *corev1.Pod) *framework.Cluster {
	t.Helper()
	for _, provider := range []*framework.Cluster{lubeck, bremen} {
		if pod.Spec.NodeName == v1alpha1.VirtualNodeName(provider.Name) {
			return provider
		}
	}
	t.Fatalf("in hamburg the pod is on %q, which is none of its providers", pod.Spec.NodeName)
	return nil
}
