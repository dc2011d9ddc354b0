// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// claimed returns the pod with the names that its claims have at the peer. The scheduler binds a pod when its claims have volumes,
// so each of them must have one at the peer. A pod whose claims have others stays: whoever bound it passed over the scheduler, or the
// volume says nothing of nodes.
func (c *podController) claimed(ctx context.Context, home *corev1.Pod) (*corev1.Pod, error) {
	names := map[string]string{}
	for _, name := range offload.ClaimsOf(&home.Spec) {
		there, err := c.claimAt(ctx, home, name)
		if err != nil {
			return nil, err
		}
		names[name] = there
	}
	if len(names) == 0 {
		return home, nil
	}
	return offload.WithClaims(home, names), nil
}

// claimAt returns the name that the claim of the pod has in the twin.
func (c *podController) claimAt(ctx context.Context, home *corev1.Pod, name string) (string, error) {
	held := func(why string) error {
		return reconcile.TerminalError(&heldError{fmt.Sprintf("its claim %q ", name) + why})
	}
	claim := &corev1.PersistentVolumeClaim{}
	err := c.live.Get(ctx, client.ObjectKey{Namespace: home.Namespace, Name: name}, claim)
	switch {
	case apierrors.IsNotFound(err):
		return "", held("does not exist")
	case err != nil:
		return "", fmt.Errorf("read claim %s: %w", name, err)
	case claim.Spec.VolumeName == "":
		return "", held("has no volume")
	}
	volume := &corev1.PersistentVolume{}
	if err := c.live.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, volume); err != nil {
		return "", fmt.Errorf("read PersistentVolume %s: %w", claim.Spec.VolumeName, err)
	}
	place := peerOf(home.Spec.NodeName) + "/" + home.Namespace + "/"
	if volume.Spec.CSI == nil || volume.Spec.CSI.Driver != v1alpha1.VolumesDriver {
		return "", held("has a volume of this cluster, which does not go to another")
	}
	there, found := strings.CutPrefix(volume.Spec.CSI.VolumeHandle, place)
	if !found || strings.Contains(there, "/") {
		return "", held("has a volume at another peer, or of another namespace")
	}
	return there, nil
}
