package tenant

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

const debugForbidden = "The provider does not let this cluster debug its pods: its administrator can allow it by " +
	"spec.allowDebug of the Peer"

// debug adds the ephemeral containers that the pod does not have yet. They are never changed and never taken off.
func (k *keeper) debug(ctx context.Context, seen *scene, peer *v1alpha1.Peer) (*refusal, error) {
	wanted, err := offload.Debugging(seen.shadow, rulesOf(seen, peer))
	if err != nil {
		return refused(v1alpha1.ReasonPodInvalid, err), nil
	}
	pod := seen.pod.DeepCopy()
	for i := range wanted {
		if !slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool {
			return c.Name == wanted[i].Name
		}) {
			pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, wanted[i])
		}
	}
	if len(pod.Spec.EphemeralContainers) == len(seen.pod.Spec.EphemeralContainers) {
		return nil, nil
	}
	if !peer.Spec.AllowDebug {
		return &refusal{reason: v1alpha1.ReasonDebugForbidden, message: debugForbidden}, nil
	}
	err = k.client.SubResource("ephemeralcontainers").Patch(ctx, pod, client.StrategicMergeFrom(seen.pod))
	return k.refusalOf(ctx, err)
}
