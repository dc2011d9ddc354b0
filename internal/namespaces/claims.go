// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// withClaims is the rule for pods of which some use claims. Admission keeps those at home, or has them wait if they must leave: it
// does not see of which class a claim is. A pod leaves if each claim has a volume at a peer, or gets one where the pod goes. Else it
// stays here, and its user is told why where they want it to leave. While a claim is not there, nobody knows.
func (c *waiting) withClaims(
	ctx context.Context, pod *corev1.Pod, offloading *v1alpha1.NamespaceOffloading, release releaseRule,
) (*corev1.Pod, bool, error) {
	cause, known, err := c.staysFor(ctx, pod)
	switch {
	case err != nil || !known && offloading != nil:
		return pod, false, err
	case cause == "" || offloading == nil:
		changed, due := release(pod)
		return changed, due, nil
	case !offload.Gated(pod):
		return pod, false, nil
	}
	if offloading.Spec.Strategy == v1alpha1.StrategyRemote {
		err = (&homebound{c.Config}).tell(ctx, pod, cause)
	}
	return offload.Ungated(pod), true, err
}

// staysFor says which claim keeps the pod here and why, or "" if none does, and whether that is known.
func (c *waiting) staysFor(ctx context.Context, pod *corev1.Pod) (cause string, known bool, err error) {
	for _, name := range offload.ClaimsOf(&pod.Spec) {
		claim, err := local.Find(ctx, c.Client, client.ObjectKey{Namespace: pod.Namespace, Name: name}, &corev1.PersistentVolumeClaim{})
		if err != nil || claim == nil {
			return "", false, err
		}
		leaves, err := c.leaves(ctx, claim)
		if err != nil {
			return "", false, err
		}
		if stays := reflection.Keeps(claim); stays != "" && claim.Spec.VolumeName == "" {
			return fmt.Sprintf("claim %q gets its volume on a node of this cluster: %s", name, stays), true, nil
		}
		if !leaves {
			return fmt.Sprintf("claim %q has StorageClass %q, and its volume is on the nodes of this cluster; claims of classes with the "+
				"provisioner %s can have theirs in other clusters", name, ptr.Deref(claim.Spec.StorageClassName, ""), v1alpha1.VolumesDriver), true, nil
		}
	}
	return "", true, nil
}

// leaves says whether the volume of the claim is at a peer, or may be.
func (c *waiting) leaves(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	if claim.Spec.VolumeName != "" {
		volume, err := local.Find(ctx, c.Client, client.ObjectKey{Name: claim.Spec.VolumeName}, &corev1.PersistentVolume{})
		if err != nil || volume == nil {
			return false, err
		}
		_, away := reflection.HandleOf(volume)
		return away, nil
	}
	name := ptr.Deref(claim.Spec.StorageClassName, "")
	if name == "" {
		return false, nil
	}
	class, err := local.Find(ctx, c.Client, client.ObjectKey{Name: name}, &storagev1.StorageClass{})
	return err == nil && class != nil && class.Provisioner == v1alpha1.VolumesDriver, err
}

// claimsAmong are those of the volumes that are claims.
func claimsAmong(volumes []corev1.Volume) []corev1.Volume {
	return slices.DeleteFunc(slices.Clone(volumes), func(v corev1.Volume) bool { return v.PersistentVolumeClaim == nil })
}

// keepsVolumes says whether volumes of claims of the namespace, or snapshots of these, lie at the peer. Its twin must not go: their data would go with it.
// The cache may not show the newest.
func (m *mappings) keepsVolumes(ctx context.Context, namespace, peer string) (bool, error) {
	stored, err := local.StoredAt(ctx, m.Live, func(at reflection.Handle) bool { return at.Peer == peer && at.Namespace == namespace })
	return len(stored) > 0, err
}
