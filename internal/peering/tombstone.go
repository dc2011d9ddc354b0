package peering

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

// consumerStatement is the key of the tombstone under which that statement lies which we, as the peer's consumer, deliver
// when the peer answers again. The one for the peer to find is under v1alpha1.TombstoneStatement.
const consumerStatement = "statement-consumer"

// inform leaves a consumer a statement that we have parted from it, and the right to read it. One that has no identity
// here needs none.
func (c *leaveStep) inform(ctx context.Context, peer *v1alpha1.Peer, seen *parting) error {
	account := serviceAccount(seen.namespace.Name, v1alpha1.PeerServiceAccount)
	known, err := c.find(ctx, account)
	if err != nil || !known {
		return err
	}
	invitation := ""
	if seen.claim != nil {
		invitation = seen.claim.Spec.Invitation
	}
	if err := c.state(ctx, peer, seen, v1alpha1.TombstoneStatement, invitation); err != nil {
		return err
	}
	subject := accountSubject(account.Namespace, account.Name)
	return c.bind(ctx, account.Namespace, v1alpha1.ClusterRolePeerTombstone, subject)
}

// state writes a signed statement that we have parted from the peer. What stands there already stays.
func (c *leaveStep) state(ctx context.Context, peer *v1alpha1.Peer, seen *parting, key, invitation string) error {
	text, err := trust.SignTombstone(c.config.ClusterKey, trust.Tombstone{
		From: c.config.ClusterID, To: peer.Spec.ClusterID, Invitation: invitation, Time: c.config.Clock.Now(),
	})
	if err != nil {
		return err
	}
	stone := configMap(seen.namespace.Name, v1alpha1.Tombstone)
	err = c.put(ctx, stone, func() {
		if stone.Data[key] != "" {
			return
		}
		if stone.Data == nil {
			stone.Data = map[string]string{}
		}
		stone.Data[key] = text
	})
	if err == nil {
		seen.stone = stone
	}
	return err
}

// clear ends the tenant namespace, when nothing else of the peer is left: as a whole, or all but the tombstone.
func (c *leaveStep) clear(ctx context.Context, peer *v1alpha1.Peer, seen *parting) (obstacle, error) {
	going := obstacle{thing: "namespace " + v1alpha1.TenantNamespace(peer.Name) + " to go"}
	ns := seen.namespace
	switch {
	case seen.ending:
		return going, nil
	case ns == nil:
		return obstacle{}, nil
	}
	if seen.mode == v1alpha1.PartingForced && peer.HasRole(v1alpha1.RoleProvider) && peer.Protocol().Sessions {
		if err := c.stateAsConsumer(ctx, peer, seen); err != nil {
			return obstacle{}, err
		}
	}
	if seen.mode == v1alpha1.PartingForgotten || seen.stone == nil {
		return going, c.deleteNamespace(ctx, ns)
	}
	if err := c.strip(ctx, ns.Name, seen.stone); err != nil {
		return obstacle{}, err
	}
	return obstacle{}, c.keepTombstone(ctx, ns)
}

// stateAsConsumer keeps a statement for a peer that we have credentials for.
func (c *leaveStep) stateAsConsumer(ctx context.Context, peer *v1alpha1.Peer, seen *parting) error {
	credentials, err := existing(ctx, c.direct, secret(seen.namespace.Name, v1alpha1.LinkSecret))
	if err != nil || credentials == nil {
		return err
	}
	return c.state(ctx, peer, seen, consumerStatement, string(credentials.Data[v1alpha1.LinkSecretInvitation]))
}

// strip takes out of the tenant namespace what the tombstone does not need. Bindings of our manager stay, by which it
// can.
func (c *leaveStep) strip(ctx context.Context, namespace string, stone *corev1.ConfigMap) error {
	needless := append(ofConsumer(namespace), secret(namespace, v1alpha1.JoinSecret))
	if stone.Data[v1alpha1.TombstoneStatement] == "" {
		needless = append(needless, identityOfConsumer(namespace)...)
	}
	if stone.Data[consumerStatement] == "" {
		needless = append(needless, secret(namespace, v1alpha1.LinkSecret))
	}
	offers := &v1alpha1.AdvertisementList{}
	if err := c.client.List(ctx, offers, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list Advertisements: %w", err)
	}
	for i := range offers.Items {
		needless = append(needless, &offers.Items[i])
	}
	return errors.Join(
		c.remove(ctx, needless...),
		c.unbind(ctx, namespace, v1alpha1.ClusterRoleKubeletInTenant),
	)
}

