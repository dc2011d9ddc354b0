package kubelet

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// nodeFacts are what decides about a virtual node.
type nodeFacts struct {
	peer *v1alpha1.Peer          // nil if there is none
	ad   *v1alpha1.Advertisement // nil if none is accepted, or we do not consume from the peer (any more)
	node *corev1.Node            // nil if there is none
	// refused says that the peer still offers something, which was accepted before or may be yet: the node is kept for it.
	refused bool
	// link says whether the peer answers.
	link peers.State
	// over says why nothing more is taken from the peer, if so.
	over error
}

// observeNode reads what decides about the virtual node of the peer of that name.
func observeNode(ctx context.Context, reader client.Reader, name string) (nodeFacts, error) {
	seen := nodeFacts{}
	node := &corev1.Node{}
	key := client.ObjectKey{Name: v1alpha1.VirtualNodeName(name)}
	if err := reader.Get(ctx, key, node); err == nil {
		seen.node = node
	} else if !apierrors.IsNotFound(err) {
		return seen, fmt.Errorf("read Node %s: %w", key.Name, err)
	}
	peer := &v1alpha1.Peer{}
	if err := reader.Get(ctx, client.ObjectKey{Name: name}, peer); err != nil {
		return seen, client.IgnoreNotFound(err)
	}
	seen.peer = peer
	if !consumed(peer) {
		return seen, nil
	}
	ad, err := advertisementOf(ctx, reader, peer)
	switch {
	case err != nil || ad == nil:
		return seen, err
	case accepted(ad):
		seen.ad = ad
	default:
		seen.refused = refused(ad)
	}
	return seen, nil
}

// consumed says whether the peer is a provider of ours, and is to stay one.
func consumed(peer *v1alpha1.Peer) bool {
	return peer.HasRole(v1alpha1.RoleProvider) && peer.Spec.ClusterID != "" && peer.DeletionTimestamp.IsZero()
}

// accepted says whether the offer is in force.
func accepted(ad *v1alpha1.Advertisement) bool {
	return meta.IsStatusConditionTrue(ad.Status.Conditions, v1alpha1.ConditionAccepted)
}

// refused says whether the peer offers something that is not accepted. An offer that has expired is none any more.
func refused(ad *v1alpha1.Advertisement) bool {
	found := meta.FindStatusCondition(ad.Status.Conditions, v1alpha1.ConditionAccepted)
	return found != nil && found.Status == metav1.ConditionFalse && found.Reason != v1alpha1.ReasonExpired
}

// advertisementOf returns our copy of what the peer offers, accepted or not, or nil if it offers nothing (any more).
func advertisementOf(ctx context.Context, reader client.Reader, peer *v1alpha1.Peer) (*v1alpha1.Advertisement, error) {
	if peer.Spec.ClusterID == "" {
		return nil, nil
	}
	ad := &v1alpha1.Advertisement{}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer.Name), Name: peer.Spec.ClusterID}
	if err := reader.Get(ctx, key, ad); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if !ad.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	return ad, nil
}

// forsaken says whether we part from the peer by force: nothing is asked of it any more.
func forsaken(peer *v1alpha1.Peer) bool {
	return !peer.DeletionTimestamp.IsZero() && peer.Parting().Mode != v1alpha1.PartingAgreed
}

// cutOff says whether the pod was deleted without any grace: nothing but finalizers of others keeps its object.
func cutOff(pod *corev1.Pod) bool {
	grace := pod.DeletionGracePeriodSeconds
	return !pod.DeletionTimestamp.IsZero() && grace != nil && *grace == 0
}
