// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// keeper keeps volumes at peers as our claims want them. A request names the volume here.
type keeper struct{ Config }

// kept is a volume, and where it lies.
type kept struct {
	place
	volume *corev1.PersistentVolume
}

// Reconcile looks at one volume.
func (k *keeper) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	seen, err := k.observe(ctx, request)
	if err != nil || seen == nil {
		return reconcile.Result{}, err
	}
	switch {
	case seen.isOver() && seen.canClear():
		return reconcile.Result{}, k.end(ctx, seen)
	case !seen.isReachable():
		return reconcile.Result{RequeueAfter: lastRetry}, nil // a new link brings us back before
	case seen.volume.Status.Phase == corev1.VolumeBound:
		return k.grow(ctx, seen)
	default:
		return reconcile.Result{}, nil
	}
}

// observe returns nil if there is no such volume, or it is not ours.
func (k *keeper) observe(ctx context.Context, request reconcile.Request) (*kept, error) {
	volume, err := local.Find(ctx, k.Client, request.NamespacedName, &corev1.PersistentVolume{})
	if err != nil || volume == nil || !volume.DeletionTimestamp.IsZero() {
		return nil, err
	}
	at, away := reflection.HandleOf(volume)
	if !away {
		return nil, nil
	}
	there, err := k.placeOf(ctx, at)
	return &kept{there, volume}, err
}

// isOver says whether the claim is gone, and the volume is to go with it.
func (s *kept) isOver() bool {
	return s.volume.Status.Phase == corev1.VolumeReleased && s.volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
}

// end deletes the volume at the peer, and then here.
func (k *keeper) end(ctx context.Context, seen *kept) error {
	if err := seen.clear(ctx); err != nil {
		return err
	}
	uid := seen.volume.UID
	if err := client.IgnoreNotFound(k.Client.Delete(ctx, seen.volume, client.Preconditions{UID: &uid})); err != nil {
		return fmt.Errorf("delete PersistentVolume %s: %w", seen.volume.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Deleted volume at a peer", "Peer", seen.at.Peer)
	return nil
}

// grow brings a larger request to the peer, and back how much room there is.
func (k *keeper) grow(ctx context.Context, seen *kept) (reconcile.Result, error) {
	ref := seen.volume.Spec.ClaimRef
	claim, err := local.Find(ctx, k.Client, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &corev1.PersistentVolumeClaim{})
	if err != nil || claim == nil || claim.UID != ref.UID {
		return reconcile.Result{}, err
	}
	shadow, twin := seen.kept()
	if twin == "" {
		return reconcile.Result{RequeueAfter: lastRetry}, nil // it tells when it has synced
	}
	if shadow == nil {
		k.warn(claim, v1alpha1.ReasonVolumeLost, "Peer %q has nothing of this claim any more", seen.at.Peer)
		return reconcile.Result{}, nil
	}
	k.tell(claim, shadow, seen.at.Peer)
	return reconcile.Result{}, k.write(ctx, seen, claim, shadow)
}

// write does what there is to do so that the claim has the room that it asks for.
func (k *keeper) write(ctx context.Context, seen *kept, claim *corev1.PersistentVolumeClaim, shadow *v1alpha1.ShadowClaim) error {
	due, asked := reflection.Grow(claim, seen.volume, shadow), reflection.Asked(claim)
	if due.Peer {
		more := shadow.DeepCopy()
		more.Spec.Storage = asked[corev1.ResourceStorage]
		err := seen.link.Client().Patch(ctx, more, client.MergeFrom(shadow))
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			k.warn(claim, v1alpha1.ReasonVolumeRefused, "Peer %q gives it no more room: %s", seen.at.Peer, err)
			return nil
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("ask for more room in ShadowClaim %s: %w", shadow.Name, err)
		}
	}
	if due.Volume {
		grown := seen.volume.DeepCopy()
		grown.Spec.Capacity = asked
		if err := k.Client.Patch(ctx, grown, client.MergeFrom(seen.volume)); err != nil {
			return fmt.Errorf("tell the room of PersistentVolume %s: %w", grown.Name, err)
		}
		return nil // its event brings us back for the claim
	}
	if due.Claim {
		grown := claim.DeepCopy()
		grown.Status.Capacity = asked
		if err := k.Client.Status().Patch(ctx, grown, client.MergeFrom(claim)); err != nil {
			return fmt.Errorf("tell the room of claim %s: %w", client.ObjectKeyFromObject(claim), err)
		}
	}
	return nil
}

// shadowChanged has the volume looked at that stands for what has changed at the peer, or all of a twin that is new.
func (k *keeper) shadowChanged(ctx context.Context, change peers.Change, queue peers.Queue[reconcile.Request]) {
	k.enqueue(ctx, queue, func(at reflection.Handle) bool {
		return at.Peer == change.Link.Peer() && at.Namespace == change.Home() && (change.Name == "" || at.Claim == change.Name)
	})
}

// mappingChanged has the volumes looked at that lie in the twin of a namespace, or, when the mappings of a new link are known, all
// at the peer.
func (k *keeper) mappingChanged(ctx context.Context, change peers.Change, queue peers.Queue[reconcile.Request]) {
	k.enqueue(ctx, queue, func(at reflection.Handle) bool {
		return at.Peer == change.Link.Peer() && (change.Name == "" || at.Namespace == change.Name)
	})
}

func (k *keeper) enqueue(ctx context.Context, queue peers.Queue[reconcile.Request], concerned func(reflection.Handle) bool) {
	volumes := &corev1.PersistentVolumeList{}
	if err := k.Client.List(ctx, volumes, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list volumes")
	}
	for i := range volumes.Items {
		if at, away := reflection.HandleOf(&volumes.Items[i]); away && concerned(at) {
			queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: volumes.Items[i].Name}})
		}
	}
}
