// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// claimReconciler keeps a PersistentVolumeClaim for each ShadowClaim. Kubernetes deletes it with the ShadowClaim, its owner.
type claimReconciler struct {
	client client.Client
	live   client.Reader
	events *eventFeed
	queue  lateQueue
	booked bookings
}

func newClaimReconciler(c client.Client, live client.Reader, events *eventFeed) *claimReconciler {
	r := &claimReconciler{client: c, live: live, events: events}
	events.topics[claimKind] = topic{r.message, r.queue.get}
	return r
}

// claimFacts are what there is of one ShadowClaim.
type claimFacts struct {
	shadow *v1alpha1.ShadowClaim
	peer   *v1alpha1.Peer                // nil if it is gone
	claim  *corev1.PersistentVolumeClaim // of that name, nil if there is none

	snapshot *snapshotv1.VolumeSnapshot // in place of the claim for one with snapshotOf, nil if there is none
}

// kept returns what there is of the ShadowClaim, or nil.
func (f *claimFacts) kept() client.Object {
	switch {
	case f.claim != nil:
		return f.claim
	case f.snapshot != nil:
		return f.snapshot
	default:
		return nil
	}
}

// takesMore refuses what a peer may have no more of.
func (f *claimFacts) takesMore() error {
	if f.peer == nil || f.peer.Access() != v1alpha1.AccessOpen {
		return reflection.Refusal("the provider takes nothing more at present")
	}
	return nil
}

func (r *claimReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("shadow-claim").
		For(&v1alpha1.ShadowClaim{}).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &v1alpha1.ShadowClaim{})).
		WatchesRawSource(local.WatchWhenDefined(mgr.GetCache(), mgr.GetRESTMapper(), reflection.Snapshots,
			handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &v1alpha1.ShadowClaim{}))).
		Watches(&v1alpha1.Peer{}, handler.EnqueueRequestsFromMapFunc(r.unmade), builder.WithPredicates(specChanges)).
		Watches(&storagev1.StorageClass{}, handler.EnqueueRequestsFromMapFunc(r.unmade)).
		WatchesRawSource(&r.queue).
		WithOptions(options()).
		Complete(r)
}

// Reconcile brings one ShadowClaim and its claim in line.
func (r *claimReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	seen, err := r.observe(ctx, request)
	if err != nil || seen == nil {
		return reconcile.Result{}, err
	}
	actErr := r.act(ctx, seen)
	why, refused := refusalOf(actErr)
	if actErr != nil && !refused {
		return reconcile.Result{}, actErr
	}
	again, err := r.record(ctx, seen, why)
	if refused && apierrors.IsForbidden(actErr) {
		r.booked.cancel(request.NamespacedName)
		again = sooner(again, retryAtMost) // a quota or a limit may have room by then
	}
	return reconcile.Result{RequeueAfter: again}, err
}

// observe looks at what there is. It returns nil where there is nothing to keep.
func (r *claimReconciler) observe(ctx context.Context, request reconcile.Request) (*claimFacts, error) {
	shadow, err := local.Find(ctx, r.client, request.NamespacedName, &v1alpha1.ShadowClaim{})
	if err != nil || shadow == nil || !shadow.DeletionTimestamp.IsZero() {
		r.booked.cancel(request.NamespacedName)
		r.events.forget(subject{claimKind, request.NamespacedName})
		return nil, err
	}
	ns, err := local.Find(ctx, r.client, client.ObjectKey{Name: shadow.Namespace}, &corev1.Namespace{})
	if err != nil || ns == nil || !ns.DeletionTimestamp.IsZero() {
		return nil, err
	}
	twin, ok := twinIn(ns)
	if !ok {
		return nil, nil
	}
	seen := &claimFacts{shadow: shadow}
	if seen.peer, err = local.Find(ctx, r.client, client.ObjectKey{Name: twin.peer}, &v1alpha1.Peer{}); err != nil {
		return nil, err
	}
	if shadow.Spec.SnapshotOf != "" {
		seen.snapshot, err = r.findSnapshot(ctx, shadow)
		return seen, err
	}
	if seen.claim, err = local.Find(ctx, r.client, request.NamespacedName, &corev1.PersistentVolumeClaim{}); err != nil || seen.claim != nil {
		return seen, err
	}
	// Before one is made, or called lost.
	seen.claim, err = local.Find(ctx, r.live, request.NamespacedName, &corev1.PersistentVolumeClaim{})
	return seen, err
}

// errLost is why no second claim is made for a ShadowClaim: it would be empty, and look as the first.
const errLost = reflection.Refusal("the claim was deleted at the provider, and its data with it")

// act makes the claim or the snapshot, or makes the claim larger. An error may be a refusal, see refusalOf.
func (r *claimReconciler) act(ctx context.Context, seen *claimFacts) error {
	switch {
	case seen.shadow.Spec.SnapshotOf != "":
		return r.snap(ctx, seen)
	case seen.claim == nil && seen.made():
		return errLost
	case seen.claim == nil:
		return r.make(ctx, seen)
	case !metav1.IsControlledBy(seen.claim, seen.shadow):
		return reflection.Refusal("the provider has a claim of this name already")
	default:
		return r.grow(ctx, seen)
	}
}

// made says whether there was a claim for the ShadowClaim.
func (f *claimFacts) made() bool { return f.shadow.Status.Phase != "" }

