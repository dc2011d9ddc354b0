// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// provisioner makes volumes for claims of our classes, on the node that the scheduler has selected. A request names the claim.
type provisioner struct{ Config }

// order is a claim that is to get a volume.
type order struct {
	claim *corev1.PersistentVolumeClaim
	class *storagev1.StorageClass
	node  *corev1.Node       // nil if it is gone, or none was selected
	from  *reflection.Handle // the snapshot that the volume begins as a copy of, or nil
}

// Reconcile looks at one claim.
func (p *provisioner) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	wanted, err := p.observe(ctx, request)
	if wanted == nil {
		return reconcile.Result{}, err
	}
	var result reconcile.Result
	if err == nil {
		result, err = p.make(ctx, wanted)
	}
	if refusal, refused := errors.AsType[reflection.Refusal](err); refused {
		return p.refuse(ctx, wanted, refusal)
	}
	return result, err
}

// make makes the volume where it belongs: where its snapshot is, or else where the first pod goes.
func (p *provisioner) make(ctx context.Context, wanted *order) (reconcile.Result, error) {
	switch {
	case wanted.from != nil:
		return p.provide(ctx, wanted, wanted.from.Peer)
	case wanted.node == nil:
		return reconcile.Result{}, reflection.Refusal("node " + wanted.claim.Annotations[reflection.AnnotationSelectedNode] + " is gone")
	case wanted.node.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode:
		return p.provide(ctx, wanted, wanted.node.Labels[v1alpha1.LabelPeer])
	default:
		return reconcile.Result{}, p.provideHere(ctx, wanted)
	}
}

// observe returns what is to be made, or nil if that is nothing, or nothing of ours. The error may be a Refusal.
func (p *provisioner) observe(ctx context.Context, request reconcile.Request) (*order, error) {
	claim, err := local.Find(ctx, p.Client, request.NamespacedName, &corev1.PersistentVolumeClaim{})
	if err != nil {
		return nil, err
	}
	if claim == nil || !claim.DeletionTimestamp.IsZero() || !unbound(claim) {
		return nil, p.sweep(ctx, request.NamespacedName, claim)
	}
	class, err := p.classOf(ctx, claim)
	if err != nil || class == nil {
		return nil, err
	}
	wanted := &order{claim: claim, class: class}
	if wanted.from, err = p.snapshotFor(ctx, claim); err != nil || wanted.from != nil {
		return wanted, err
	}
	selected := claim.Annotations[reflection.AnnotationSelectedNode]
	if selected == "" {
		return nil, nil
	}
	wanted.node, err = local.Find(ctx, p.Client, client.ObjectKey{Name: selected}, &corev1.Node{})
	return wanted, err
}

// provide has the peer keep the volume, and makes the one that stands for it. The peer's own claim gets its volume when the pod is
// there, so that is not waited for.
func (p *provisioner) provide(ctx context.Context, wanted *order, peer string) (reconcile.Result, error) {
	link, err := p.linkTo(ctx, peer)
	if err != nil || link == nil {
		return reconcile.Result{RequeueAfter: outageDelay}, err
	}
	there := &place{at: reflection.Handle{Peer: peer, Namespace: wanted.claim.Namespace, Claim: reflection.VolumeName(wanted.claim.UID)}, link: link}
	shadow, twin := there.kept()
	if twin == "" {
		return reconcile.Result{RequeueAfter: outageDelay}, nil
	}
	want, err := reflection.ShadowClaim(wanted.claim, wanted.class, twin)
	if err != nil {
		return reconcile.Result{}, err
	}
	if wanted.from != nil {
		want.Spec.DataSource = wanted.from.Claim
	}
	if shadow == nil {
		return reconcile.Result{}, ask(ctx, link, want) // what comes of it asks for another look
	}
	p.tell(wanted.claim, shadow, peer)
	ready := meta.FindStatusCondition(shadow.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		return reconcile.Result{}, nil
	case ready.Status == metav1.ConditionTrue:
		return reconcile.Result{}, p.create(ctx, reflection.Volume(wanted.claim, wanted.class, peer))
	}
	if err := take(ctx, link, shadow); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, reflection.Refusal(fmt.Sprintf("peer %q makes none: %s", peer, ready.Message))
}

