// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	errNoSource = errors.New("volumes begin empty, or from a VolumeSnapshot in the namespace of the claim where the cluster has these (testbed up --snapshots)")
	errNotReady = errors.New("it is not ready to use yet")
	errNotOurs  = errors.New("it is a snapshot of another driver than " + name)
	errTooSmall = errors.New("the claim asks for less than the snapshot needs")
)

// source finds the directory that a claim begins from.
func (d *directories) source(ctx context.Context, claim *corev1.PersistentVolumeClaim) (string, error) {
	if d.snapshots == nil || !isSnapshot(claim.Spec.DataSourceRef, claim.Namespace) {
		return "", errNoSource
	}
	snapshot, err := d.snapshots.VolumeSnapshots(claim.Namespace).Get(ctx, claim.Spec.DataSourceRef.Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if !isReady(snapshot) {
		return "", errNotReady
	}
	content, err := d.snapshots.VolumeSnapshotContents().Get(ctx, *snapshot.Status.BoundVolumeSnapshotContentName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if err := restorable(content, snapshot, claim); err != nil {
		return "", err
	}
	disk, err := d.find(snapshotsFolder, *content.Status.SnapshotHandle)
	return filepath.Join(disk, snapshotsFolder, *content.Status.SnapshotHandle), err
}

func isSnapshot(source *corev1.TypedObjectReference, namespace string) bool {
	return source.APIGroup != nil && *source.APIGroup == snapshotv1.GroupName && source.Kind == "VolumeSnapshot" &&
		(source.Namespace == nil || *source.Namespace == namespace)
}

func isReady(snapshot *snapshotv1.VolumeSnapshot) bool {
	status := snapshot.Status
	return status != nil && status.BoundVolumeSnapshotContentName != nil && status.ReadyToUse != nil && *status.ReadyToUse
}

// restorable tells why a claim cannot begin from the content of a snapshot. Both must name each other: either may be replaced.
func restorable(content *snapshotv1.VolumeSnapshotContent, snapshot *snapshotv1.VolumeSnapshot, claim *corev1.PersistentVolumeClaim) error {
	asked := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	switch status := content.Status; {
	case content.Spec.Driver != name:
		return errNotOurs
	case content.Spec.VolumeSnapshotRef.UID != snapshot.UID || status == nil || status.SnapshotHandle == nil:
		return errNotReady
	case status.RestoreSize != nil && asked.Value() < *status.RestoreSize:
		return fmt.Errorf("%w: %d bytes", errTooSmall, *status.RestoreSize)
	}
	return nil
}
