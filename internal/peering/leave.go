// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// endedAtOnce bounds how many objects are ended with one look.
const endedAtOnce = 500

// An obstacle is what a parting waits for. The zero value is none.
type obstacle struct {
	thing string
	// theirs means that the peer has to do something, so that it never ends if the peer is gone for ever.
	theirs bool
}

func (o obstacle) stands() bool { return o.thing != "" }

// A parting is what a close look at a Peer that is being deleted found. All of it is seen in the objects, so that a parting
// goes on wherever it was interrupted.
type parting struct {
	mode      v1alpha1.PartingMode
	namespace *corev1.Namespace      // the peer's tenant namespace, nil if it is gone, going or not ours
	ending    bool                   // the namespace is going, and our rights in it with it
	node      bool                   // our pods may still run at the peer
	volumes   []string               // our claims whose volumes are at the peer, and are to be kept
	uses      bool                   // what we have at the peer is ours by this Peer
	claim     *v1alpha1.PeeringClaim // of the consumer, nil if there is none
	stone     *corev1.ConfigMap      // the tombstone, nil if we have not begun to part by force
	overdue   bool                   // the consumer had its time
}

// leaveStep parts from a peer whose Peer is being deleted: as its consumer and as its provider, both at once, and then takes
// away what was made for the peer here.
type leaveStep struct{ *deps }

// Reconcile implements step.
func (c *leaveStep) Reconcile(ctx context.Context, o *observation) (result, error) {
	if !o.deleted() {
		return result{}, nil
	}
	seen, err := c.look(ctx, o.peer)
	if err != nil {
		return result{}, err
	}
	seen.uses = o.uses()
	left, leaveErr := c.leave(ctx, o.peer, seen)
	revoked, revokeErr := c.revoke(ctx, o.peer, seen)
	if err := errors.Join(leaveErr, revokeErr); err != nil {
		return result{}, err
	}
	o.contact.obstacle = cmp.Or(left, revoked)
	if !o.contact.obstacle.stands() {
		if o.contact.obstacle, err = c.clear(ctx, o.peer, seen); err != nil {
			return result{}, err
		}
	}
	if o.contact.obstacle.stands() {
		o.contact.parting.record(verdict{stage: waiting}, o.now)
		return result{again: o.contact.parting.next}, nil
	}
	o.contact.released = true
	return result{}, c.release(ctx, o.peer)
}

// look finds out how far the parting is. All is read from the API server itself.
func (c *leaveStep) look(ctx context.Context, peer *v1alpha1.Peer) (*parting, error) {
	seen := &parting{
		mode:    peer.Parting().Mode,
		overdue: !c.config.Clock.Now().Before(peer.DeletionTimestamp.Add(c.config.PartingDeadline)),
	}
	node, err := existing(ctx, c.direct, nodeOf(peer.Name))
	if err != nil {
		return nil, err
	}
	seen.node = node != nil && isOfType(node, v1alpha1.TypeVirtualNode)
	if seen.volumes, err = c.keptVolumes(ctx, peer); err != nil {
		return nil, err
	}
	ns, err := existing(ctx, c.direct, namespaceOf(peer.Name))
	if err != nil || ns == nil || !peer.OwnsTenantNamespace(ns) {
		return seen, err
	}
	if seen.ending = !ns.DeletionTimestamp.IsZero(); seen.ending {
		return seen, nil
	}
	// A Peer may be deleted before we have any rights in its namespace.
	if err := c.bind(ctx, ns.Name, v1alpha1.ClusterRoleManagerInTenant, c.managerSubject()); err != nil {
		return nil, err
	}
	seen.namespace = ns
	if seen.claim, err = existing(ctx, c.direct, claim(ns.Name)); err != nil {
		return nil, err
	}
	seen.stone, err = existing(ctx, c.direct, configMap(ns.Name, v1alpha1.Tombstone))
	return seen, err
}

// leave ends what we have at the peer as its consumer.
func (c *leaveStep) leave(ctx context.Context, peer *v1alpha1.Peer, seen *parting) (obstacle, error) {
	if !peer.HasRole(v1alpha1.RoleProvider) {
		return obstacle{}, nil
	}
	node := obstacle{}
	if seen.node {
		node.thing = fmt.Sprintf("virtual node %s to be emptied and to go, by `hanse kubelet`", v1alpha1.VirtualNodeName(peer.Name))
	}
	if seen.mode != v1alpha1.PartingAgreed || seen.namespace == nil || !seen.uses {
		return node, nil
	}
	link, err := c.links.Ensure(ctx, peer)
	switch {
	case errors.Is(err, peers.ErrCredentialsMissing):
		return node, nil // we have never joined, or have left
	case errors.Is(err, peers.ErrCredentialsInvalid):
		return cmp.Or(node, obstacle{thing: "credentials in Secret " + secretName(peer, v1alpha1.LinkSecret) + " that can be used", theirs: true}), nil
	case err != nil:
		return obstacle{}, err
	case !peer.Protocol().Sessions:
		return clearAgentless(ctx, peer, link, node), nil
	}
	return c.leaveOver(ctx, peer, seen, link, node)
}