// keepTombstone makes the tenant namespace the tombstone, in one step: before it the parting begins again, after it there is
// nothing left to do.
func (c *leaveStep) keepTombstone(ctx context.Context, ns *corev1.Namespace) error {
	expires := c.config.Clock.Now().Add(c.config.TombstoneLife).UTC().Format(time.RFC3339)
	return c.mark(ctx, ns, map[string]string{v1alpha1.LabelType: v1alpha1.TypeTombstone},
		map[string]string{v1alpha1.AnnotationExpires: expires})
}

// How often it is tried to deliver a statement: as long after the last time as that was after the parting, within these
// bounds.
const (
	firstDelivery = time.Minute
	lastDelivery  = time.Hour
)

// tombstoneStep looks after what is left of a former peer: it delivers the statement that is not for the peer to find, and
// ends the tombstone when that has served.
type tombstoneStep struct{ *leaveStep }

// Reconcile implements step.
func (c *tombstoneStep) Reconcile(ctx context.Context, o *observation) (result, error) {
	again, err := c.serve(ctx, o.namespace, o.peer)
	if err != nil || !again.IsZero() {
		return result{again: again}, err
	}
	c.links.Close(o.peer.Name)
	return result{}, c.deleteNamespace(ctx, o.namespace)
}

// remaining is how long the tombstone is still kept: not at all if nobody can tell.
func (c *tombstoneStep) remaining(ns *corev1.Namespace) time.Duration {
	expires, err := time.Parse(time.RFC3339, ns.Annotations[v1alpha1.AnnotationExpires])
	if err != nil {
		return 0
	}
	return expires.Sub(c.config.Clock.Now())
}

// serve tries to deliver the statement that is to be delivered. It returns when to look again, zero if there is nothing to
// keep the tombstone for.
func (c *tombstoneStep) serve(ctx context.Context, ns *corev1.Namespace, peer *v1alpha1.Peer) (time.Time, error) {
	left, now := c.remaining(ns), c.config.Clock.Now()
	if left <= 0 {
		return time.Time{}, nil
	}
	stone, credentials := configMap(ns.Name, v1alpha1.Tombstone), secret(ns.Name, v1alpha1.LinkSecret)
	there, err := c.find(ctx, stone)
	if err != nil || !there {
		return time.Time{}, err
	}
	if text := stone.Data[consumerStatement]; text != "" {
		able, err := c.find(ctx, credentials)
		if err != nil {
			return time.Time{}, err
		}
		if able && !c.deliver(ctx, peer, text) {
			passed := c.config.TombstoneLife - left
			return now.Add(min(left, max(passed, firstDelivery), lastDelivery)), nil
		}
	}
	if stone.Data[v1alpha1.TombstoneStatement] == "" {
		return time.Time{}, nil
	}
	if stone.Data[consumerStatement] != "" {
		c.links.Close(peer.Name)
		if err = c.remove(ctx, credentials); err == nil {
			err = c.put(ctx, stone, func() { delete(stone.Data, consumerStatement) })
		}
	}
	return now.Add(left), err
}

// deliver tells the peer, over the link that is left, that we have parted from it. It reports whether that is done.
func (c *tombstoneStep) deliver(ctx context.Context, peer *v1alpha1.Peer, text string) bool {
	log := ctrl.LoggerFrom(ctx).WithValues("peer", peer.Name)
	link, err := c.links.Ensure(ctx, peer)
	if err == nil {
		err = tellLeaving(ctx, link, text)
	}
	if err == nil || apierrors.IsNotFound(err) {
		log.Info("The peer knows now that we have parted from it")
		return true
	}
	log.V(1).Info("The peer cannot be told yet that we have parted from it", "cause", err.Error())
	return false
}
