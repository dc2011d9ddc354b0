package peering

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// How often it is tried to deliver a statement: as long after the last time as that was after the parting, within these
// bounds.
const (
	firstDelivery = time.Minute
	lastDelivery  = time.Hour
)

// An undertaker looks after the tombstones: it delivers those statements that are not for the peer to find, and ends
// tombstones that have served.
type undertaker struct {
	config  Config
	tenants tenants
	links   Links
}

func tombstones() builder.Predicates {
	return builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
		return isOfType(o, v1alpha1.TypeTombstone)
	}))
}

// Reconcile looks after one tombstone.
func (u *undertaker) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ns := &corev1.Namespace{}
	if err := u.tenants.client.Get(ctx, req.NamespacedName, ns); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: ns.Labels[v1alpha1.LabelPeer]}}
	if !isTombstone(ns, peer.Name) || ns.Name != v1alpha1.TenantNamespace(peer.Name) || !ns.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	if taken, err := u.tenants.exists(ctx, peer.DeepCopy()); taken || err != nil {
		return reconcile.Result{RequeueAfter: firstDelivery}, err // a Peer that is about to go, or to make room for itself
	}
	left := u.remaining(ns)
	if left <= 0 {
		return reconcile.Result{}, u.end(ctx, ns, peer)
	}
	pending, kept, err := u.serve(ctx, ns, peer)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !kept {
		return reconcile.Result{}, u.end(ctx, ns, peer)
	}
	if pending {
		left = min(left, nextDelivery(u.config.TombstoneLife-left))
	}
	return reconcile.Result{RequeueAfter: left}, nil
}

// remaining is how long the tombstone is still kept: not at all if nobody can tell.
func (u *undertaker) remaining(ns *corev1.Namespace) time.Duration {
	expires, err := time.Parse(time.RFC3339, ns.Annotations[v1alpha1.AnnotationExpires])
	if err != nil {
		return 0
	}
	return expires.Sub(u.config.Clock.Now())
}

// nextDelivery is how long to wait with the next attempt after that time has passed since the parting.
func nextDelivery(passed time.Duration) time.Duration {
	return min(max(passed, firstDelivery), lastDelivery)
}

func (u *undertaker) end(ctx context.Context, ns *corev1.Namespace, peer *v1alpha1.Peer) error {
	u.links.Close(peer.Name)
	return u.tenants.deleteNamespace(ctx, ns)
}

// serve tries to deliver the statement that is to be delivered. It returns whether there still is one, and whether there
// is still anything to keep the tombstone for.
func (u *undertaker) serve(ctx context.Context, ns *corev1.Namespace, peer *v1alpha1.Peer) (pending, kept bool, err error) {
	stone := tombstone(ns.Name)
	found, err := u.tenants.exists(ctx, stone)
	if err != nil || !found {
		return false, false, err
	}
	kept = stone.Data[v1alpha1.TombstoneStatement] != ""
	text := stone.Data[consumerStatement]
	if text == "" {
		return false, kept, nil
	}
	credentials, err := u.tenants.exists(ctx, secret(ns.Name, v1alpha1.LinkSecret))
	if err != nil {
		return true, true, err
	}
	if credentials && !u.deliver(ctx, peer, text) {
		return true, true, nil
	}
	if !kept {
		return false, false, nil
	}
	u.links.Close(peer.Name)
	if err := u.tenants.remove(ctx, secret(ns.Name, v1alpha1.LinkSecret)); err != nil {
		return true, true, err
	}
	rest := tombstone(ns.Name)
	return false, true, u.tenants.put(ctx, rest, func() { delete(rest.Data, consumerStatement) })
}

// deliver tells the peer, over the link that is left, that we have parted from it. It reports whether that is done.
func (u *undertaker) deliver(ctx context.Context, peer *v1alpha1.Peer, text string) bool {
	log := ctrl.LoggerFrom(ctx).WithValues("peer", peer.Name)
	err := u.send(ctx, peer, text)
	if err == nil || apierrors.IsNotFound(err) {
		log.Info("The peer knows now that we have parted from it")
		return true
	}
	log.V(1).Info("The peer cannot be told yet that we have parted from it", "cause", err.Error())
	return false
}

func (u *undertaker) send(ctx context.Context, peer *v1alpha1.Peer, text string) error {
	link, err := u.links.Ensure(ctx, peer)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"phase": v1alpha1.ClaimLeaving, "tombstone": text}})
	if err != nil {
		return fmt.Errorf("encode the statement: %w", err)
	}
	return link.Client().Patch(ctx, claim(link.TenantNamespace()), client.RawPatch(types.MergePatchType, patch))
}
