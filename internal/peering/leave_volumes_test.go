// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/reflection"
)

func TestConsumerDoesNotLeaveSnapshotsBehind(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleProvider), &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: "snapcontent-1"},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: v1alpha1.VolumesDriver, Source: snapshotv1.VolumeSnapshotContentSource{VolumeHandle: new("hamburg/shop/pvc-1")},
			VolumeSnapshotRef: corev1.ObjectReference{Namespace: "shop", Name: "monday", UID: "1"},
		},
	})
	w.reconcile()
	w.linked()
	w.part()
	w.expectWait("snapshot shop/monday")
}

func TestConsumerDoesNotLeaveDataBehind(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "u-1"}}
	volume := reflection.Volume(claim, &storagev1.StorageClass{}, "hamburg")
	for name, end := range map[string]func(*world){
		"until the volume is gone": func(w *world) { w.remove(volume) },
		"until it may go": func(w *world) {
			peer := w.peer()
			peer.Spec.Parting = &v1alpha1.PeerParting{Volumes: v1alpha1.DeleteVolumes}
			w.update(peer)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, peerOf(v1alpha1.RoleProvider), volume.DeepCopy())
			w.reconcile()
			w.linked()
			w.part()
			w.expectWait("shop/data")
			if w.remoteClaim().Spec.Phase != "" {
				t.Error("it has taken leave")
			}
			end(w)
			w.finish()
		})
	}
}
