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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// wismar knows hamburg alone, whose own node is closed. What hamburg's providers have to spare is a part of what hamburg
// offers, and there wismar's pods run: with their configuration, in reach of kubectl, and gone when wismar deletes them.
func TestAggregate(t *testing.T) {
	ctx := sentOnByHamburg(t)
	ns := wismar.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	wismar.MustCreate(t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "greeting"}, Data: map[string]string{"GREETING": "moin"},
	})
	pod := framework.NewShellPod(ns, "two-hops", "echo $GREETING from $WHO; "+framework.RunForever)
	pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{
		Name: "WHO", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}},
	})
	pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "greeting"},
	}}}
	wismar.MustCreate(t, pod)
	home := wismar.AwaitReadyPods(t, ns, "two-hops", 1)[0]

	between := hamburg.MustGetRemotePod(t, &home)
	provider := behindHamburg(t, between)
	last := provider.MustGetRemotePod(t, between)
	if framework.IsOnVirtualNode(last) {
		t.Errorf("the pod is on %s of %s: it has not arrived", last.Spec.NodeName, provider.Name)
	}
	shadow := &v1alpha1.ShadowPod{}
	if err := provider.Get(ctx, client.ObjectKeyFromObject(last), shadow); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"wismar", "hamburg"}, shadow.Spec.Path); diff != "" {
		t.Errorf("path (-want +got):\n%s", diff)
	}
	framework.Eventually(t, "its log can be read", func(ctx context.Context) error {
		out, err := wismar.Kubectl(ctx, "logs", "-n", ns, pod.Name)
		return framework.CheckOutput(out, "moin from "+ns, err)
	})
	if out, err := wismar.Kubectl(ctx, "exec", "-n", ns, pod.Name, "--", "sh", "-c", "echo $GREETING"); err != nil || !strings.Contains(out, "moin") {
		t.Errorf("exec says %q (%v)", out, err)
	}

	if err := wismar.Delete(ctx, pod, client.GracePeriodSeconds(1)); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "it is gone everywhere", func(ctx context.Context) error {
		return errors.Join(wismar.CheckGone(ctx, pod), hamburg.CheckGone(ctx, between), provider.CheckGone(ctx, last))
	})
}

// sentOnByHamburg has wismar know hamburg alone, which sends its pods on to lubeck and bremen, since its own node is closed.
func sentOnByHamburg(t *testing.T) context.Context {
	t.Helper()
	ctx := framework.Begin(t)
	t.Cleanup(func() {
		wismar.UnpeerAll(t, hamburg)
		if err := framework.Install(context.Background(), hamburg); err != nil {
			t.Error(err)
		}
	})
	if err := framework.Install(ctx, hamburg, "advertising.aggregate=true", "advertising.aggregateShare=50"); err != nil {
		t.Fatal(err)
	}
	bremen.SetPrices(t, "0.02")
	if err := framework.PeerBothWays(ctx, wismar, hamburg); err != nil {
		t.Fatal(err)
	}
	expectAggregate(t, wismar)
	hamburg.SetCordoned(t, "hamburg-worker-1", true)
	t.Cleanup(func() { hamburg.SetCordoned(t, "hamburg-worker-1", false) })
	wismar.AwaitVirtualNode(t, hamburg, "shows what is behind hamburg", func(node *corev1.Node) bool {
		cpu := node.Status.Allocatable[corev1.ResourceCPU]
		return framework.IsOpen(node) && !cpu.IsZero()
	})
	return ctx
}

// expectAggregate waits until hamburg offers what its two providers have, each with its price and half of that more, and
// until the table counts it in and says so.
func expectAggregate(t *testing.T, c *framework.Cluster) {
	t.Helper()
	framework.Eventually(t, "hamburg offers what is behind it", func(ctx context.Context) error {
		held, err := c.ReceivedOffer(ctx, hamburg)
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
				return fmt.Errorf("the offer of %s came by %v: %v", offer.ClusterID, offer.Path, offer.Availability)
			}
		}
		want := map[string]string{"lubeck": "free", "bremen": "0.03 EUR"}
		if diff := cmp.Diff(want, prices); diff != "" || held.Spec.Flags[v1alpha1.FlagAggregated] != "true" {
			return fmt.Errorf("flags %v, prices (-want +got): %s", held.Spec.Flags, diff)
		}
		own := held.Spec.Availability.Cpu().DeepCopy()
		table, err := c.OfferTable(ctx)
		if err != nil {
			return err
		}
		shown, err := resource.ParseQuantity(table["hamburg"]["CPU"])
		if err != nil || shown.Cmp(own) <= 0 {
			return fmt.Errorf("the table shows %q of cpu, and hamburg itself has %s (%w)", table["hamburg"]["CPU"], own.String(), err)
		}
		out, err := c.Hanse(ctx, "table")
		return framework.CheckOutput(out, "hamburg: sends pods on; counted in is what is behind it: bremen, lubeck", err)
	})
}

// behindHamburg is the cluster that hamburg has sent the pod to.
func behindHamburg(t *testing.T, pod *corev1.Pod) *framework.Cluster {
	t.Helper()
	for _, provider := range []*framework.Cluster{lubeck, bremen} {
		if pod.Spec.NodeName == v1alpha1.VirtualNodeName(provider.Name) {
			return provider
		}
	}
	t.Fatalf("in hamburg the pod is on %s, which is none of its providers", pod.Spec.NodeName)
	return nil
}

// Four clusters that ask no money of each other share what they have: each runs pods in all the others.
func TestFreePool(t *testing.T) {
	ctx := framework.Begin(t)
	pool := []*framework.Cluster{lubeck, hamburg, bremen, wismar}
	t.Cleanup(func() { wismar.UnpeerAll(t, pool[:3]...) })
	for i, member := range pool {
		for _, other := range pool[i+1:] {
			if err := framework.PeerBothWays(ctx, member, other); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, member := range pool {
		others := slices.DeleteFunc(slices.Clone(pool), func(c *framework.Cluster) bool { return c == member })
		expectFreeOffers(t, member, others)
		member.ExpectPodsAt(t, others)
	}
	if out, err := wismar.Hanse(ctx, "table", "--for", "cpu=100m"); err != nil || strings.Count(out, "yes") != 3 {
		t.Errorf("a small pod does not fit everywhere: %v\n%s", err, out)
	}
}

func expectFreeOffers(t *testing.T, c *framework.Cluster, providers []*framework.Cluster) {
	t.Helper()
	for _, provider := range providers {
		c.AwaitOpen(t, provider)
		held, err := c.ReceivedOffer(t.Context(), provider)
		if err != nil || held.Spec.Prices != nil {
			t.Errorf("%s asks %s for money: %v (%v)", provider.Name, c.Name, held.Spec.Prices, err)
		}
	}
}
