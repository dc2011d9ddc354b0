package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// wismar knows hamburg alone, whose own node is closed. What hamburg's providers have to spare is a part of what hamburg
// offers, and there wismar's pods run: with their configuration, in reach of kubectl, and gone when wismar deletes them.
func TestAggregate(t *testing.T) {
	ctx := sentOnByHamburg(t)
	ns := wismar.offloaded(t, v1alpha1.StrategyRemote)
	wismar.create(t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "greeting"}, Data: map[string]string{"GREETING": "moin"},
	})
	pod := shellPod(ns, "two-hops", "echo $GREETING from $WHO; "+forever)
	pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{
		Name: "WHO", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}},
	})
	pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "greeting"},
	}}}
	wismar.create(t, pod)
	home := wismar.awaitReadyPods(t, ns, "two-hops", 1)[0]

	between := hamburg.mustRemotePod(t, &home)
	provider := behindHamburg(t, between)
	last := provider.mustRemotePod(t, between)
	if isVirtual(last) {
		t.Errorf("the pod is on %s of %s: it has not arrived", last.Spec.NodeName, provider.Name)
	}
	shadow := &v1alpha1.ShadowPod{}
	if err := provider.Get(ctx, client.ObjectKeyFromObject(last), shadow); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"wismar", "hamburg"}, shadow.Spec.Path); diff != "" {
		t.Errorf("path (-want +got):\n%s", diff)
	}
	eventually(t, "its log can be read", func(ctx context.Context) error {
		out, err := wismar.Kubectl(ctx, "logs", "-n", ns, pod.Name)
		return wants(out, "moin from "+ns, err)
	})
	if out, err := wismar.Kubectl(ctx, "exec", "-n", ns, pod.Name, "--", "sh", "-c", "echo $GREETING"); err != nil || !strings.Contains(out, "moin") {
		t.Errorf("exec says %q (%v)", out, err)
	}

	if err := wismar.Delete(ctx, pod, client.GracePeriodSeconds(1)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is gone everywhere", func(ctx context.Context) error {
		return errors.Join(wismar.isGone(ctx, pod), hamburg.isGone(ctx, between), provider.isGone(ctx, last))
	})
}

// sentOnByHamburg has wismar know hamburg alone, which sends its pods on to lubeck and bremen, since its own node is closed.
func sentOnByHamburg(t *testing.T) context.Context {
	t.Helper()
	ctx := market(t)
	t.Cleanup(func() {
		wismar.parts(t, hamburg)
		if err := installWith(context.Background(), hamburg); err != nil {
			t.Error(err)
		}
	})
	if err := installWith(ctx, hamburg, "advertising.aggregate=true", "advertising.aggregateShare=50"); err != nil {
		t.Fatal(err)
	}
	bremen.prices(t, "0.02")
	if err := peerBothWays(ctx, wismar, hamburg); err != nil {
		t.Fatal(err)
	}
	wismar.expectAggregate(t)
	hamburg.cordon(t, "hamburg-worker-1", true)
	t.Cleanup(func() { hamburg.cordon(t, "hamburg-worker-1", false) })
	wismar.awaitVirtual(t, hamburg, "shows what is behind hamburg", func(node *corev1.Node) bool {
		cpu := node.Status.Allocatable[corev1.ResourceCPU]
		return isOpen(node) && !cpu.IsZero()
	})
	return ctx
}

// expectAggregate waits until hamburg offers what its two providers have, each with its price and half of that more, and
// until the table counts it in and says so.
func (c *cluster) expectAggregate(t *testing.T) {
	t.Helper()
	eventually(t, "hamburg offers what is behind it", func(ctx context.Context) error {
		held, err := c.copyFrom(ctx, hamburg)
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
		table, err := c.table(ctx)
		if err != nil {
			return err
		}
		shown, err := resource.ParseQuantity(table["hamburg"]["CPU"])
		if err != nil || shown.Cmp(own) <= 0 {
			return fmt.Errorf("the table shows %q of cpu, and hamburg itself has %s (%w)", table["hamburg"]["CPU"], own.String(), err)
		}
		out, err := c.Hanse(ctx, "table")
		return wants(out, "hamburg: sends pods on; counted in is what is behind it: bremen, lubeck", err)
	})
}

// behindHamburg is the cluster that hamburg has sent the pod to.
func behindHamburg(t *testing.T, pod *corev1.Pod) *cluster {
	t.Helper()
	for _, provider := range []*cluster{lubeck, bremen} {
		if pod.Spec.NodeName == v1alpha1.VirtualNodeName(provider.Name) {
			return provider
		}
	}
	t.Fatalf("in hamburg the pod is on %s, which is none of its providers", pod.Spec.NodeName)
	return nil
}

func wants(out, text string, err error) error {
	if err == nil && !strings.Contains(out, text) {
		err = fmt.Errorf("it says %q, not %q", out, text)
	}
	return err
}

