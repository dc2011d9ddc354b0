package peering

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// revoke ends what the peer has here as our consumer, when it has left or had its time to.
func (c *leaveStep) revoke(ctx context.Context, peer *v1alpha1.Peer, seen *parting) (obstacle, error) {
	if seen.namespace == nil {
		return obstacle{}, nil
	}
	if peer.HasRole(v1alpha1.RoleConsumer) {
		manner := c.config.mannerOf(peer, seen)
		if manner == patiently {
			return obstacle{thing: "the peer to move its pods away and to leave", theirs: true}, nil
		}
		if manner == leavingATombstone {
			if err := c.inform(ctx, peer, seen); err != nil {
				return obstacle{}, err
			}
		}
	}
	err := c.unbind(ctx, seen.namespace.Name, v1alpha1.ClusterRolePeerTenant, v1alpha1.ClusterRolePeerInvitation)
	if err != nil {
		return obstacle{}, err
	}
	return c.clearTwins(ctx, peer, seen.namespace.Name)
}

// A manner is how what a consumer has here is ended.
type manner int

const (
	// atOnce: the consumer has left, or is to be forgotten.
	atOnce manner = iota
	// patiently: the consumer still has time to leave.
	patiently
	// leavingATombstone: the consumer is not waited for, and has to find out when it comes back.
	leavingATombstone
)

// mannerOf decides how what the peer has here is ended.
func (c *Config) mannerOf(peer *v1alpha1.Peer, seen *parting) manner {
	switch {
	case seen.mode == v1alpha1.PartingForgotten:
		return atOnce
	case seen.mode == v1alpha1.PartingForced:
		return leavingATombstone
	case c.hasLeft(peer, seen.claim):
		return atOnce
	case seen.overdue:
		return leavingATombstone
	default:
		return patiently
	}
}

// hasLeft says whether nothing of a consumer has to be waited for: it was never let in, or it has taken its leave.
func (c *Config) hasLeft(peer *v1alpha1.Peer, claim *v1alpha1.PeeringClaim) bool {
	return !accepted(claim) || c.departedBy(peer, claim).mode != ""
}

// clearTwins ends the twin namespaces of the peer, and never needs the peer's help. They end before the tenant namespace:
// the right to end them in good order is bound in there.
func (c *leaveStep) clearTwins(ctx context.Context, peer *v1alpha1.Peer, namespace string) (obstacle, error) {
	waiting := obstacle{thing: "the peer's namespaces in this cluster to go"}
	mappings := &v1alpha1.NamespaceMappingList{}
	if err := c.client.List(ctx, mappings, client.InNamespace(namespace)); err != nil {
		return obstacle{}, fmt.Errorf("list NamespaceMappings: %w", err)
	}
	for i := range mappings.Items {
		mapping := &mappings.Items[i]
		if !mapping.DeletionTimestamp.IsZero() {
			continue
		}
		if err := client.IgnoreNotFound(c.client.Delete(ctx, mapping)); err != nil {
			return obstacle{}, fmt.Errorf("delete NamespaceMapping %s: %w", mapping.Name, err)
		}
	}
	if len(mappings.Items) > 0 {
		return waiting, nil
	}
	twins := &corev1.NamespaceList{}
	err := c.client.List(ctx, twins, client.MatchingLabels{
		v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelPeer: peer.Name,
	})
	if err != nil {
		return obstacle{}, fmt.Errorf("list twin namespaces: %w", err)
	}
	if len(twins.Items) > 0 {
		return waiting, nil
	}
	return obstacle{}, nil
}