// leaveOver ends what we have at the cluster to which the link leads, unless the node stands against it.
func (c *leaveStep) leaveOver(
	ctx context.Context, peer *v1alpha1.Peer, seen *parting, link *peers.Link, node obstacle,
) (obstacle, error) {
	if info, err := link.ClusterInfo(ctx); err == nil && identified(peer, info).status == metav1.ConditionFalse {
		return node, nil // what we have at another cluster is not this Peer's to end
	}
	if text := tombstoneAt(ctx, link); text != "" && c.config.verify(peer, text, link.Invitation()) == nil {
		// The Peer's change brings us back, and `hanse kubelet` to end our pods at once.
		return obstacle{thing: "this Peer to be forgotten, since the peer has parted by force"}, c.partForgotten(ctx, peer)
	}
	if kept := seen.volumesAway(); node.stands() || kept.stands() {
		return cmp.Or(node, kept), nil
	}
	return c.takeLeave(ctx, peer, seen.namespace, link)
}

// takeLeave ends our namespaces at the peer and then tells it that we leave.
func (c *leaveStep) takeLeave(
	ctx context.Context, peer *v1alpha1.Peer, ns *corev1.Namespace, link *peers.Link,
) (obstacle, error) {
	left, err := end(ctx, link.Client(), &v1alpha1.NamespaceMappingList{}, client.InNamespace(link.TenantNamespace()))
	if err == nil && left {
		return obstacle{thing: "the peer to end our namespaces there", theirs: true}, nil
	}
	if err == nil {
		// It is noted before the peer is told. If we are killed right after, the peer has perhaps taken our credentials back
		// already, and nobody could tell any more that nothing of ours is left there.
		if err := c.mark(ctx, ns, nil, map[string]string{v1alpha1.AnnotationLeaving: "true"}); err != nil {
			return obstacle{}, err
		}
		err = tellLeaving(ctx, link, "")
	}
	if o, done := unsaid(err, ns.Annotations[v1alpha1.AnnotationLeaving] != ""); !done {
		if interrupted(err) {
			return o, err
		}
		return o, nil
	}
	// The credentials are of no use any more, and without them nothing is asked of the peer again.
	c.links.Close(peer.Name)
	return obstacle{}, c.remove(ctx, secret(ns.Name, v1alpha1.LinkSecret))
}

// tellLeaving makes our claim at the peer say that we leave, with a tombstone if we part by force.
func tellLeaving(ctx context.Context, link *peers.Link, tombstone string) error {
	spec := map[string]any{"phase": v1alpha1.ClaimLeaving}
	if tombstone != "" {
		spec["tombstone"] = tombstone
	}
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return fmt.Errorf("encode the statement: %w", err)
	}
	return link.Client().Patch(ctx, claim(link.TenantNamespace()), client.RawPatch(types.MergePatchType, patch))
}

// unsaid judges the answer of a peer to our leaving: what to wait for, or that it is done. That the peer does not know us
// any more is what happens after we have told it, but before that may have any cause.
func unsaid(err error, told bool) (obstacle, bool) {
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return obstacle{}, true
	case apierrors.IsUnauthorized(err):
		return obstacle{thing: "the peer to accept our credentials, which ended or were taken back", theirs: true}, told
	case apierrors.IsForbidden(err):
		return obstacle{thing: "the peer to let us end what we have there: it has suspended us", theirs: true}, false
	default:
		return obstacle{thing: fmt.Sprintf("the peer to answer (%s)", cause(err)), theirs: true}, false
	}
}

// release lets the Peer go.
func (c *leaveStep) release(ctx context.Context, peer *v1alpha1.Peer) error {
	c.links.Close(peer.Name)
	err := c.patch(ctx, peer, func() { controllerutil.RemoveFinalizer(peer, v1alpha1.FinalizerPeer) })
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove finalizer: %w", err)
	}
	return nil
}

// revoke ends what the peer has here as our consumer, when it has left or had its time to.
func (c *leaveStep) revoke(ctx context.Context, peer *v1alpha1.Peer, seen *parting) (obstacle, error) {
	if seen.namespace == nil {
		return obstacle{}, nil
	}
	if peer.HasRole(v1alpha1.RoleConsumer) {
		agreed := seen.mode == v1alpha1.PartingAgreed
		switch {
		case seen.mode == v1alpha1.PartingForgotten, agreed && c.config.hasLeft(peer, seen.claim): // it knows
		case agreed && !seen.overdue:
			return obstacle{thing: "the peer to move its pods away and to leave", theirs: true}, nil
		default: // it is not waited for, and finds out when it comes back
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

// hasLeft says whether nothing of a consumer has to be waited for: it was never let in, or it has taken its leave.
func (c *Config) hasLeft(peer *v1alpha1.Peer, claim *v1alpha1.PeeringClaim) bool {
	return !accepted(claim) || c.departedBy(peer, claim).mode != ""
}

// clearTwins ends the twin namespaces of the peer, and never needs the peer's help. They end before the tenant namespace:
// the right to end them in good order is bound in there.
func (c *leaveStep) clearTwins(ctx context.Context, peer *v1alpha1.Peer, namespace string) (obstacle, error) {
	left, err := end(ctx, c.client, &v1alpha1.NamespaceMappingList{}, client.InNamespace(namespace))
	if err == nil && !left {
		var twins int
		twins, err = c.countTwins(ctx, peer.Name)
		left = twins > 0
	}
	if err != nil || !left {
		return obstacle{}, err
	}
	return obstacle{thing: "the peer's namespaces in this cluster to go"}, nil
}
