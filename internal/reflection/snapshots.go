// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// A volume at a peer is one of a CSI driver for the snapshot-controller of home: for each VolumeSnapshot of such a volume it makes a
// VolumeSnapshotContent, as for any driver. What the sidecar of a driver does with that, Hanse does: it asks the peer for a snapshot,
// and tells in the status of the content what became of it.

const (
	kindSnapshot = "VolumeSnapshot"
	// FinalizerContent is on VolumeSnapshotContents until the driver has deleted the snapshot.
	FinalizerContent = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"

	snapshotPrefix = "snapshot-"
	contentPrefix  = "snapcontent-"

	// maxSnapshotError is how long the reason may be that a content gives.
	maxSnapshotError = 512
)

// The kinds of snapshots, which not every cluster has.
var (
	Snapshots        = snapshotv1.SchemeGroupVersion.WithKind(kindSnapshot)
	SnapshotContents = snapshotv1.SchemeGroupVersion.WithKind("VolumeSnapshotContent")
)

// SnapshotHandleOf returns where the snapshot lies, or will lie, if that is at a peer.
func SnapshotHandleOf(content *snapshotv1.VolumeSnapshotContent) (Handle, bool) {
	if content.Spec.Driver != v1alpha1.VolumesDriver {
		return Handle{}, false
	}
	if content.Spec.Source.SnapshotHandle != nil {
		return ParseHandle(*content.Spec.Source.SnapshotHandle)
	}
	at, ok := ParseHandle(ptr.Deref(content.Spec.Source.VolumeHandle, ""))
	at.Claim = snapshotPrefix + string(content.Spec.VolumeSnapshotRef.UID)
	return at, ok
}

// ContentOf returns the name of the VolumeSnapshotContent for which the ShadowClaim of that name keeps a snapshot, if it is one of those
// that the snapshot-controller makes.
func ContentOf(shadow string) (string, bool) {
	uid, ok := strings.CutPrefix(shadow, snapshotPrefix)
	return contentPrefix + uid, ok
}

// ShadowSnapshot returns what a peer is asked to keep for the snapshot of the volume, in the twin namespace.
func ShadowSnapshot(content *snapshotv1.VolumeSnapshotContent, volume *corev1.PersistentVolume, twin string) (*v1alpha1.ShadowClaim, error) {
	at, ok := SnapshotHandleOf(content)
	of, known := HandleOf(volume)
	if !ok || !known || ptr.Deref(content.Spec.Source.VolumeHandle, "") != of.String() {
		return nil, Refusal("the volume that it is to be taken of is gone")
	}
	return &v1alpha1.ShadowClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: twin, Name: at.Claim},
		Spec: v1alpha1.ShadowClaimSpec{
			HomeUID: content.Spec.VolumeSnapshotRef.UID, SnapshotOf: of.Claim, Storage: volume.Spec.Capacity[corev1.ResourceStorage],
			AccessModes: volume.Spec.AccessModes, VolumeMode: ptr.Deref(volume.Spec.VolumeMode, corev1.PersistentVolumeFilesystem),
		},
	}, nil
}

// SnapshotStatus returns what the content says of the snapshot that the peer keeps by the ShadowClaim, at the time now.
func SnapshotStatus(
	content *snapshotv1.VolumeSnapshotContent, shadow *v1alpha1.ShadowClaim, now time.Time,
) *snapshotv1.VolumeSnapshotContentStatus {
	at, _ := SnapshotHandleOf(content)
	ready := shadow.Status.Phase == string(corev1.ClaimBound)
	status := &snapshotv1.VolumeSnapshotContentStatus{SnapshotHandle: new(at.String()), ReadyToUse: &ready}
	if taken := shadow.Status.SnapshotTime; taken != nil {
		status.CreationTime = new(taken.UnixNano())
	}
	if room := shadow.Status.Capacity; room != nil {
		status.RestoreSize = new(room.Value())
	}
	kept := meta.FindStatusCondition(shadow.Status.Conditions, v1alpha1.ConditionReady)
	if kept != nil && kept.Message != "" && !ready {
		status.Error = SnapshotError(content, fmt.Sprintf("peer %q: %s", at.Peer, kept.Message), now)
	}
	return status
}

