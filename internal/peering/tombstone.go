package peering

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

// consumerStatement is the key of the tombstone under which that statement lies which we, as the peer's consumer, deliver
// when the peer answers again. The one for the peer to find is under v1alpha1.TombstoneStatement.
const consumerStatement = "statement-consumer"

func tombstone(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.Tombstone}}
}

// inform leaves a consumer a statement that we have parted from it, and the right to read it. One that has no identity
// here needs none.
func (t *tenants) inform(ctx context.Context, peer *v1alpha1.Peer, seen *parting) error {
	account := serviceAccount(seen.namespace.Name, v1alpha1.PeerServiceAccount)
	known, err := t.exists(ctx, account)
	if err != nil || !known {
		return err
	}
	invitation := ""
	if seen.claim != nil {
		invitation = seen.claim.Spec.Invitation
	}
	if err := t.state(ctx, peer, seen, v1alpha1.TombstoneStatement, invitation); err != nil {
		return err
	}
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}
	return t.bind(ctx, account.Namespace, v1alpha1.ClusterRolePeerTombstone, subject)
}

// state writes a signed statement that we have parted from the peer. What stands there already stays.
func (t *tenants) state(ctx context.Context, peer *v1alpha1.Peer, seen *parting, key, invitation string) error {
	text, err := trust.SignTombstone(t.config.ClusterKey, trust.Tombstone{
		From: t.config.ClusterID, To: peer.Spec.ClusterID, Invitation: invitation, Time: t.config.Clock.Now(),
	})
	if err != nil {
		return err
	}
	stone := tombstone(seen.namespace.Name)
	err = t.put(ctx, stone, func() {
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

// bury ends the tenant namespace, when nothing else of the peer is left: as a whole, or all but the tombstone.
func (t *tenants) bury(ctx context.Context, peer *v1alpha1.Peer, seen *parting) (obstacle, error) {
	going := obstacle{thing: "namespace " + v1alpha1.TenantNamespace(peer.Name) + " to go"}
	ns := seen.namespace
	switch {
	case seen.ending:
		return going, nil
	case ns == nil:
		return obstacle{}, nil
	}
	if seen.mode == v1alpha1.PartingForced && peer.HasRole(v1alpha1.RoleProvider) && !peer.Agentless() {
		if err := t.stateAsConsumer(ctx, peer, seen); err != nil {
			return obstacle{}, err
		}
	}
	if seen.mode == v1alpha1.PartingForgotten || seen.stone == nil {
		return going, t.deleteNamespace(ctx, ns)
	}
	if err := t.strip(ctx, ns.Name, seen.stone); err != nil {
		return obstacle{}, err
	}
	return obstacle{}, t.erect(ctx, ns)
}

// stateAsConsumer keeps a statement for a peer that we have credentials for.
func (t *tenants) stateAsConsumer(ctx context.Context, peer *v1alpha1.Peer, seen *parting) error {
	credentials := secret(seen.namespace.Name, v1alpha1.LinkSecret)
	found, err := t.exists(ctx, credentials)
	if err != nil || !found {
		return err
	}
	return t.state(ctx, peer, seen, consumerStatement, string(credentials.Data[v1alpha1.LinkSecretInvitation]))
}

// strip takes out of the tenant namespace what the tombstone does not need. Bindings of our manager stay, by which it
// can.
func (t *tenants) strip(ctx context.Context, namespace string, stone *corev1.ConfigMap) error {
	needless := []client.Object{
		serviceAccount(namespace, v1alpha1.InvitationServiceAccount), secret(namespace, v1alpha1.InvitationSecret),
		secret(namespace, v1alpha1.JoinSecret), claim(namespace), clusterInfo(namespace), bandwidthSample(namespace),
		tenantQuota(namespace),
	}
	if stone.Data[v1alpha1.TombstoneStatement] == "" {
		needless = append(needless,
			serviceAccount(namespace, v1alpha1.PeerServiceAccount), secret(namespace, v1alpha1.SessionSecret))
	}
	if stone.Data[consumerStatement] == "" {
		needless = append(needless, secret(namespace, v1alpha1.LinkSecret))
	}
	offers := &v1alpha1.AdvertisementList{}
	if err := t.client.List(ctx, offers, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list Advertisements: %w", err)
	}
	for i := range offers.Items {
		needless = append(needless, &offers.Items[i])
	}
	return errors.Join(
		t.remove(ctx, needless...),
		t.unbind(ctx, namespace, v1alpha1.ClusterRoleKubeletInTenant),
	)
}

// erect makes of the tenant namespace the tombstone, in one step: before it the parting begins again, after it there is
// nothing left to do.
func (t *tenants) erect(ctx context.Context, ns *corev1.Namespace) error {
	want := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{v1alpha1.LabelType: v1alpha1.TypeTombstone},
		Annotations: map[string]string{
			v1alpha1.AnnotationExpires: t.config.Clock.Now().Add(t.config.TombstoneLife).UTC().Format(time.RFC3339),
		},
	}}
	_, err := t.mark(ctx, ns, want)
	return err
}
