// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	snapshotclient "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/typed/volumesnapshot/v1"
	"github.com/kubernetes-csi/external-snapshotter/client/v8/informers/externalversions"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Names that the snapshot-controller and the drivers have agreed on.
const (
	defaultClass      = "snapshot.storage.kubernetes.io/is-default-class"
	beingDeleted      = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted"
	contentProtection = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"
)

// pace is how often what failed is tried again.
const pace = 2 * time.Second

var errNoVolume = errors.New("only snapshots of volumes can be taken, and none from elsewhere be used")

// A snapshotter takes snapshots of volumes of ours and removes them, as the driver of a CSI volume does with its sidecar. It also
// makes the VolumeSnapshotContents, because the snapshot-controller makes these for CSI volumes alone. All else is left to that.
type snapshotter struct {
	volumes   coreclient.CoreV1Interface
	snapshots snapshotclient.SnapshotV1Interface
	made      *directories
	now       func() time.Time
}

// start takes snapshots until the context ends.
func (s *snapshotter) start(ctx context.Context, api versioned.Interface) error {
	informers := externalversions.NewSharedInformerFactory(api, pace)
	kinds := informers.Snapshot().V1()
	err := errors.Join(each(ctx, kinds.VolumeSnapshots().Informer(), s.prepare), each(ctx, kinds.VolumeSnapshotContents().Informer(), s.serve))
	informers.Start(ctx.Done())
	return err
}

// prepare makes the content of a snapshot of a volume of ours. A snapshot that means the default class is told which that is: the
// snapshot-controller knows defaults of CSI drivers alone.
func (s *snapshotter) prepare(ctx context.Context, snapshot *snapshotv1.VolumeSnapshot) error {
	if !snapshot.DeletionTimestamp.IsZero() || isBound(snapshot) || snapshot.Spec.Source.PersistentVolumeClaimName == nil {
		return nil
	}
	classes, err := s.snapshots.VolumeSnapshotClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	class := classOf(snapshot, classes.Items)
	if class == nil {
		return nil
	}
	volume, err := s.volumeOf(ctx, snapshot)
	if err != nil || volume == nil {
		return err
	}
	_, err = s.snapshots.VolumeSnapshotContents().Create(ctx, contentOf(snapshot, class, volume), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if snapshot.Spec.VolumeSnapshotClassName != nil {
		return nil
	}
	patch := fmt.Appendf(nil, `{"spec":{"volumeSnapshotClassName":%q}}`, class.Name)
	_, err = s.snapshots.VolumeSnapshots(snapshot.Namespace).Patch(ctx, snapshot.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func isBound(snapshot *snapshotv1.VolumeSnapshot) bool {
	return snapshot.Status != nil && snapshot.Status.BoundVolumeSnapshotContentName != nil
}

// classOf is the class of ours that a snapshot names, or means by naming none.
func classOf(snapshot *snapshotv1.VolumeSnapshot, classes []snapshotv1.VolumeSnapshotClass) *snapshotv1.VolumeSnapshotClass {
	index := slices.IndexFunc(classes, func(class snapshotv1.VolumeSnapshotClass) bool {
		if named := snapshot.Spec.VolumeSnapshotClassName; named != nil {
			return class.Name == *named && class.Driver == name
		}
		return class.Annotations[defaultClass] == "true" && class.Driver == name
	})
	if index < 0 {
		return nil
	}
	return &classes[index]
}

// volumeOf is the volume of ours that a snapshot is to be taken of. There may be none yet.
func (s *snapshotter) volumeOf(ctx context.Context, snapshot *snapshotv1.VolumeSnapshot) (*corev1.PersistentVolume, error) {
	claims := s.volumes.PersistentVolumeClaims(snapshot.Namespace)
	claim, err := claims.Get(ctx, *snapshot.Spec.Source.PersistentVolumeClaimName, metav1.GetOptions{})
	if err != nil || claim.Status.Phase != corev1.ClaimBound {
		return nil, err
	}
	volume, err := s.volumes.PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil || !isOurs(volume) {
		return nil, err
	}
	return volume, nil
}

// contentOf has the name under which the snapshot-controller looks for it.
func contentOf(
	snapshot *snapshotv1.VolumeSnapshot, class *snapshotv1.VolumeSnapshotClass, volume *corev1.PersistentVolume,
) *snapshotv1.VolumeSnapshotContent {
	return &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: "snapcontent-" + string(snapshot.UID)},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			VolumeSnapshotRef: corev1.ObjectReference{
				APIVersion: snapshotv1.SchemeGroupVersion.String(), Kind: "VolumeSnapshot",
				Namespace: snapshot.Namespace, Name: snapshot.Name, UID: snapshot.UID,
			},
			Source: snapshotv1.VolumeSnapshotContentSource{VolumeHandle: &volume.Name},
			Driver: name, VolumeSnapshotClassName: &class.Name, DeletionPolicy: class.DeletionPolicy,
			SourceVolumeMode: volume.Spec.VolumeMode,
		},
	}
}

