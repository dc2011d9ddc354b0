// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"path/filepath"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// restored are the options of a volume on a node, for a claim that begins from the snapshot monday.
func restored(node string) controller.ProvisionOptions {
	o := options(node)
	o.PVC.Namespace = "shop"
	o.PVC.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: new(snapshotv1.GroupName), Kind: "VolumeSnapshot", Name: "monday"}
	return o
}

// bind makes the snapshot of a content ready, as the snapshot-controller does.
func (w *world) bind() {
	w.t.Helper()
	snapshot, err := w.snapshots.VolumeSnapshots("shop").Get(w.t.Context(), "monday", metav1.GetOptions{})
	w.must(err)
	snapshot.Status = &snapshotv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: new("snapcontent-u1"), ReadyToUse: new(true)}
	_, err = w.snapshots.VolumeSnapshots("shop").UpdateStatus(w.t.Context(), snapshot, metav1.UpdateOptions{})
	w.must(err)
}

func TestAClaimBeginsFromASnapshotOnAnyNode(t *testing.T) {
	for _, node := range []string{node, "lubeck-worker-2"} {
		w := newWorld(t)
		w.taken("local")
		w.bind()
		w.write("volumes/pvc-0/sub/file", "new")
		if _, _, err := w.made.Provision(t.Context(), restored(node)); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(w.made.disks[node], "volumes/pvc-1")
		w.expectFile(dir, "sub/file", "old")
		w.expectGone(dir + ".unfinished")
	}
}

func TestAClaimThatCannotBeginSaysWhy(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*world, *controller.ProvisionOptions, *snapshotv1.VolumeSnapshotContent)
		is     func(error) bool
	}{
		{"another kind", func(_ *world, o *controller.ProvisionOptions, _ *snapshotv1.VolumeSnapshotContent) {
			o.PVC.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}
		}, is(errNoSource)},
		{"another namespace", func(_ *world, o *controller.ProvisionOptions, _ *snapshotv1.VolumeSnapshotContent) {
			o.PVC.Spec.DataSourceRef.Namespace = new("bank")
		}, is(errNoSource)},
		{"a cluster without snapshots", func(w *world, _ *controller.ProvisionOptions, _ *snapshotv1.VolumeSnapshotContent) {
			w.made.snapshots = nil
		}, is(errNoSource)},
		{"no such snapshot", func(_ *world, o *controller.ProvisionOptions, _ *snapshotv1.VolumeSnapshotContent) {
			o.PVC.Spec.DataSourceRef.Name = "tuesday"
		}, apierrors.IsNotFound},
		{"a snapshot that is not ready", func(w *world, _ *controller.ProvisionOptions, _ *snapshotv1.VolumeSnapshotContent) {
			w.must(w.snapshots.VolumeSnapshots("shop").Delete(w.t.Context(), "monday", metav1.DeleteOptions{}))
			w.snapshot("data", "local")
		}, is(errNotReady)},
		{"another driver's", func(_ *world, _ *controller.ProvisionOptions, content *snapshotv1.VolumeSnapshotContent) {
			content.Spec.Driver = "csi.example"
		}, is(errNotOurs)},
		{"the content of another snapshot", func(_ *world, _ *controller.ProvisionOptions, content *snapshotv1.VolumeSnapshotContent) {
			content.Spec.VolumeSnapshotRef.UID = "u0"
		}, is(errNotReady)},
		{"too little room", func(_ *world, _ *controller.ProvisionOptions, content *snapshotv1.VolumeSnapshotContent) {
			content.Status.RestoreSize = new(int64(1<<30 + 1))
		}, is(errTooSmall)},
		{"a directory that is lost", func(w *world, _ *controller.ProvisionOptions, _ *snapshotv1.VolumeSnapshotContent) {
			w.must(w.made.remove(snapshotsFolder, "snapcontent-u1"))
		}, is(errNoDirectory)},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, o := newWorld(t), restored(node)
			content := w.taken("local")
			w.bind()
			test.change(w, &o, content)
			_, err := w.snapshots.VolumeSnapshotContents().Update(t.Context(), content, metav1.UpdateOptions{})
			w.must(err)
			_, state, err := w.made.Provision(t.Context(), o)
			if !test.is(err) || state != controller.ProvisioningFinished {
				t.Errorf("%s, %v", state, err)
			}
			w.expectGone(filepath.Join(w.disk, "volumes/pvc-1"))
		})
	}
}

func is(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