// ask asks the peer to keep storage. A peer whose Hanse does not know all fields must not make something else.
func ask(ctx context.Context, link *peers.Link, want *v1alpha1.ShadowClaim) error {
	err := link.Client().Create(ctx, want, client.FieldValidation(metav1.FieldValidationStrict))
	switch {
	case err == nil:
		ctrl.LoggerFrom(ctx).Info("Asked a peer for a volume", "Peer", link.Peer(), "volume", want.Name)
		return nil
	case apierrors.IsAlreadyExists(err): // the mirror is behind
		return nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return reflection.Refusal(fmt.Sprintf("peer %q takes no claim: %s", link.Peer(), err))
	default:
		return fmt.Errorf("create ShadowClaim %s: %w", want.Name, err)
	}
}

// take takes back what the peer was asked to keep.
func take(ctx context.Context, link *peers.Link, shadow *v1alpha1.ShadowClaim) error {
	err := link.Client().Delete(ctx, shadow, client.Preconditions{UID: &shadow.UID})
	if local.IgnoreStale(err) != nil {
		return fmt.Errorf("delete ShadowClaim %s: %w", shadow.Name, err)
	}
	return nil
}

// create makes the volume. Kubernetes binds the claim to it.
func (p *provisioner) create(ctx context.Context, volume *corev1.PersistentVolume) error {
	err := p.Client.Create(ctx, volume)
	if client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("create PersistentVolume %s: %w", volume.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Made volume", "volume", volume.Name)
	return nil
}

// refuse has the scheduler select another node, as provisioners do by taking the choice off the claim. Where there is no choice, it
// looks again later.
func (p *provisioner) refuse(ctx context.Context, wanted *order, why reflection.Refusal) (reconcile.Result, error) {
	selected, chosen := wanted.claim.Annotations[reflection.AnnotationSelectedNode]
	if !chosen {
		p.warn(wanted.claim, v1alpha1.ReasonVolumeRefused, "No volume: %s", why)
		return reconcile.Result{RequeueAfter: lastRetry}, nil
	}
	changed := wanted.claim.DeepCopy()
	delete(changed.Annotations, reflection.AnnotationSelectedNode)
	patch := client.MergeFromWithOptions(wanted.claim, client.MergeFromWithOptimisticLock{})
	if err := p.Client.Patch(ctx, changed, patch); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil // its event brings us back
		}
		return reconcile.Result{}, fmt.Errorf("have another node selected for the claim: %w", err)
	}
	p.warn(wanted.claim, v1alpha1.ReasonVolumeRefused, "No volume on node %s: %s", selected, why)
	return reconcile.Result{}, nil
}

// shadowChanged has the claims of the namespace looked at that have no volume: the one that changed is among them.
func (p *provisioner) shadowChanged(ctx context.Context, change peers.Change, queue peers.Queue[reconcile.Request]) {
	for _, request := range p.unboundIn(ctx, change.Home(), func(claim *corev1.PersistentVolumeClaim) bool {
		return change.Name == "" || change.Name == reflection.VolumeName(claim.UID)
	}) {
		queue.Add(request)
	}
}

// unboundIn are those chosen of the claims of the namespace that have no volume.
func (p *provisioner) unboundIn(ctx context.Context, namespace string, chosen func(*corev1.PersistentVolumeClaim) bool) []reconcile.Request {
	claims := &corev1.PersistentVolumeClaimList{}
	if err := p.Client.List(ctx, claims, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list claims", "Namespace", namespace)
	}
	var requests []reconcile.Request
	for i := range claims.Items {
		if claim := &claims.Items[i]; unbound(claim) && chosen(claim) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)})
		}
	}
	return requests
}
