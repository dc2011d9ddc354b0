// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// resizer returns a running informer of all claims, and gives those more room that ask for it: a directory has as much as its
// disk, so it is enough to say so.
func resizer(ctx context.Context, client kubernetes.Interface) (cache.SharedIndexInformer, error) {
	claims := coreinformers.NewPersistentVolumeClaimInformer(client, corev1.NamespaceAll, controller.DefaultResyncPeriod, cache.Indexers{})
	err := each(ctx, claims, func(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
		if !wantsMore(claim) {
			return nil
		}
		return resize(ctx, client, claim)
	})
	if err != nil {
		return nil, err
	}
	go claims.RunWithContext(ctx)
	return claims, nil
}

func wantsMore(claim *corev1.PersistentVolumeClaim) bool {
	asked, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	return claim.Status.Phase == corev1.ClaimBound && asked.Cmp(has) > 0
}

func isOurs(volume *corev1.PersistentVolume) bool {
	return volume.Annotations["pv.kubernetes.io/provisioned-by"] == name
}

func resize(ctx context.Context, client kubernetes.Interface, claim *corev1.PersistentVolumeClaim) error {
	volumes := client.CoreV1().PersistentVolumes()
	volume, err := volumes.Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !isOurs(volume) {
		return nil
	}
	asked := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	patch := fmt.Appendf(nil, `{"spec":{"capacity":{"storage":%q}}}`, asked.String())
	if _, err := volumes.Patch(ctx, volume.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	patch = fmt.Appendf(nil, `{"status":{"capacity":{"storage":%q}}}`, asked.String())
	_, err = client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}, "status")
	return err
}