// Four clusters that ask no money of each other share what they have: each runs pods in all the others.
func TestFreePool(t *testing.T) {
	ctx := market(t)
	pool := []*cluster{lubeck, hamburg, bremen, wismar}
	t.Cleanup(func() { wismar.parts(t, pool[:3]...) })
	for i, member := range pool {
		for _, other := range pool[i+1:] {
			if err := peerBothWays(ctx, member, other); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, member := range pool {
		others := slices.DeleteFunc(slices.Clone(pool), func(c *cluster) bool { return c == member })
		member.expectFreeOffers(t, others)
		member.expectPodsAt(t, others)
	}
	if out, err := wismar.Hanse(ctx, "table", "--for", "cpu=100m"); err != nil || strings.Count(out, "yes") != 3 {
		t.Errorf("a small pod does not fit everywhere: %v\n%s", err, out)
	}
}

func (c *cluster) expectFreeOffers(t *testing.T, providers []*cluster) {
	t.Helper()
	for _, provider := range providers {
		c.awaitOpen(t, provider)
		held, err := c.copyFrom(t.Context(), provider)
		if err != nil || held.Spec.Prices != nil {
			t.Errorf("%s asks %s for money: %v (%v)", provider.Name, c.Name, held.Spec.Prices, err)
		}
	}
}

// expectPodsAt runs a pod at each of the providers.
func (c *cluster) expectPodsAt(t *testing.T, providers []*cluster) {
	t.Helper()
	ns := c.placed(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferSpread}, anywhere)
	for _, provider := range providers {
		pod := shellPod(ns, "at-"+provider.Name, forever)
		pod.Spec.NodeSelector = map[string]string{v1alpha1.LabelPeer: provider.Name}
		c.create(t, pod)
	}
	for _, provider := range providers {
		home := c.awaitReadyPods(t, ns, "at-"+provider.Name, 1)[0]
		provider.mustRemotePod(t, &home)
	}
}

// The two clusters are on one network, where multicast DNS works. The settings of the phase have them look for others.
func TestDiscovery(t *testing.T) {
	ctx := market(t)
	bremen.parts(t, wismar) // in case that an earlier story had them know each other
	t.Cleanup(func() { bremen.parts(t, wismar) })
	for here, there := range map[*cluster]string{bremen: "wismar", wismar: "bremen"} {
		eventually(t, here.Name+" discovers "+there, func(ctx context.Context) error {
			if err := here.peerSays(ctx, there, v1alpha1.ConditionReady, v1alpha1.ReasonDiscovered); err != nil {
				return err
			}
			peer, err := here.peer(ctx, there)
			if err != nil || len(peer.Spec.Roles) > 0 || len(peer.Status.DiscoveredServers) == 0 {
				return fmt.Errorf("%+v, %w", peer.Spec, err)
			}
			return nil
		})
		// It is known, and that is all.
		ns := &corev1.Namespace{}
		if err := here.Get(ctx, types.NamespacedName{Name: v1alpha1.TenantNamespace(there)}, ns); !apierrors.IsNotFound(err) {
			t.Errorf("%s made a tenant namespace for a cluster that nobody accepted: %v", here.Name, err)
		}
	}
	bremen.refusesFirstOffer(t, wismar)
	bremen.expectPodsAt(t, []*cluster{wismar})
}

// refusesFirstOffer makes the provider a peer while a policy refuses what it offers: no node comes of that.
func (c *cluster) refusesFirstOffer(t *testing.T, provider *cluster) {
	t.Helper()
	ctx := t.Context()
	refusal := c.policy(t, "incoming", fmt.Sprintf("package hanse.incoming\n\ndeny contains \"not yet\" if input.peer.name == %q\n", provider.Name))
	c.awaitPolicies(t, "story-incoming/story.rego")
	token, err := provider.Hanse(ctx, "invite", c.Name, "--mutual")
	if err != nil {
		t.Fatal(err)
	}
	// It would wait for an offer that it may use.
	if _, err := c.Hanse(ctx, "join", strings.TrimSpace(token), "--mutual", "--wait=false"); err != nil {
		t.Fatal(err)
	}
	eventually(t, provider.Name+" reads that its first offer is refused", func(ctx context.Context) error {
		ad, err := provider.offerFor(ctx, c)
		if ack := ad.Status.Acknowledgement; err == nil && (ack == nil || ack.State != v1alpha1.AcknowledgementRefused) {
			err = fmt.Errorf("the answer is %+v", ack)
		}
		return err
	})
	eventually(t, "the table says so", func(ctx context.Context) error {
		table, err := c.table(ctx)
		return wants(table[provider.Name]["ANSWER"], "Refused", err)
	})
	if err := c.isGone(ctx, &corev1.Node{ObjectMeta: named(v1alpha1.VirtualNodeName(provider.Name))}); err != nil {
		t.Errorf("a refused first offer made a node: %v", err)
	}
	if err := c.Delete(ctx, refusal); err != nil {
		t.Fatal(err)
	}
	c.awaitOpen(t, provider)
}

// awaitPolicies waits until a module is in force.
func (c *cluster) awaitPolicies(t *testing.T, module string) {
	t.Helper()
	eventually(t, "module "+module+" is in force", func(ctx context.Context) error {
		out, err := c.Hanse(ctx, "policy", "show", "incoming")
		return wants(out, module, err)
	})
}
