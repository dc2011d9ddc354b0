package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// welcome reports whether the provider would use the invitation, as far as that is known here: one that knows this cluster
// under a name does not take it in under another.
func (j *joining) welcome(ctx context.Context, c client.Client) error {
	link, err := tenantSecret(ctx, c, j.name(), v1alpha1.LinkSecret)
	if err != nil || link == nil {
		return err
	}
	peer, err := readPeer(ctx, c, j.name())
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	held, err := peers.ParseCredentials(link.Data)
	lives := err == nil && held.Invitation != "" && meta.IsStatusConditionTrue(peer.Status.Conditions, v1alpha1.ConditionAuthenticated)
	if !lives || held.Namespace == j.invitation.Namespace {
		return nil
	}
	known, meant := nameThere(held.Namespace), nameThere(j.invitation.Namespace)
	return fmt.Errorf("%s knows this cluster as Peer %s, and the invitation is for its Peer %s: it would be refused, and nothing was "+
		"changed. This cluster is joined already; for a new session, ask there for `kubectl hanse invite %s --renew`. For another "+
		"cluster, join there (see --context)", j.invitation.ClusterID, known, meant, known)
}

// nameThere is what a provider calls the cluster that the tenant namespace is for.
func nameThere(namespace string) string {
	return strings.TrimPrefix(namespace, v1alpha1.TenantNamespacePrefix)
}

// errNotAccepted ends a join that cannot succeed.
var errNotAccepted = errors.New("the invitation was not accepted")

// takeBack leaves a Peer that was there before as it was. One that was made for the invitation stays, and says what became of
// it.
func (j *joining) takeBack(ctx context.Context, c client.Client) error {
	if j.before == nil || len(j.before.Spec.Roles) == 0 {
		return nil
	}
	offered, err := tenantSecret(ctx, c, j.name(), v1alpha1.JoinSecret)
	if err != nil {
		return err
	}
	if offered != nil && string(offered.Data[v1alpha1.InvitationToken]) == j.text {
		err := c.Delete(ctx, offered, client.Preconditions{UID: &offered.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("take the invitation out of Secret %s: %w", client.ObjectKeyFromObject(offered), err)
		}
	}
	return changePeer(ctx, c, j.name(), func(peer *v1alpha1.Peer) {
		peer.Spec.Roles = j.before.Spec.Roles
		delete(peer.Annotations, v1alpha1.AnnotationJoin)
	})
}
