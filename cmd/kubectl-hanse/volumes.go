// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// errDataLost is returned for what would delete data that nobody said may go.
var errDataLost = errors.New("data would be lost")

// names are those of the claims and snapshots.
func names(stored []local.Stored) []string { return namesOf(stored, (*local.Stored).Name) }

// deleteData deletes the claims and the snapshots. Claims that pods use go when these have gone.
func deleteData(ctx context.Context, c client.Client, stored []local.Stored) error {
	for i := range stored {
		object, ref := sourceOf(&stored[i])
		if ref == nil {
			continue
		}
		object.SetNamespace(ref.Namespace)
		object.SetName(ref.Name)
		err := c.Delete(ctx, object, client.Preconditions{UID: &ref.UID})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // one of the name that has other data
			return fmt.Errorf("delete %s: %w", stored[i].Name(), err)
		}
	}
	return nil
}

// sourceOf is what a user deletes so that the data goes: a claim or a snapshot, of the name and UID of ref, which is nil if there is none.
func sourceOf(stored *local.Stored) (object client.Object, ref *corev1.ObjectReference) {
	if stored.Snapshot != nil {
		return &snapshotv1.VolumeSnapshot{}, &stored.Snapshot.Spec.VolumeSnapshotRef
	}
	return &corev1.PersistentVolumeClaim{}, stored.Volume.Spec.ClaimRef
}

// tellData says what becomes of volumes in other clusters when the namespace is no longer offloaded, and deletes their claims if
// that was asked for. Kubernetes keeps those that pods use until these have gone.
func tellData(ctx context.Context, cluster install.Cluster, flags *unoffloadFlags, namespace string) error {
	stored, err := local.StoredAt(ctx, cluster.Client, func(at reflection.Handle) bool { return at.Namespace == namespace })
	if err != nil || len(stored) == 0 {
		return err
	}
	if flags.deleteData {
		cluster.Report("Deleting the claims %s, whose volumes are in other clusters", some(names(stored)))
		return deleteData(ctx, cluster.Client, stored)
	}
	cluster.Report("The volumes of the claims %s are in other clusters and stay there: new pods with these claims wait until the namespace "+
		"is offloaded again. To delete them and their data: --delete-data", some(names(stored)))
	return nil
}

// deleteDataAt deletes our claims whose volumes are at the peer. Without the peer they would be good for nothing.
func deleteDataAt(ctx context.Context, c client.Client, peer string, report func(string, ...any)) error {
	stored, err := local.StoredAt(ctx, c, func(at reflection.Handle) bool { return at.Peer == peer })
	if err != nil || len(stored) == 0 {
		return err
	}
	report("Deleting the claims %s, whose volumes are in %s", some(names(stored)), peer)
	return deleteData(ctx, c, stored)
}

// checkData refuses to leave a peer where that would delete data: of our claims there, or of its claims here.
func checkData(ctx context.Context, c client.Client, peer *v1alpha1.Peer) error {
	if !peer.DeletionTimestamp.IsZero() {
		return nil
	}
	ours, err := local.StoredAt(ctx, c, func(at reflection.Handle) bool { return at.Peer == peer.Name })
	if err != nil {
		return err
	}
	theirs, err := claimsOfPeer(ctx, c, peer.Name)
	if err != nil {
		return err
	}
	if len(ours) > 0 {
		err = errors.Join(err, fmt.Errorf("%w: claims of this cluster have volumes in %s (%s)", errDataLost, peer.Name, some(names(ours))))
	}
	if theirs > 0 {
		err = errors.Join(err, fmt.Errorf("%w: %s has %d claims with volumes in this cluster", errDataLost, peer.Name, theirs))
	}
	if err != nil {
		return fmt.Errorf("%w. Save what is needed and delete the claims, or say --delete-data", err)
	}
	return nil
}

// claimsOfPeer counts what the peer keeps in this cluster.
func claimsOfPeer(ctx context.Context, c client.Client, peer string) (int, error) {
	twins := &corev1.NamespaceList{}
	if err := c.List(ctx, twins, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelPeer: peer}); err != nil {
		return 0, fmt.Errorf("list twin namespaces: %w", err)
	}
	count := 0
	for i := range twins.Items {
		shadows := &v1alpha1.ShadowClaimList{}
		if err := c.List(ctx, shadows, client.InNamespace(twins.Items[i].Name)); err != nil {
			return 0, fmt.Errorf("list ShadowClaims in %s: %w", twins.Items[i].Name, err)
		}
		count += len(shadows.Items)
	}
	return count, nil
}
