// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// A volume on a node of this cluster is one of another class. Its provisioner makes it for a stand-in: a claim in Hanse's own
// namespace, of that class and for the same node. When that is bound, its volume is given to the claim that it stands in for, and the
// stand-in is deleted. From then on Hanse has nothing to do with the volume.

// provideHere makes the volume on a node of this cluster.
func (p *provisioner) provideHere(ctx context.Context, wanted *order) error {
	given, err := p.volumeFor(ctx, wanted.claim)
	if err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: p.Namespace, Name: reflection.VolumeName(wanted.claim.UID)}
	standIn, err := local.Find(ctx, p.Client, key, &corev1.PersistentVolumeClaim{})
	switch {
	case err != nil:
		return err
	case standIn == nil && given == nil:
		return p.order(ctx, wanted)
	case standIn == nil: // Kubernetes is about to bind the claim
		return nil
	case given != nil:
		return p.dismiss(ctx, standIn)
	case standIn.Annotations[reflection.AnnotationSelectedNode] == "":
		if err := p.dismiss(ctx, standIn); err != nil {
			return err
		}
		return reflection.Refusal("the provisioner of class " + ptr.Deref(standIn.Spec.StorageClassName, "") + " makes none there")
	case standIn.Status.Phase != corev1.ClaimBound:
		return nil // its event brings us back
	}
	return p.give(ctx, wanted, standIn)
}

// volumeFor returns the volume that is for the claim already, or nil.
func (p *provisioner) volumeFor(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	volumes := &corev1.PersistentVolumeList{}
	if err := p.Client.List(ctx, volumes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	for i := range volumes.Items {
		if ref := volumes.Items[i].Spec.ClaimRef; ref != nil && ref.UID == claim.UID {
			return &volumes.Items[i], nil
		}
	}
	return nil, nil
}

// order makes the stand-in.
func (p *provisioner) order(ctx context.Context, wanted *order) error {
	classes := &storagev1.StorageClassList{}
	if err := p.Client.List(ctx, classes); err != nil {
		return fmt.Errorf("list storage classes: %w", err)
	}
	standIn, err := reflection.StandIn(wanted.claim, wanted.class, classes.Items, p.Namespace)
	if err != nil {
		return err
	}
	err = p.Client.Create(ctx, standIn)
	switch {
	case apierrors.IsAlreadyExists(err): // the cache is behind
		return nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		return reflection.Refusal(err.Error())
	case err != nil:
		return fmt.Errorf("create claim %s: %w", client.ObjectKeyFromObject(standIn), err)
	}
	ctrl.LoggerFrom(ctx).Info("Ordered a volume on a node of this cluster", "storageClass", *standIn.Spec.StorageClassName)
	return nil
}

// give has the volume of the stand-in be that of the claim.
func (p *provisioner) give(ctx context.Context, wanted *order, standIn *corev1.PersistentVolumeClaim) error {
	volume, err := local.Find(ctx, p.Client, client.ObjectKey{Name: standIn.Spec.VolumeName}, &corev1.PersistentVolume{})
	if err != nil || volume == nil || volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != standIn.UID {
		return err // the cache is behind
	}
	given := reflection.Given(volume, wanted.claim, wanted.class)
	patch := client.MergeFromWithOptions(volume, client.MergeFromWithOptimisticLock{})
	if err := p.Client.Patch(ctx, given, patch); err != nil {
		return fmt.Errorf("give PersistentVolume %s to the claim: %w", volume.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Gave the claim a volume on a node of this cluster", "volume", volume.Name)
	return p.dismiss(ctx, standIn)
}

// dismiss deletes the stand-in.
func (p *provisioner) dismiss(ctx context.Context, standIn *corev1.PersistentVolumeClaim) error {
	uid := standIn.UID
	if err := client.IgnoreNotFound(p.Client.Delete(ctx, standIn, client.Preconditions{UID: &uid})); err != nil {
		return fmt.Errorf("delete claim %s: %w", client.ObjectKeyFromObject(standIn), err)
	}
	return nil
}

// sweep deletes stand-ins for a claim of that name that wait for nobody: the claim is gone, another one, or has a volume.
func (p *provisioner) sweep(ctx context.Context, key types.NamespacedName, claim *corev1.PersistentVolumeClaim) error {
	standIns := &corev1.PersistentVolumeClaimList{}
	if err := p.Client.List(ctx, standIns, client.InNamespace(p.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list claims: %w", err)
	}
	for i := range standIns.Items {
		standIn := &standIns.Items[i]
		waits := claim != nil && unbound(claim) && standIn.Name == reflection.VolumeName(claim.UID)
		if reflection.StandsInFor(standIn) != key || waits || !standIn.DeletionTimestamp.IsZero() {
			continue
		}
		if err := p.dismiss(ctx, standIn.DeepCopy()); err != nil {
			return err
		}
	}
	return nil
}

// principal is a request for the claim that the object stands in for.
func (p *provisioner) principal(_ context.Context, object client.Object) []reconcile.Request {
	key := reflection.StandsInFor(object)
	if object.GetNamespace() != p.Namespace || key.Name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}
