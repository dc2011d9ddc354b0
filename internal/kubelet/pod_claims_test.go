// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// claimOf is the claim of the pod, and its volume.
func claimOf(volume string, source corev1.PersistentVolumeSource) []client.Object {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}
	claim.Spec.VolumeName = volume
	if volume == "" {
		return []client.Object{claim}
	}
	return []client.Object{claim, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volume}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source},
	}}
}

func at(driver, handle string) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}}
}

func TestAPodGoesOutWithTheNamesThatItsClaimsHaveThere(t *testing.T) {
	for name, test := range map[string]struct {
		objects []client.Object
		want    string // or none if the pod is held
	}{
		"a volume at the peer":           {claimOf("pv", at(v1alpha1.VolumesDriver, turin+"/shop/pvc-1")), "pvc-1"},
		"one at another peer":            {claimOf("pv", at(v1alpha1.VolumesDriver, "milan/shop/pvc-1")), ""},
		"one of another namespace":       {claimOf("pv", at(v1alpha1.VolumesDriver, turin+"/other/pvc-1")), ""},
		"one that leads out of the twin": {claimOf("pv", at(v1alpha1.VolumesDriver, turin+"/shop/a/b")), ""},
		"one of another driver":          {claimOf("pv", at("example.com", turin+"/shop/pvc-1")), ""},
		"one that any node can mount":    {claimOf("pv", corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{}}), ""},
		"none yet":                       {claimOf("", corev1.PersistentVolumeSource{}), ""},
		"a claim that does not exist":    {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := testkit.NewWorld(t, test.objects...).Home
			home := testkit.Pod("shop", "db-0", turinNode)
			home.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data", ReadOnly: true},
			}}}
			out, err := (&podController{live: cluster.Client}).claimed(t.Context(), home)
			var held *heldError
			switch {
			case test.want == "" && !errors.As(err, &held):
				t.Errorf("it goes out: %v", err)
			case test.want != "" && (err != nil || offload.ClaimsOf(&out.Spec)[0] != test.want || !out.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly):
				t.Errorf("it goes out with %v, %v", out, err)
			case home.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "data":
				t.Error("the cache's own pod has changed")
			}
		})
	}
}
