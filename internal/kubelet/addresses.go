package kubelet

import (
	"context"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// addressMap returns how this cluster sees the pod addresses of the peer that runs the pod. It maps nothing while one
// of the ranges is not known: a peer's raw address may be that of a local pod.
func (c *podController) addressMap(ctx context.Context, home *corev1.Pod) (offload.AddressMap, error) {
	peer := &v1alpha1.Peer{}
	key := client.ObjectKey{Name: peerOf(home.Spec.NodeName)}
	if err := c.client.Get(ctx, key, peer, client.UnsafeDisableDeepCopy); err != nil {
		return offload.AddressMap{}, client.IgnoreNotFound(err)
	}
	// Pods keep their addresses while the newest offer is refused: our copy says what was accepted last.
	ad, err := advertisementOf(ctx, c.client, peer)
	if err != nil || ad == nil || ad.Spec.Network == nil {
		return offload.AddressMap{}, err
	}
	return offload.AddressMap{From: prefix(ad.Spec.Network.PodCIDR), To: prefix(peer.Status.RemappedPodCIDR)}, nil
}

// prefix returns the range that the text means, or the zero Prefix, by which nothing is mapped.
func prefix(text string) netip.Prefix {
	parsed, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}
	}
	return parsed
}
