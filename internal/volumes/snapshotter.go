// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// snapshotter has peers take snapshots of volumes that they keep for us. A request names the VolumeSnapshotContent, which the
// snapshot-controller of this cluster makes and deletes.
type snapshotter struct{ Config }

func (s *snapshotter) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("volumes-snapshotter").
		For(&snapshotv1.VolumeSnapshotContent{}).
		WatchesRawSource(peers.Changes(s.Links, shadows, s.shadowChanged)).
		WithOptions(options()).
		Complete(s)
}

// Reconcile looks at one content.
func (s *snapshotter) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	content, err := local.Find(ctx, s.Client, request.NamespacedName, &snapshotv1.VolumeSnapshotContent{})
	if err != nil || content == nil {
		return reconcile.Result{}, err
	}
	at, away := reflection.SnapshotHandleOf(content)
	if !away {
		return reconcile.Result{}, nil
	}
	there, err := s.placeOf(ctx, at)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case !content.DeletionTimestamp.IsZero() && there.canClear():
		return reconcile.Result{}, s.end(ctx, content, &there)
	case !content.DeletionTimestamp.IsZero(), !there.isReachable():
		return reconcile.Result{RequeueAfter: lastRetry}, nil
	}
	return s.keep(ctx, content, &there)
}

// keep asks the peer for the snapshot, and tells what became of it.
func (s *snapshotter) keep(ctx context.Context, content *snapshotv1.VolumeSnapshotContent, there *place) (reconcile.Result, error) {
	shadow, twin := there.kept()
	if twin == "" {
		return reconcile.Result{RequeueAfter: outageDelay}, nil
	}
	status := &snapshotv1.VolumeSnapshotContentStatus{ReadyToUse: new(false)}
	switch {
	case shadow != nil:
		status = reflection.SnapshotStatus(content, shadow, s.Clock.Now())
	case content.Status != nil && content.Status.SnapshotHandle != nil, content.Spec.Source.SnapshotHandle != nil:
		status.SnapshotHandle = new(there.at.String())
		status.Error = reflection.SnapshotError(content, fmt.Sprintf("peer %q has nothing of it any more", there.at.Peer), s.Clock.Now())
	default:
		err := s.ask(ctx, content, there, twin)
		refusal, refused := errors.AsType[reflection.Refusal](err)
		if err == nil || !refused {
			return reconcile.Result{}, err // what comes of it asks for another look
		}
		status.Error = reflection.SnapshotError(content, refusal.Error(), s.Clock.Now())
	}
	result := reconcile.Result{}
	if !*status.ReadyToUse {
		result.RequeueAfter = lastRetry
	}
	return result, s.write(ctx, content, status)
}

// ask asks the peer to take the snapshot. The error may be a Refusal.
func (s *snapshotter) ask(ctx context.Context, content *snapshotv1.VolumeSnapshotContent, there *place, twin string) error {
	source, err := s.sourceOf(ctx, content)
	if err != nil {
		return err
	}
	want, err := reflection.ShadowSnapshot(content, source, twin)
	if err != nil {
		return err
	}
	return ask(ctx, there.link, want)
}

// sourceOf returns the volume of which the snapshot is to be taken. Its name is that of the claim at the peer.
func (s *snapshotter) sourceOf(ctx context.Context, content *snapshotv1.VolumeSnapshotContent) (*corev1.PersistentVolume, error) {
	of, _ := reflection.ParseHandle(ptr.Deref(content.Spec.Source.VolumeHandle, ""))
	volume, err := local.Find(ctx, s.Client, client.ObjectKey{Name: of.Claim}, &corev1.PersistentVolume{})
	if volume == nil {
		volume = &corev1.PersistentVolume{}
	}
	return volume, err
}

// write tells in the status of the content.
func (s *snapshotter) write(ctx context.Context, content *snapshotv1.VolumeSnapshotContent, status *snapshotv1.VolumeSnapshotContentStatus) error {
	if equality.Semantic.DeepEqual(content.Status, status) {
		return nil
	}
	told := content.DeepCopy()
	told.Status = status
	if err := local.IgnoreStale(s.Client.Status().Patch(ctx, told, client.MergeFrom(content))); err != nil {
		return fmt.Errorf("write the status of VolumeSnapshotContent %s: %w", content.Name, err)
	}
	return nil
}

// end deletes the snapshot at the peer, if it is to go with its content, and lets the content go.
func (s *snapshotter) end(ctx context.Context, content *snapshotv1.VolumeSnapshotContent, there *place) error {
	if !controllerutil.ContainsFinalizer(content, reflection.FinalizerContent) {
		return nil
	}
	if content.Spec.DeletionPolicy == snapshotv1.VolumeSnapshotContentDelete {
		if err := there.clear(ctx); err != nil {
			return err
		}
	}
	done := content.DeepCopy()
	controllerutil.RemoveFinalizer(done, reflection.FinalizerContent)
	patch := client.MergeFromWithOptions(content, client.MergeFromWithOptimisticLock{})
	if err := local.IgnoreStale(s.Client.Patch(ctx, done, patch)); err != nil {
		return fmt.Errorf("let VolumeSnapshotContent %s go: %w", content.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Deleted snapshot at a peer", "Peer", there.at.Peer)
	return nil
}

// shadowChanged has the content looked at that stands for what has changed at the peer, or all where a twin is new.
func (s *snapshotter) shadowChanged(ctx context.Context, change peers.Change, queue peers.Queue[reconcile.Request]) {
	if name, ok := reflection.ContentOf(change.Name); ok {
		queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	}
	if change.Name != "" {
		return
	}
	contents := &snapshotv1.VolumeSnapshotContentList{}
	if err := s.Client.List(ctx, contents, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list snapshots")
	}
	for i := range contents.Items {
		queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: contents.Items[i].Name}})
	}
}

// snapshotFor returns where the snapshot lies of which the volume of the claim is to begin as a copy, nil if it is to be empty, or a
// Refusal.
func (p *provisioner) snapshotFor(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*reflection.Handle, error) {
	name, err := reflection.BeginsWith(claim)
	if err != nil || name == "" {
		return nil, err
	}
	snapshot, err := local.Find(ctx, p.Live, client.ObjectKey{Namespace: claim.Namespace, Name: name}, &snapshotv1.VolumeSnapshot{})
	if meta.IsNoMatchError(err) {
		return nil, reflection.Refusal("this cluster has no VolumeSnapshots")
	}
	if err != nil {
		return nil, err
	}
	if snapshot == nil {
		return nil, reflection.Refusal(fmt.Sprintf("there is no VolumeSnapshot %q", name))
	}
	var content *snapshotv1.VolumeSnapshotContent
	if snapshot.Status != nil && snapshot.Status.BoundVolumeSnapshotContentName != nil {
		key := client.ObjectKey{Name: *snapshot.Status.BoundVolumeSnapshotContentName}
		if content, err = local.Find(ctx, p.Live, key, &snapshotv1.VolumeSnapshotContent{}); err != nil {
			return nil, err
		}
	}
	at, err := reflection.CopiedFrom(snapshot, content)
	return &at, err
}

// claimsFrom are the claims without a volume that are to begin as copies of the snapshot.
func (p *provisioner) claimsFrom(ctx context.Context, snapshot client.Object) []reconcile.Request {
	return p.unboundIn(ctx, snapshot.GetNamespace(), func(claim *corev1.PersistentVolumeClaim) bool {
		from, err := reflection.BeginsWith(claim)
		return err == nil && from == snapshot.GetName()
	})
}