// serve brings the directory of a content to what the content says.
func (s *snapshotter) serve(ctx context.Context, content *snapshotv1.VolumeSnapshotContent) error {
	switch {
	case content.Spec.Driver != name:
		return nil
	case !content.DeletionTimestamp.IsZero():
		return s.release(ctx, content)
	case content.Status != nil && content.Status.ReadyToUse != nil && *content.Status.ReadyToUse:
		return nil
	}
	size, failure := s.take(ctx, content)
	if failure != nil && isKnown(failure, content) {
		return failure
	}
	content = content.DeepCopy()
	content.Status = outcome(content.Name, size, failure, s.now())
	_, err := s.snapshots.VolumeSnapshotContents().UpdateStatus(ctx, content, metav1.UpdateOptions{})
	return errors.Join(failure, err)
}

// take copies the directory of a volume, and tells how much room the copy needs.
func (s *snapshotter) take(ctx context.Context, content *snapshotv1.VolumeSnapshotContent) (size int64, err error) {
	if content.Spec.Source.VolumeHandle == nil {
		return 0, errNoVolume
	}
	volume, err := s.volumes.PersistentVolumes().Get(ctx, *content.Spec.Source.VolumeHandle, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	disk, err := s.made.find(volumesFolder, volume.Name)
	if err != nil {
		return 0, err
	}
	from, to := filepath.Join(disk, volumesFolder, volume.Name), filepath.Join(disk, snapshotsFolder, content.Name)
	return volume.Spec.Capacity.Storage().Value(), duplicate(ctx, from, to)
}

func isKnown(failure error, content *snapshotv1.VolumeSnapshotContent) bool {
	status := content.Status
	return status != nil && status.Error != nil && status.Error.Message != nil && *status.Error.Message == failure.Error()
}

// outcome is the status of a content whose snapshot was taken, or was not.
func outcome(handle string, size int64, failure error, now time.Time) *snapshotv1.VolumeSnapshotContentStatus {
	if failure != nil {
		return &snapshotv1.VolumeSnapshotContentStatus{
			ReadyToUse: new(false),
			Error:      &snapshotv1.VolumeSnapshotError{Time: &metav1.Time{Time: now}, Message: new(failure.Error())},
		}
	}
	return &snapshotv1.VolumeSnapshotContentStatus{
		ReadyToUse: new(true), SnapshotHandle: &handle, RestoreSize: &size, CreationTime: new(now.UnixNano()),
	}
}

// release lets a content go, and its directory with it if the policy says so. The snapshot-controller says when the snapshot is
// deleted: who deletes its content alone loses nothing.
func (s *snapshotter) release(ctx context.Context, content *snapshotv1.VolumeSnapshotContent) error {
	if _, said := content.Annotations[beingDeleted]; !said || !slices.Contains(content.Finalizers, contentProtection) {
		return nil
	}
	if content.Spec.DeletionPolicy == snapshotv1.VolumeSnapshotContentDelete {
		if err := s.made.remove(snapshotsFolder, content.Name); err != nil {
			return err
		}
	}
	content = content.DeepCopy()
	content.Finalizers = slices.DeleteFunc(content.Finalizers, func(finalizer string) bool { return finalizer == contentProtection })
	_, err := s.snapshots.VolumeSnapshotContents().Update(ctx, content, metav1.UpdateOptions{})
	return err
}
