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
	node  *corev1.Node // nil if it is gone
}

// Reconcile looks at one claim.
func (p *provisioner) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	wanted, err := p.observe(ctx, request)
	if err != nil || wanted == nil {
		return reconcile.Result{}, err
	}
	var result reconcile.Result
	switch {
	case wanted.node == nil:
		err = reflection.Refusal("node " + wanted.claim.Annotations[reflection.AnnotationSelectedNode] + " is gone")
	case wanted.node.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode:
		result, err = p.provide(ctx, wanted, wanted.node.Labels[v1alpha1.LabelPeer])
	default:
		err = p.provideHere(ctx, wanted)
	}
	if refusal, refused := errors.AsType[reflection.Refusal](err); refused {
		return reconcile.Result{}, p.reschedule(ctx, wanted.claim, refusal)
	}
	return result, err
}

// observe returns what is to be made, or nil if that is nothing, or nothing of ours.
func (p *provisioner) observe(ctx context.Context, request reconcile.Request) (*order, error) {
	claim, err := local.Find(ctx, p.Client, request.NamespacedName, &corev1.PersistentVolumeClaim{})
	if err != nil {
		return nil, err
	}
	if claim == nil || !claim.DeletionTimestamp.IsZero() || !unbound(claim) {
		return nil, p.sweep(ctx, request.NamespacedName, claim)
	}
	selected := claim.Annotations[reflection.AnnotationSelectedNode]
	class, err := p.classOf(ctx, claim)
	if err != nil || class == nil || selected == "" {
		return nil, err
	}
	node, err := local.Find(ctx, p.Client, client.ObjectKey{Name: selected}, &corev1.Node{})
	return &order{claim, class, node}, err
}

// provide has the peer keep the volume, and makes the one that stands for it. The peer's own claim gets its volume when the pod is
// there, so that is not waited for.
func (p *provisioner) provide(ctx context.Context, wanted *order, peer string) (reconcile.Result, error) {
	link, err := p.linkTo(ctx, peer)
	if err != nil || link == nil {
		return reconcile.Result{RequeueAfter: outageDelay}, err
	}
	over := link.FollowTwin(shadows, wanted.claim.Namespace)
	if !isSeen(over) {
		return reconcile.Result{RequeueAfter: outageDelay}, nil
	}
	want, err := reflection.ShadowClaim(wanted.claim, wanted.class, over.Namespace())
	if err != nil {
		return reconcile.Result{}, err
	}
	found, _ := over.Named(want.Name)
	shadow, ok := found.(*v1alpha1.ShadowClaim)
	if !ok {
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

// ask asks the peer to keep storage.
func ask(ctx context.Context, link *peers.Link, want *v1alpha1.ShadowClaim) error {
	err := link.Client().Create(ctx, want)
	switch {
	case err == nil:
		ctrl.LoggerFrom(ctx).Info("Asked a peer for a volume", "Peer", link.Peer(), "volume", want.Name)
		return nil
	case apierrors.IsAlreadyExists(err): // the mirror is behind
		return nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
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

// reschedule has the scheduler select another node, as provisioners do by taking the choice off the claim.
func (p *provisioner) reschedule(ctx context.Context, claim *corev1.PersistentVolumeClaim, why reflection.Refusal) error {
	changed := claim.DeepCopy()
	delete(changed.Annotations, reflection.AnnotationSelectedNode)
	patch := client.MergeFromWithOptions(claim, client.MergeFromWithOptimisticLock{})
	if err := p.Client.Patch(ctx, changed, patch); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return nil // its event brings us back
		}
		return fmt.Errorf("have another node selected for the claim: %w", err)
	}
	p.warn(claim, v1alpha1.ReasonVolumeRefused, "No volume on node %s: %s", claim.Annotations[reflection.AnnotationSelectedNode], why)
	return nil
}

// shadowChanged has the claims of the namespace looked at that have no volume: the one that changed is among them.
func (p *provisioner) shadowChanged(ctx context.Context, change peers.Change, queue peers.Queue[reconcile.Request]) {
	claims := &corev1.PersistentVolumeClaimList{}
	if err := p.Client.List(ctx, claims, client.InNamespace(change.Home()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list claims", "Namespace", change.Home())
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if unbound(claim) && (change.Name == "" || change.Name == reflection.VolumeName(claim.UID)) {
			queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)})
		}
	}
}
