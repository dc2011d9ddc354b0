// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// withClaim has the pod use the claim data.
func withClaim(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}}
	return pod
}

func claimOfClass(class string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "u-1"},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: &class},
	}
}

func classOf(name, provisioner string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
}

func TestWhereAPodWithAClaimMayGo(t *testing.T) {
	away := claimOfClass("hanse")
	away.Spec.VolumeName = "pvc-u-1"
	kept, late := claimOfClass("hanse"), away.DeepCopy()
	for _, claim := range []*corev1.PersistentVolumeClaim{kept, late} {
		claim.Annotations = map[string]string{v1alpha1.LabelSkipReflection: "true"}
	}
	here := claimOfClass("hanse")
	here.Spec.VolumeName = "local"
	for name, test := range map[string]struct {
		claim  *corev1.PersistentVolumeClaim
		leaves bool
		known  bool
	}{
		"a claim that gets its volume anywhere": {claimOfClass("hanse"), true, true},
		"a claim with a volume at a peer":       {away, true, true},
		"a claim with a volume here":            {here, false, true},
		"a claim that its author keeps at home": {kept, false, true},
		"one whose volume is at a peer already": {late, true, true},
		"a claim of another class":              {claimOfClass("local"), false, true},
		"a claim of no class":                   {claimOfClass(""), false, true},
		"a claim that is not there yet":         {nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			ours := classOf("hanse", v1alpha1.VolumesDriver)
			remote := offloadingWith("shop", v1alpha1.StrategyRemote, nil)
			w := newWorld(t, remote, ours, classOf("local", "example.com/local"), reflection.Volume(claimOfClass("hanse"), ours, "turin"),
				&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "local"}})
			if test.claim != nil {
				w.cluster.Put(test.claim)
			}
			released := false
			rule := func(pod *corev1.Pod) (*corev1.Pod, bool) { released = true; return pod, true }
			changed, due, err := w.controller.waiting.withClaims(t.Context(), withClaim(gated("db-0", "1")), remote, rule)
			if err != nil {
				t.Fatal(err)
			}
			staysHome := due && !released && !offload.Gated(changed) && len(w.podEvents()) == 1
			if diff := cmp.Diff([]bool{test.known, test.leaves, test.known && !test.leaves}, []bool{due, released, staysHome}); diff != "" {
				t.Errorf("changed, released, kept at home (-want +got):\n%s", diff)
			}
		})
	}
}

func TestATwinWithVolumesIsNotGivenUp(t *testing.T) {
	w := newWorld(t, offloadingWith("shop", v1alpha1.StrategyRemote, nil), provider("turin"), virtualNode("turin", nil))
	w.connect("turin")
	w.settle("shop")
	w.peers["turin"].answer(t, "shop", twin("shop-lubeck-abcdef"))
	w.settle("shop")
	volume := reflection.Volume(claimOfClass("hanse"), classOf("hanse", v1alpha1.VolumesDriver), "turin")
	w.cluster.Put(volume)
	if err := w.home.Delete(t.Context(), w.offloading("shop")); err != nil {
		t.Fatal(err)
	}
	w.mustReconcile(w.controller.mappings, pair("shop", "turin"))
	if left := w.peers["turin"].names(); len(left) != 1 {
		t.Fatalf("mappings %v: the data goes with the twin", left)
	}
	w.cluster.Remove(volume)
	w.mustReconcile(w.controller.mappings, pair("shop", "turin"))
	if left := w.peers["turin"].names(); len(left) != 0 {
		t.Errorf("mappings %v", left)
	}
}