func (r *claimReconciler) make(ctx context.Context, seen *claimFacts) error {
	if err := seen.takesMore(); err != nil {
		return err
	}
	if err := r.checkSource(ctx, seen.shadow); err != nil {
		return err
	}
	classes := &storagev1.StorageClassList{}
	if err := r.client.List(ctx, classes); err != nil {
		return fmt.Errorf("list storage classes: %w", err)
	}
	claim, err := reflection.Claim(seen.shadow, reflection.OfferedClasses(classes.Items))
	if err != nil {
		return err
	}
	if err := r.reserve(ctx, seen); err != nil {
		return err
	}
	if err := r.client.Create(ctx, claim); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Made claim of a peer", "storageClass", *claim.Spec.StorageClassName)
	seen.claim = claim
	return nil
}

func (r *claimReconciler) grow(ctx context.Context, seen *claimFacts) error {
	has := seen.claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if seen.shadow.Spec.Storage.Cmp(has) <= 0 {
		return nil
	}
	if err := r.reserve(ctx, seen); err != nil {
		return err
	}
	grown := seen.claim.DeepCopy()
	grown.Spec.Resources.Requests[corev1.ResourceStorage] = seen.shadow.Spec.Storage
	return r.client.Patch(ctx, grown, client.MergeFrom(seen.claim))
}

// refusalOf returns why there is no claim as asked for, if that is for the consumer to know: our own reason, or the API server's.
// Quotas and classes that do not grow are among these.
func refusalOf(err error) (string, bool) {
	if refusal, ok := errors.AsType[reflection.Refusal](err); ok {
		return refusal.Error(), true
	}
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		return sanitize.Text(err.Error(), maxClaimMessage), true
	}
	return "", false
}

// maxClaimMessage is how long the reason may be that a consumer is told.
const maxClaimMessage = 512

// record writes what the consumer is told, and returns when to look again for what has to wait.
func (r *claimReconciler) record(ctx context.Context, seen *claimFacts, refused string) (time.Duration, error) {
	told := seen.shadow.DeepCopy()
	kept := seen.kept()
	ours := kept != nil && metav1.IsControlledBy(kept, seen.shadow)
	told.Status.ObservedGeneration = told.Generation
	var again time.Duration
	switch {
	case ours && seen.snapshot != nil:
		told.Status, _ = reflection.SnapshotTold(seen.shadow, seen.snapshot)
	case ours:
		told.Status = reflection.ClaimStatus(seen.shadow, seen.claim)
		var err error
		if told.Status.Events, again, err = r.hear(ctx, seen, told); err != nil {
			return 0, err
		}
	}
	if kept == nil && seen.made() {
		told.Status.Phase = string(corev1.ClaimLost)
	}
	ready := readyOf(told, ours, refused)
	ready.ObservedGeneration = told.Generation
	meta.SetStatusCondition(&told.Status.Conditions, ready)
	if equality.Semantic.DeepEqual(told.Status, seen.shadow.Status) {
		return again, nil
	}
	if err := local.IgnoreStale(r.client.Status().Patch(ctx, told, client.MergeFrom(seen.shadow))); err != nil {
		return 0, fmt.Errorf("write status: %w", err)
	}
	return again, nil
}

// readyOf says whether the claim is kept, given whether there is one of ours, and why there is not more.
func readyOf(told *v1alpha1.ShadowClaim, ours bool, refused string) metav1.Condition {
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonVolumeMade, Message: refused,
	}
	lost := told.Status.Phase == string(corev1.ClaimLost)
	switch {
	case lost && ours:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1alpha1.ReasonVolumeLost, "the volume of the claim is gone"
	case lost:
		ready.Status, ready.Reason = metav1.ConditionFalse, v1alpha1.ReasonVolumeLost
	case refused != "" && !ours:
		ready.Status, ready.Reason = metav1.ConditionFalse, v1alpha1.ReasonVolumeRefused
	case refused != "": // it serves, and does not grow
		ready.Reason = v1alpha1.ReasonVolumeRefused
	}
	return ready
}

// hear returns what happened to the claim, and when there will be more to put on record.
func (r *claimReconciler) hear(ctx context.Context, seen *claimFacts, told *v1alpha1.ShadowClaim) ([]v1alpha1.RemoteEvent, time.Duration, error) {
	recorded := seen.shadow.Status.Events
	if seen.peer == nil {
		return recorded, 0, nil
	}
	if told.Waits() {
		r.events.follow(told.Namespace)
	}
	return r.events.due(ctx, subject{claimKind, client.ObjectKeyFromObject(told)}, seen.peer.Name, recorded)
}

// message is the ShadowClaim of a claim. It has its name.
func (r *claimReconciler) message(ctx context.Context, object types.NamespacedName, uid types.UID) (types.NamespacedName, bool) {
	claim, err := local.Find(ctx, r.client, object, &corev1.PersistentVolumeClaim{}, client.UnsafeDisableDeepCopy)
	if err != nil || claim == nil || claim.UID != uid {
		return object, false
	}
	owner := metav1.GetControllerOf(claim)
	return object, owner != nil && owner.Kind == "ShadowClaim"
}

// unmade are the ShadowClaims without a claim, which may get one when something else has changed.
func (r *claimReconciler) unmade(ctx context.Context, _ client.Object) []reconcile.Request {
	shadows := &v1alpha1.ShadowClaimList{}
	if err := r.client.List(ctx, shadows, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "List ShadowClaims")
	}
	var requests []reconcile.Request
	for i := range shadows.Items {
		if shadows.Items[i].Status.Phase == "" {
			requests = append(requests, requestFor(shadows.Items[i].Namespace, shadows.Items[i].Name)...)
		}
	}
	return requests
}
