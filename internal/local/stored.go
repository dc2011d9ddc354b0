// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/internal/reflection"
)

// Stored is data of this cluster at a peer: the volume of a claim, or a snapshot of one. One of the two fields is nil.
type Stored struct {
	// At is where it lies.
	At reflection.Handle
	// Volume stands for it here.
	Volume *corev1.PersistentVolume
	// Snapshot stands for it here.
	Snapshot *snapshotv1.VolumeSnapshotContent
}

// Name names it for people: as the claim or the snapshot, or as the volume where there is no claim any more.
func (s *Stored) Name() string {
	if s.Snapshot != nil {
		return "snapshot " + s.Snapshot.Spec.VolumeSnapshotRef.Namespace + "/" + s.Snapshot.Spec.VolumeSnapshotRef.Name
	}
	if ref := s.Volume.Spec.ClaimRef; ref != nil && s.Volume.Status.Phase != corev1.VolumeReleased {
		return ref.Namespace + "/" + ref.Name
	}
	return "volume " + s.Volume.Name
}

// StoredAt returns the data at peers whose place is chosen. The reader must show the newest where somebody deletes what is not found.
func StoredAt(ctx context.Context, reader client.Reader, chosen func(reflection.Handle) bool) ([]Stored, error) {
	volumes, contents := &corev1.PersistentVolumeList{}, &snapshotv1.VolumeSnapshotContentList{}
	if err := reader.List(ctx, volumes); err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	if err := reader.List(ctx, contents); err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var stored []Stored
	for i := range volumes.Items {
		if at, away := reflection.HandleOf(&volumes.Items[i]); away && chosen(at) {
			stored = append(stored, Stored{At: at, Volume: &volumes.Items[i]})
		}
	}
	for i := range contents.Items {
		if at, away := reflection.SnapshotHandleOf(&contents.Items[i]); away && chosen(at) {
			stored = append(stored, Stored{At: at, Snapshot: &contents.Items[i]})
		}
	}
	return stored, nil
}
