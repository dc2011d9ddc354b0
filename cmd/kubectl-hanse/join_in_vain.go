// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// allowed reports whether the Peer, which may be a new one, can stand for the provider.
func (j *joining) allowed(peer *v1alpha1.Peer) error {
	offered := j.invitation
	if err := standsFor(peer, offered.ClusterID); err != nil {
		return err
	}
	if key := peer.Spec.PublicKey; key != "" && key != offered.PublicKey {
		return fmt.Errorf("the key of the invitation is not the one that %s had when you became peers. Either somebody else "+
			"has made this invitation, or the cluster was made anew. If its administrator tells you the same key, pin it, and join again: "+
			"kubectl patch peer %s --type=merge -p '{\"spec\":{\"publicKey\":\"%s\"}}'", offered.ClusterID, peer.Name, offered.PublicKey)
	}
	return nil
}

// standsFor reports why the Peer, which may be a new one, cannot stand for the cluster.
func standsFor(peer *v1alpha1.Peer, clusterID string) error {
	switch {
	case !peer.DeletionTimestamp.IsZero():
		return errors.New("it is being deleted: try again when it is gone")
	case peer.Agentless():
		return errors.New("it is an agentless peer: say another name with --as")
	case peer.Spec.ClusterID != "" && peer.Spec.ClusterID != clusterID:
		return fmt.Errorf("it stands for cluster %q, not for %q: say another name with --as, or `kubectl hanse unpeer %s` first",
			peer.Spec.ClusterID, clusterID, peer.Name)
	default:
		return nil
	}
}

// choose finds what the provider is called here. A cluster that is known keeps its name.
func (j *joining) choose(ctx context.Context, c client.Client) error {
	seen := take(ctx, c, scope{}, time.Time{}, partPeers)
	if err := seen.err(partPeers); err != nil {
		return err
	}
	name, err := seen.nameOf(j.invitation.ClusterID, j.as)
	if err == nil && j.as == "" && name != j.invitation.ClusterID {
		j.told.report("Cluster %s is called %s here", j.invitation.ClusterID, name)
	}
	j.as = name
	return err
}

// nameOf is what a cluster is to be called here: by its known name, which must be the wanted one, or else by that one or its id.
func (s *snapshot) nameOf(clusterID, wanted string) (string, error) {
	known := find(s.peers.Items, func(p *v1alpha1.Peer) bool { return p.Spec.ClusterID == clusterID && p.Name != wanted })
	switch {
	case known == nil:
		return orElse(wanted, clusterID), nil
	case wanted != "":
		return wanted, fmt.Errorf("cluster %q is Peer %s here already: say --as %s, or `kubectl hanse unpeer %s` first", clusterID, known.Name, known.Name, known.Name)
	default:
		return known.Name, nil
	}
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
		peer.Spec.AcceptMembers, peer.Spec.AskMembers = j.before.Spec.AcceptMembers, j.before.Spec.AskMembers
		delete(peer.Annotations, v1alpha1.AnnotationJoin)
	})
}

// refusals are the reasons of condition Session with which the invitation will not be used, however long one waits.
var refusals = []string{
	v1alpha1.ReasonKeyMismatch, v1alpha1.ReasonClusterIDMismatch, v1alpha1.ReasonClusterIDTaken,
	v1alpha1.ReasonInvitationUsed, v1alpha1.ReasonInvitationInvalid, v1alpha1.ReasonInvitationExpired,
	v1alpha1.ReasonProofInvalid,
}

func whyNotReady(peer *v1alpha1.Peer) string {
	session := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionSession)
	if session != nil && session.Status == metav1.ConditionFalse {
		return because(session)
	}
	return because(meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionReady))
}
