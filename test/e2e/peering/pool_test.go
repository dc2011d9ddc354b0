// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// The two clusters are on one network, where multicast DNS works. The settings of the phase have them look for others.
func TestDiscovery(t *testing.T) {
	ctx := framework.Begin(t)
	bremen.UnpeerAll(t, wismar) // in case that an earlier story had them know each other
	t.Cleanup(func() { bremen.UnpeerAll(t, wismar) })
	for here, there := range map[*framework.Cluster]string{bremen: "wismar", wismar: "bremen"} {
		framework.Eventually(t, here.Name+" discovers "+there, func(ctx context.Context) error {
			if err := here.CheckPeerCondition(ctx, there, v1alpha1.ConditionReady, v1alpha1.ReasonDiscovered); err != nil {
				return err
			}
			peer, err := here.GetPeer(ctx, there)
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
	refusesFirstOffer(t, bremen, wismar)
	bremen.ExpectPodsAt(t, []*framework.Cluster{wismar})
}

// refusesFirstOffer makes the provider a peer while a policy refuses what it offers: no node comes of that.
func refusesFirstOffer(t *testing.T, c *framework.Cluster, provider *framework.Cluster) {
	t.Helper()
	ctx := t.Context()
	refusal := c.ApplyPolicy(t, "incoming", fmt.Sprintf("package hanse.incoming\n\ndeny contains \"not yet\" if input.peer.name == %q\n", provider.Name))
	awaitPolicies(t, c, "story-incoming/story.rego")
	token, err := provider.Hanse(ctx, "invite", c.Name, "--mutual")
	if err != nil {
		t.Fatal(err)
	}
	// It would wait for an offer that it may use.
	if _, err := c.Hanse(ctx, "join", strings.TrimSpace(token), "--mutual", "--wait=false"); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, provider.Name+" reads that its first offer is refused", func(ctx context.Context) error {
		ad, err := provider.OfferFor(ctx, c)
		if ack := ad.Status.Acknowledgement; err == nil && (ack == nil || ack.State != v1alpha1.AcknowledgementRefused) {
			err = fmt.Errorf("the answer is %+v", ack)
		}
		return err
	})
	framework.Eventually(t, "the table says so", func(ctx context.Context) error {
		table, err := c.OfferTable(ctx)
		return framework.CheckOutput(table[provider.Name]["ANSWER"], "Refused", err)
	})
	if err := c.CheckGone(ctx, &corev1.Node{ObjectMeta: framework.ObjectMeta(v1alpha1.VirtualNodeName(provider.Name))}); err != nil {
		t.Errorf("a refused first offer made a node: %v", err)
	}
	if err := c.Delete(ctx, refusal); err != nil {
		t.Fatal(err)
	}
	c.AwaitOpen(t, provider)
}

// awaitPolicies waits until a module is in force.
func awaitPolicies(t *testing.T, c *framework.Cluster, module string) {
	t.Helper()
	framework.Eventually(t, "module "+module+" is in force", func(ctx context.Context) error {
		out, err := c.Hanse(ctx, "policy", "show", "incoming")
		return framework.CheckOutput(out, module, err)
	})
}
