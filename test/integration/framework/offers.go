// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/harness"
)

// Peer returns the Peer of that name.
func (c *Cluster) Peer(ctx context.Context, name string) (*v1alpha1.Peer, error) {
	peer := &v1alpha1.Peer{}
	return peer, c.Get(ctx, types.NamespacedName{Name: name}, peer)
}

// PeerHas returns an error unless the condition of the Peer is True.
func (c *Cluster) PeerHas(ctx context.Context, name, condition string) error {
	peer, err := c.Peer(ctx, name)
	if err != nil {
		return err
	}
	if !meta.IsStatusConditionTrue(peer.Status.Conditions, condition) {
		return fmt.Errorf("conditions: %+v", peer.Status.Conditions)
	}
	return nil
}

// PeerLacks returns an error unless the condition of the Peer is not True, for that reason.
func (c *Cluster) PeerLacks(ctx context.Context, name, condition, reason string) error {
	peer, err := c.Peer(ctx, name)
	if err != nil {
		return err
	}
	got := meta.FindStatusCondition(peer.Status.Conditions, condition)
	if got == nil || got.Reason != reason || got.Status == metav1.ConditionTrue {
		return fmt.Errorf("condition %s is %+v", condition, got)
	}
	return nil
}

// OfferTo returns what the cluster advertises to the consumer, with the consumer's answer.
func (c *Cluster) OfferTo(ctx context.Context, consumer *Cluster) (*v1alpha1.Advertisement, error) {
	ad := &v1alpha1.Advertisement{}
	return ad, c.Get(ctx, types.NamespacedName{Namespace: v1alpha1.TenantNamespace(consumer.Name), Name: c.Name}, ad)
}

// CopyOf returns this cluster's copy of the provider's offer.
func (c *Cluster) CopyOf(ctx context.Context, provider *Cluster) (*v1alpha1.Advertisement, error) {
	ad := &v1alpha1.Advertisement{}
	return ad, c.Get(ctx, types.NamespacedName{Namespace: v1alpha1.TenantNamespace(provider.Name), Name: provider.Name}, ad)
}

// Node returns a node.
func (c *Cluster) Node(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	return node, c.Get(ctx, types.NamespacedName{Name: name}, node)
}

// VirtualNode returns the virtual node of the provider.
func (c *Cluster) VirtualNode(ctx context.Context, provider *Cluster) (*corev1.Node, error) {
	return c.Node(ctx, v1alpha1.VirtualNodeName(provider.Name))
}

// IsNodeReady reports whether the node is Ready.
func IsNodeReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// IsOpen reports whether the virtual node accepts pods.
func IsOpen(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == v1alpha1.TaintWithdrawn || taint.Key == corev1.TaintNodeNotReady {
			return false
		}
	}
	return IsNodeReady(node)
}

// AwaitOpen waits until the virtual node of the provider accepts pods.
func (c *Cluster) AwaitOpen(t T, provider *Cluster) *corev1.Node {
	t.Helper()
	return c.AwaitVirtualNode(t, provider, "accepts pods", IsOpen)
}

// AwaitClosed waits until the virtual node of the provider accepts no pods.
func (c *Cluster) AwaitClosed(t T, provider *Cluster) *corev1.Node {
	t.Helper()
	return c.AwaitVirtualNode(t, provider, "accepts no pods", func(node *corev1.Node) bool { return !IsOpen(node) })
}

// AwaitVirtualNode waits until the virtual node of the provider meets the condition.
func (c *Cluster) AwaitVirtualNode(t T, provider *Cluster, condition string, met func(*corev1.Node) bool) *corev1.Node {
	t.Helper()
	var node *corev1.Node
	Eventually(t, fmt.Sprintf("the virtual node of %s in %s %s", provider.Name, c.Name, condition), func(ctx context.Context) error {
		var err error
		if node, err = c.VirtualNode(ctx, provider); err != nil {
			return err
		}
		if !met(node) {
			return fmt.Errorf("taints %v, allocatable %v, labels %v", node.Spec.Taints, node.Status.Allocatable, node.Labels)
		}
		return nil
	})
	return node
}

