// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
)

// readers lets members read what is said to all, by a RoleBinding for each.
type readers struct {
	Config
	direct client.Client // reads from the API server: RoleBindings are in no cache
}

func setUpReaders(mgr ctrl.Manager, c Config) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("members").
		For(&v1alpha1.Peer{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(options()).
		Complete(&readers{c, local.Uncached(c.Client, c.Live)})
}

// Reconcile keeps the RoleBinding of one peer.
func (r *readers) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	peer, err := local.Find(ctx, r.Client, request.NamespacedName, &v1alpha1.Peer{})
	if err != nil {
		return reconcile.Result{}, err
	}
	wanted := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.MembersNamespace, Name: v1alpha1.TenantNamespace(request.Name)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: v1alpha1.ClusterRolePeerMembers},
		Subjects: []rbacv1.Subject{{
			Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.TenantNamespace(request.Name), Name: v1alpha1.PeerServiceAccount,
		}},
	}
	if !isMember(peer) {
		return reconcile.Result{}, errors.Join(r.exclude(ctx, wanted), admitted.unsay(ctx, r.Client, peer))
	}
	err = r.direct.Create(ctx, wanted)
	disabled := apierrors.IsNotFound(err) || apierrors.IsForbidden(err)
	if err != nil && !disabled && !apierrors.IsAlreadyExists(err) {
		return reconcile.Result{}, fmt.Errorf("let %s read what members say: %w", peer.Name, err)
	}
	if disabled {
		return reconcile.Result{RequeueAfter: lookAgain}, admitted.say(ctx, r.Client, peer, metav1.Condition{
			Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonBrokerDisabled,
			Message: "This cluster is no broker: set the value broker.enabled of the chart (`kubectl hanse install --set broker.enabled=true`)",
		})
	}
	return reconcile.Result{}, admitted.say(ctx, r.Client, peer, metav1.Condition{
		Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAdmitted, Message: "The peer reads what members say, and is heard by them",
	})
}

// exclude takes the RoleBinding back. That of a cluster which is no broker is not there either, nor may it be looked for.
func (r *readers) exclude(ctx context.Context, binding *rbacv1.RoleBinding) error {
	if err := r.Client.Delete(ctx, binding); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return fmt.Errorf("delete RoleBinding %s: %w", binding.Name, err)
	}
	return nil
}

// An aspect is a condition of Peers that one controller of this package writes. A peer may be our broker and our member at once.
type aspect struct {
	condition string
	owner     client.FieldOwner
}

var (
	introduced = aspect{v1alpha1.ConditionIntroduced, fieldOwner}
	admitted   = aspect{v1alpha1.ConditionAdmitted, fieldOwner + "-readers"}
)

// unsay takes the condition off a Peer, which may be nil.
func (a aspect) unsay(ctx context.Context, c client.Client, peer *v1alpha1.Peer) error {
	if peer == nil || meta.FindStatusCondition(peer.Status.Conditions, a.condition) == nil {
		return nil
	}
	return local.IgnoreStale(local.ApplyStatus(ctx, c, a.owner, peer, &v1alpha1.PeerStatus{}))
}

// say writes the condition of a Peer.
func (a aspect) say(ctx context.Context, c client.Client, peer *v1alpha1.Peer, said metav1.Condition) error {
	said.Type, said.ObservedGeneration = a.condition, peer.Generation
	var conditions []metav1.Condition
	if before := meta.FindStatusCondition(peer.Status.Conditions, said.Type); before != nil {
		conditions = append(conditions, *before)
	}
	if !meta.SetStatusCondition(&conditions, said) {
		return nil
	}
	return local.IgnoreStale(local.ApplyStatus(ctx, c, a.owner, peer, &v1alpha1.PeerStatus{Conditions: conditions}))
}
