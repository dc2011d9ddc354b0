package peering

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// How soon it is looked again whether what a parting waits for has happened, where nothing tells us: the longer it has
// waited, the later.
const (
	firstPartingPause = time.Second
	lastPartingPause  = 30 * time.Second
	partingPauses     = 10 // a pause is the time that has passed, divided by this
)

// An obstacle is what a parting waits for. The zero value is none.
type obstacle struct {
	thing string
	// theirs means that the peer has to do something, so that it never ends if the peer is gone for ever.
	theirs bool
}

func (o obstacle) stands() bool { return o.thing != "" }

// A parting is what one look at a Peer that is being deleted found. All of it is seen in the objects, so that a parting
// goes on wherever it was interrupted.
type parting struct {
	mode      v1alpha1.PartingMode
	namespace *corev1.Namespace      // the peer's tenant namespace, nil if it is gone, going or not ours
	ending    bool                   // the namespace is going, and our rights in it with it
	node      bool                   // our pods may still run at the peer
	claim     *v1alpha1.PeeringClaim // of the consumer, nil if there is none
	stone     *corev1.ConfigMap      // the tombstone, nil if we have not begun to part by force
	overdue   bool                   // the consumer had its time
}

// farewell parts from a peer whose Peer is being deleted: as its consumer and as its provider, both at once, and then
// takes away what was made for it here.
func (c *Controller) farewell(ctx context.Context, peer *v1alpha1.Peer) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(peer, v1alpha1.FinalizerPeer) {
		c.links.Close(peer.Name)
		return reconcile.Result{}, nil
	}
	seen, err := c.observeParting(ctx, peer)
	if err != nil {
		return reconcile.Result{}, err
	}
	left, leaveErr := c.leave(ctx, peer, seen)
	revoked, revokeErr := c.revoke(ctx, peer, seen)
	if err := errors.Join(leaveErr, revokeErr); err != nil {
		return reconcile.Result{}, err
	}
	for _, obstacle := range []obstacle{left, revoked} {
		if obstacle.stands() {
			return c.wait(ctx, peer, obstacle)
		}
	}
	buried, err := c.tenants.bury(ctx, peer, seen)
	if err != nil {
		return reconcile.Result{}, err
	}
	if buried.stands() {
		return c.wait(ctx, peer, buried)
	}
	return reconcile.Result{}, c.release(ctx, peer)
}

func (c *Controller) observeParting(ctx context.Context, peer *v1alpha1.Peer) (*parting, error) {
	seen := &parting{
		mode:    peer.Parting().Mode,
		overdue: !c.config.Clock.Now().Before(peer.DeletionTimestamp.Add(c.config.PartingDeadline)),
	}
	var err error
	node := &corev1.Node{}
	node.Name = v1alpha1.VirtualNodeName(peer.Name)
	if seen.node, err = c.tenants.exists(ctx, node); err != nil {
		return nil, err
	}
	seen.node = seen.node && isOfType(node, v1alpha1.TypeVirtualNode)

	ns := &corev1.Namespace{}
	ns.Name = v1alpha1.TenantNamespace(peer.Name)
	found, err := c.tenants.exists(ctx, ns)
	if err != nil || !found || !peer.OwnsTenantNamespace(ns) {
		return seen, err
	}
	if seen.ending = !ns.DeletionTimestamp.IsZero(); seen.ending {
		return seen, nil
	}
	// A Peer may be deleted before we have any rights in its namespace.
	manager := c.tenants.ownSubject(c.config.ManagerServiceAccount)
	if err := c.tenants.bind(ctx, ns.Name, v1alpha1.ClusterRoleManagerInTenant, manager); err != nil {
		return nil, err
	}
	seen.namespace, seen.claim, seen.stone = ns, claim(ns.Name), tombstone(ns.Name)
	if found, err = c.tenants.exists(ctx, seen.claim); !found {
		seen.claim = nil
	}
	if err != nil {
		return nil, err
	}
	if found, err = c.tenants.exists(ctx, seen.stone); !found {
		seen.stone = nil
	}
	return seen, err
}

// revoke ends what the peer has here as our consumer, when it has left or had its time to.
func (c *Controller) revoke(ctx context.Context, peer *v1alpha1.Peer, seen *parting) (obstacle, error) {
	if seen.namespace == nil {
		return obstacle{}, nil
	}
	if peer.HasRole(v1alpha1.RoleConsumer) {
		manner := c.config.mannerOf(peer, seen)
		if manner == patiently {
			return obstacle{thing: "the peer to move its pods away and to leave", theirs: true}, nil
		}
		if manner == leavingATombstone {
			if err := c.tenants.inform(ctx, peer, seen); err != nil {
				return obstacle{}, err
			}
		}
	}
	err := c.tenants.unbind(ctx, seen.namespace.Name, v1alpha1.ClusterRolePeerTenant, v1alpha1.ClusterRolePeerInvitation)
	if err != nil {
		return obstacle{}, err
	}
	return c.tenants.clearTwins(ctx, peer, seen.namespace.Name)
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

// wait says what the parting waits for, and when to look again.
func (c *Controller) wait(ctx context.Context, peer *v1alpha1.Peer, o obstacle) (reconcile.Result, error) {
	passed := c.config.Clock.Since(peer.DeletionTimestamp.Time)
	pause := min(max(passed/partingPauses, firstPartingPause), lastPartingPause)
	if left := c.config.PartingDeadline - passed; left > 0 {
		pause = min(pause, left)
	}
	return reconcile.Result{RequeueAfter: pause}, c.report(ctx, peer, &facts{ours: c.config.Version, waitsFor: o})
}

// release lets the Peer go.
func (c *Controller) release(ctx context.Context, peer *v1alpha1.Peer) error {
	c.links.Close(peer.Name)
	c.forget(peer.Name)
	before := peer.DeepCopy()
	controllerutil.RemoveFinalizer(peer, v1alpha1.FinalizerPeer)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(c.client.Patch(ctx, peer, patch)); err != nil {
		return fmt.Errorf("remove finalizer: %w", err)
	}
	return nil
}

// clearTwins ends the twin namespaces of the peer, and never needs the peer's help. They end before the tenant namespace:
// the right to end them in good order is bound in there.
func (t *tenants) clearTwins(ctx context.Context, peer *v1alpha1.Peer, namespace string) (obstacle, error) {
	waiting := obstacle{thing: "the peer's namespaces in this cluster to go"}
	mappings := &v1alpha1.NamespaceMappingList{}
	if err := t.client.List(ctx, mappings, client.InNamespace(namespace)); err != nil {
		return obstacle{}, fmt.Errorf("list NamespaceMappings: %w", err)
	}
	for i := range mappings.Items {
		mapping := &mappings.Items[i]
		if !mapping.DeletionTimestamp.IsZero() {
			continue
		}
		if err := client.IgnoreNotFound(t.client.Delete(ctx, mapping)); err != nil {
			return obstacle{}, fmt.Errorf("delete NamespaceMapping %s: %w", mapping.Name, err)
		}
	}
	if len(mappings.Items) > 0 {
		return waiting, nil
	}
	twins := &corev1.NamespaceList{}
	err := t.client.List(ctx, twins, client.MatchingLabels{
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