// AwaitAnswer waits until the provider reads this answer of the consumer to its newest full message, and returns it.
func (c *Cluster) AwaitAnswer(t T, consumer *Cluster, state v1alpha1.AcknowledgementState, reason string) *v1alpha1.Acknowledgement {
	t.Helper()
	var ack *v1alpha1.Acknowledgement
	Eventually(t, fmt.Sprintf("%s reads that %s answers %s (%s)", c.Name, consumer.Name, state, reason), func(ctx context.Context) error {
		ad, err := c.OfferTo(ctx, consumer)
		if err != nil {
			return err
		}
		ack = ad.Status.Acknowledgement
		if ack == nil || ack.Sequence < ad.Spec.FullSequence || ack.State != state || ack.Reason != reason {
			return fmt.Errorf("the acknowledgement of message %d is %+v", ad.Spec.FullSequence, ack)
		}
		return nil
	})
	return ack
}

// SetConfigMap puts a ConfigMap into Hanse's namespace, and deletes it at the end of the test.
func (c *Cluster) SetConfigMap(t T, name string, labels, data map[string]string) *corev1.ConfigMap {
	t.Helper()
	made := &corev1.ConfigMap{ObjectMeta: Named(v1alpha1.SystemNamespace, name), Data: data}
	made.Labels = labels
	current := &corev1.ConfigMap{}
	err := c.Get(t.Context(), client.ObjectKeyFromObject(made), current)
	switch {
	case apierrors.IsNotFound(err):
		c.MustCreate(t, made)
		t.Cleanup(func() {
			if err := c.Delete(context.Background(), made); client.IgnoreNotFound(err) != nil {
				t.Errorf("delete ConfigMap %s: %v", name, err)
			}
		})
		return made
	case err != nil:
		t.Fatal(err)
	}
	current.Labels, current.Data = labels, data
	if err := c.Update(t.Context(), current); err != nil {
		t.Fatal(err)
	}
	return current
}

// SetPrices sets what a core costs for an hour, in euros. At the end of the test it costs nothing again, and the consumer has
// the offer that says so.
func (c *Cluster) SetPrices(t T, consumer *Cluster, core string) {
	t.Helper()
	list := c.SetConfigMap(t, "hanse-prices", nil, map[string]string{"currency": "EUR", "cpu": core})
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), list); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
		EventuallyAfter(t, c.Name+" offers for nothing again", func(ctx context.Context) error {
			ad, err := c.OfferTo(ctx, consumer)
			if err == nil && ad.Spec.Prices != nil {
				err = fmt.Errorf("its prices are %+v", ad.Spec.Prices)
			}
			return err
		})
	})
}

// AwaitPrice waits until the provider offers a core for this price, in euros for an hour, and the copy of this cluster has it. The copy may
// be one of an earlier offer.
func (c *Cluster) AwaitPrice(t T, provider *Cluster, core string) {
	t.Helper()
	want := resource.MustParse(core)
	Eventually(t, c.Name+" has the price of "+provider.Name, func(ctx context.Context) error {
		offer, offerErr := provider.OfferTo(ctx, c)
		received, err := c.CopyOf(ctx, provider)
		if err := errors.Join(offerErr, err); err != nil {
			return err
		}
		for _, prices := range []*v1alpha1.Prices{offer.Spec.Prices, received.Spec.Prices} {
			if prices == nil || want.Cmp(prices.PerHour[corev1.ResourceCPU]) != 0 {
				return fmt.Errorf("the offer has prices %+v, and its copy %+v", offer.Spec.Prices, received.Spec.Prices)
			}
		}
		return nil
	})
}

// SetPolicy puts a module in force that answers the question, until the end of the test.
func (c *Cluster) SetPolicy(t T, question, source string) *corev1.ConfigMap {
	t.Helper()
	return c.SetConfigMap(t, "test-"+question, map[string]string{v1alpha1.LabelPolicy: question}, map[string]string{"test.rego": source})
}

// LibraryModule returns a module of policies/library with edits, which are pairs of old and new text.
func LibraryModule(t T, name string, edits ...string) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(harness.Root, "policies", "library", name+".rego"))
	if err != nil {
		t.Fatal(err)
	}
	edited := string(source)
	for i := 0; i < len(edits); i += 2 {
		if !strings.Contains(edited, edits[i]) {
			t.Fatalf("module %s does not contain %q any more", name, edits[i])
		}
		edited = strings.ReplaceAll(edited, edits[i], edits[i+1])
	}
	return edited
}
