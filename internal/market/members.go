// SPDX-License-Identifier: Apache-2.0

package market

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/trust"
)

// Members of brokers take part in auctions, if the administrator wants them to be asked. One that wins is asked for room through the same
// broker. When it has reserved it, it becomes a peer, by an invitation that comes the same way, and is then asked as any other winner
// is: what it has reserved becomes the room of that Request.

// findMembers finds those that may be asked.
func (a *applications) findMembers(ctx context.Context, seen *scene, all []v1alpha1.Peer) error {
	brokers, peers := brokersAmong(all), clustersOf(all)
	if when, _ := seen.app.AuctionTerms(); when == v1alpha1.AuctionNever || len(brokers) == 0 {
		return nil
	}
	known := &v1alpha1.MemberList{}
	if err := a.Client.List(ctx, known, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Members: %w", err)
	}
	slices.SortFunc(known.Items, func(a, b v1alpha1.Member) int { return cmp.Compare(a.Name, b.Name) })
	for i := range known.Items {
		member := &known.Items[i]
		if broker := brokerFor(member, brokers); broker != "" && !peers.Has(member.Name) {
			seen.members = append(seen.members, rowOf(member))
			seen.brokers[member.Name], seen.reserves[member.Name] = broker, true
		}
	}
	return nil
}

// brokersAmong are the peers through which members are asked, by name.
func brokersAmong(all []v1alpha1.Peer) (brokers []*v1alpha1.Peer) {
	for i := range all {
		if peer := &all[i]; peer.HasRole(v1alpha1.RoleBroker) && peer.DeletionTimestamp.IsZero() && len(peer.Spec.AskMembers) > 0 {
			brokers = append(brokers, peer)
		}
	}
	slices.SortFunc(brokers, func(a, b *v1alpha1.Peer) int { return cmp.Compare(a.Name, b.Name) })
	return brokers
}

// clustersOf are the names and ids of peers, which are asked as such. One that only waits for an invitation is none yet.
func clustersOf(all []v1alpha1.Peer) sets.Set[string] {
	found := sets.New[string]()
	for i := range all {
		if peer := &all[i]; peer.Name != peer.Spec.ClusterID || !peer.DeletionTimestamp.IsZero() || !peer.AwaitsInvitation() {
			found.Insert(peer.Name, peer.Spec.ClusterID)
		}
	}
	return found
}

// brokerFor is the first of the brokers through which the member may be asked, empty if it is not to be asked.
func brokerFor(member *v1alpha1.Member, brokers []*v1alpha1.Peer) string {
	if !meta.IsStatusConditionTrue(member.Status.Conditions, v1alpha1.ConditionCurrent) || member.Status.Offer == nil {
		return ""
	}
	for _, broker := range brokers {
		if broker.AsksMember(member.Name) && member.IsKnownThrough(broker.Name) {
			return broker.Name
		}
	}
	return ""
}

// rowOf is what is known of the member. Its Peer will have the name of its id.
func rowOf(member *v1alpha1.Member) exchange.Row {
	offer := member.Status.Offer
	return exchange.Row{ClusterID: member.Name, Peer: member.Name, Accepted: true, Open: true, Offer: v1alpha1.AdvertisementSpec{
		ClusterID: member.Name, Availability: offer.Availability, Prices: offer.Prices, Labels: offer.Labels,
	}}
}

// nodeOf is what would stand for the member, as far as it is known.
func nodeOf(row *exchange.Row) *corev1.Node {
	labels := offload.PeerLabels(row.Peer, row.Offer.Labels)
	labels[v1alpha1.LabelType], labels[v1alpha1.LabelPeer], labels[v1alpha1.LabelClusterID] = v1alpha1.TypeVirtualNode, row.Peer, row.ClusterID
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.VirtualNodeName(row.Peer), Labels: labels}}
}

// handOver asks members that have won for room, and makes peers of those that have reserved it.
func (a *applications) handOver(ctx context.Context, seen *scene, status *v1alpha1.ApplicationStatus) error {
	for _, name := range peersOf(status.Components) {
		broker := introducerOf(status, name)
		if broker == "" || !a.isForgotten(ctx, name) {
			continue
		}
		if a.askMember(ctx, seen, status, name); !isReserved(seen.relayed[name]) {
			continue
		}
		member := &v1alpha1.Member{}
		if err := a.Client.Get(ctx, client.ObjectKey{Name: name}, member); err != nil {
			if apierrors.IsNotFound(err) {
				seen.refused[name] = "Nothing is known of it any more"
				continue
			}
			return fmt.Errorf("read Member %s: %w", name, err)
		}
		peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PeerSpec{
			ClusterID: name, PublicKey: member.Spec.PublicKey, Roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider}, Introducer: broker,
		}}
		if err := a.Client.Create(ctx, peer, fieldOwner); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make a peer of member %s: %w", name, err)
		}
	}
	return nil
}

// askMember asks the member for room, unless it was asked. One that cannot be asked is one that is silent.
func (a *applications) askMember(ctx context.Context, seen *scene, status *v1alpha1.ApplicationStatus, name string) {
	wanted := seen.want(name, status)
	if wanted == nil {
		return
	}
	switch err := a.Members.Request(ctx, introducerOf(status, name), name, wanted.Name, &wanted.Spec); {
	case errors.Is(err, trust.ErrStatementSize):
		seen.refused[name] = tooLarge
	case err != nil:
		ctrl.LoggerFrom(ctx).Info("No Request", "Member", name, "cause", err.Error())
	}
}

// isReserved reports whether the Request, which may be nil, is acknowledged.
func isReserved(request *v1alpha1.Request) bool {
	return request != nil && meta.IsStatusConditionTrue(request.Status.Conditions, v1alpha1.ConditionAcknowledged)
}

// introducerOf is the broker through which the peer was asked, if it has won as a member and nothing is agreed with it yet; else empty.
func introducerOf(status *v1alpha1.ApplicationStatus, peer string) string {
	if status.Auction == nil || !slices.ContainsFunc(status.Components, func(c v1alpha1.PlacedComponent) bool { return c.Peer == peer && !c.Acknowledged }) {
		return ""
	}
	i := slices.IndexFunc(status.Auction.Offers, func(o v1alpha1.AuctionOffer) bool { return o.Peer == peer })
	if i < 0 {
		return ""
	}
	return status.Auction.Offers[i].Broker
}

// notIntroduced says why the peer gives no invitation, empty if it may yet.
func notIntroduced(peer *v1alpha1.Peer) string {
	said := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionIntroduced)
	if peer.Spec.Introducer == "" || said == nil || said.Reason != v1alpha1.ReasonNotAccepted && said.Reason != v1alpha1.ReasonKeyMismatch {
		return ""
	}
	return cmp.Or(said.Message, said.Reason)
}