// SnapshotError returns what the content says of a snapshot that cannot be taken, with the time when it said so first.
func SnapshotError(content *snapshotv1.VolumeSnapshotContent, why string, now time.Time) *snapshotv1.VolumeSnapshotError {
	why = sanitize.Text(why, maxSnapshotError)
	if content.Status != nil && content.Status.Error != nil && ptr.Deref(content.Status.Error.Message, "") == why {
		return content.Status.Error
	}
	return &snapshotv1.VolumeSnapshotError{Time: new(metav1.NewTime(now).Rfc3339Copy()), Message: &why}
}

// BeginsWith returns the snapshot of which the volume of the claim is to begin as a copy, or "" if it is to be empty, or a Refusal.
func BeginsWith(claim *corev1.PersistentVolumeClaim) (string, error) {
	ref := claim.Spec.DataSourceRef
	switch {
	case ref == nil && claim.Spec.DataSource == nil:
		return "", nil
	case ref == nil: // the API server fills in the other one
		return "", Refusal("it has a dataSource and no dataSourceRef")
	case ptr.Deref(ref.APIGroup, "") != snapshotv1.GroupName || ref.Kind != kindSnapshot:
		return "", Refusal("it is to begin as a copy of a " + ref.Kind + ", and can begin as one of a VolumeSnapshot")
	case ptr.Deref(ref.Namespace, claim.Namespace) != claim.Namespace:
		return "", Refusal("it is to begin as a copy of a snapshot of another namespace")
	}
	return ref.Name, nil
}

// CopiedFrom returns where the snapshot lies of which the volume of a claim can begin as a copy, or a Refusal. The content may be nil.
func CopiedFrom(snapshot *snapshotv1.VolumeSnapshot, content *snapshotv1.VolumeSnapshotContent) (Handle, error) {
	if content == nil || snapshot.Status == nil || !ptr.Deref(snapshot.Status.ReadyToUse, false) {
		return Handle{}, Refusal(fmt.Sprintf("VolumeSnapshot %q is not ready to use yet", snapshot.Name))
	}
	at, ok := SnapshotHandleOf(content)
	ref := &content.Spec.VolumeSnapshotRef
	switch {
	case !ok:
		return Handle{}, Refusal(fmt.Sprintf("VolumeSnapshot %q is of driver %s, and at no peer: give the claim a class of that driver",
			snapshot.Name, content.Spec.Driver))
	case ref.Namespace != snapshot.Namespace || ref.Name != snapshot.Name || ref.UID != snapshot.UID || at.Namespace != snapshot.Namespace:
		return Handle{}, Refusal(fmt.Sprintf("VolumeSnapshot %q has the content of another one", snapshot.Name))
	}
	return at, nil
}

// SnapshotTold returns what a provider tells of the snapshot that it keeps for the ShadowClaim, and why there is none yet, if that is
// known.
func SnapshotTold(shadow *v1alpha1.ShadowClaim, snapshot *snapshotv1.VolumeSnapshot) (v1alpha1.ShadowClaimStatus, string) {
	told := *shadow.Status.DeepCopy()
	told.ObservedGeneration = shadow.Generation
	told.Phase = string(corev1.ClaimPending)
	status := ptr.Deref(snapshot.Status, snapshotv1.VolumeSnapshotStatus{})
	told.Capacity, told.SnapshotTime = status.RestoreSize, status.CreationTime
	if ptr.Deref(status.ReadyToUse, false) {
		told.Phase = string(corev1.ClaimBound)
		return told, ""
	}
	if status.Error != nil {
		return told, ptr.Deref(status.Error.Message, "")
	}
	return told, ""
}

// Snapshot returns what a provider makes for a ShadowClaim with snapshotOf.
func Snapshot(shadow *v1alpha1.ShadowClaim) *snapshotv1.VolumeSnapshot {
	return &snapshotv1.VolumeSnapshot{
		ObjectMeta: ownedBy(shadow),
		Spec: snapshotv1.VolumeSnapshotSpec{
			Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: new(shadow.Spec.SnapshotOf)},
		},
	}
}
