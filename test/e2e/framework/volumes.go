// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PersistentWordScript prints the same word each time that it starts with the same data.
const PersistentWordScript = "[ -e /data/word ] || cat /proc/sys/kernel/random/uuid > /data/word; echo word $(cat /data/word); " + RunForever

// NewClaimTemplate returns a claim named data of that StorageClass.
func NewClaimTemplate(class string) corev1.PersistentVolumeClaim {
	return corev1.PersistentVolumeClaim{
		ObjectMeta: ObjectMeta("data"),
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Mi")}},
		},
	}
}

// MountClaim has the pod use the claim at /data.
func MountClaim(spec *corev1.PodSpec, claim string) {
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}})
	spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
}

// RemoteClaims returns the claims whose volumes are at a peer, and these.
func (c *Cluster) RemoteClaims(t *testing.T, ns string) map[string]string {
	t.Helper()
	claims := &corev1.PersistentVolumeClaimList{}
	if err := c.List(t.Context(), claims, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	away := map[string]string{}
	for i := range claims.Items {
		volume := &corev1.PersistentVolume{}
		if err := c.Get(t.Context(), types.NamespacedName{Name: claims.Items[i].Spec.VolumeName}, volume); err != nil {
			t.Fatal(err)
		}
		if volume.Spec.CSI != nil {
			away[claims.Items[i].Name] = volume.Name
		}
	}
	return away
}

// ClaimOfVolume is the claim that is kept here for a volume of that name at another cluster.
func (c *Cluster) ClaimOfVolume(t *testing.T, volume string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claims := &corev1.PersistentVolumeClaimList{}
	if err := c.List(t.Context(), claims, client.MatchingFields{"metadata.name": volume}); err != nil || len(claims.Items) != 1 {
		t.Fatalf("claims %s: %v, %v", volume, claims.Items, err)
	}
	return &claims.Items[0]
}
