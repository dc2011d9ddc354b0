// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// A ShadowClaim with snapshotOf gets a VolumeSnapshot in place of a claim, by the class that is the default for the driver of the volume.

// findSnapshot returns the VolumeSnapshot of the ShadowClaim's name, nil if there is none.
func (r *claimReconciler) findSnapshot(ctx context.Context, shadow *v1alpha1.ShadowClaim) (*snapshotv1.VolumeSnapshot, error) {
	found, err := local.Find(ctx, r.live, client.ObjectKeyFromObject(shadow), &snapshotv1.VolumeSnapshot{})
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	return found, err
}

// snap takes the snapshot. An error may be a refusal, see refusalOf.
func (r *claimReconciler) snap(ctx context.Context, seen *claimFacts) error {
	switch {
	case seen.snapshot == nil && seen.made():
		return reflection.Refusal("the snapshot was deleted at the provider")
	case seen.snapshot == nil:
		return r.takeSnapshot(ctx, seen)
	case !metav1.IsControlledBy(seen.snapshot, seen.shadow):
		return reflection.Refusal("the provider has a snapshot of this name already")
	}
	if told, why := reflection.SnapshotTold(seen.shadow, seen.snapshot); why != "" && told.Phase != string(corev1.ClaimBound) {
		return reflection.Refusal(why)
	}
	return nil
}

func (r *claimReconciler) takeSnapshot(ctx context.Context, seen *claimFacts) error {
	if err := seen.takesMore(); err != nil {
		return err
	}
	source := client.ObjectKey{Namespace: seen.shadow.Namespace, Name: seen.shadow.Spec.SnapshotOf}
	of, err := local.Find(ctx, r.client, source, &v1alpha1.ShadowClaim{})
	if err != nil {
		return err
	}
	claim, err := local.Find(ctx, r.client, source, &corev1.PersistentVolumeClaim{})
	if err != nil {
		return err
	}
	if of == nil || claim == nil || !metav1.IsControlledBy(claim, of) {
		return reflection.Refusal(fmt.Sprintf("the provider keeps no volume for a ShadowClaim %q", source.Name))
	}
	if err := r.reserve(ctx, seen); err != nil {
		return err
	}
	snapshot := reflection.Snapshot(seen.shadow)
	err = r.client.Create(ctx, snapshot)
	if meta.IsNoMatchError(err) {
		return reflection.Refusal("the provider's cluster takes no snapshots: it has no VolumeSnapshots")
	}
	if err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Took snapshot for a peer", "claim", source.Name)
	seen.snapshot = snapshot
	return nil
}

// checkSource refuses a volume that is to begin as a copy of what is no snapshot of the same peer.
func (r *claimReconciler) checkSource(ctx context.Context, shadow *v1alpha1.ShadowClaim) error {
	if shadow.Spec.DataSource == "" {
		return nil
	}
	key := client.ObjectKey{Namespace: shadow.Namespace, Name: shadow.Spec.DataSource}
	source, err := local.Find(ctx, r.client, key, &v1alpha1.ShadowClaim{})
	if err != nil {
		return err
	}
	if source == nil || source.Spec.SnapshotOf == "" || source.Status.Phase == "" {
		return reflection.Refusal(fmt.Sprintf("the provider keeps no snapshot for a ShadowClaim %q", key.Name))
	}
	return nil
}

// snapshotsAsk adds how much room the snapshots in the namespace may need, by their names.
func (r *claimReconciler) snapshotsAsk(ctx context.Context, namespace string, ask map[string]resource.Quantity) error {
	shadows := &v1alpha1.ShadowClaimList{}
	if err := r.client.List(ctx, shadows, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list ShadowClaims: %w", err)
	}
	for i := range shadows.Items {
		if shadow := &shadows.Items[i]; shadow.Spec.SnapshotOf != "" && shadow.Status.Phase != "" {
			ask[shadow.Name] = shadow.Spec.Storage
		}
	}
	return nil
}
