// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/trust"
)

// A relay keeps the copies of what members say, and notes what passes.
type relay struct {
	Config

	notes *notes
}

func setUpRelay(mgr ctrl.Manager, c Config, n *notes) error {
	r := &relay{c, n}
	return ctrl.NewControllerManagedBy(mgr).
		Named("relay").
		Watches(&v1alpha1.Message{}, handler.EnqueueRequestsFromMapFunc(originOf), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Peer{}, handler.EnqueueRequestsFromMapFunc(r.concerning), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(options()).
		Complete(r)
}

// originOf is the Message itself, or the one that it is a copy of. What this broker says itself is neither.
func originOf(_ context.Context, object client.Object) []reconcile.Request {
	message := object.(*v1alpha1.Message)
	key := client.ObjectKeyFromObject(message)
	if message.Relayed() {
		key.Namespace, key.Name, _ = strings.Cut(message.Annotations[v1alpha1.AnnotationMessage], "/")
	} else if key.Namespace == v1alpha1.MembersNamespace {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// concerning are the Messages from the peer and to it.
func (r *relay) concerning(ctx context.Context, peer client.Object) []reconcile.Request {
	all := &v1alpha1.MessageList{}
	if err := r.Client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "List Messages")
		return nil
	}
	var found []reconcile.Request
	for i := range all.Items {
		message := &all.Items[i]
		if message.Namespace == v1alpha1.TenantNamespace(peer.GetName()) || message.Spec.To == peer.(*v1alpha1.Peer).Spec.ClusterID {
			found = append(found, originOf(ctx, message)...)
		}
	}
	return found
}

// Reconcile keeps the copy of one Message, and says in its status what has become of it.
func (r *relay) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	message, err := local.Find(ctx, r.Client, request.NamespacedName, &v1alpha1.Message{})
	if err != nil {
		return reconcile.Result{}, err
	}
	if message == nil || !message.DeletionTimestamp.IsZero() {
		r.notes.takenBack(request.NamespacedName, r.Clock.Now())
		return reconcile.Result{}, r.takeBack(ctx, request.NamespacedName, nil)
	}
	copied, said, err := r.copyOf(ctx, message)
	var why *trust.Refusal
	if err != nil && !errors.As(err, &why) {
		return reconcile.Result{}, err
	}
	if err := r.takeBack(ctx, request.NamespacedName, copied); err != nil {
		return reconcile.Result{}, err
	}
	if why == nil {
		if why, err = r.bring(ctx, copied); err != nil {
			return reconcile.Result{}, err
		}
	}
	result := reconcile.Result{}
	if copied != nil { // it ends, and until then there may come to be room for it
		result.RequeueAfter = said.Expires.Sub(r.Clock.Now())
		if why != nil {
			result.RequeueAfter = min(result.RequeueAfter, lookAgain)
		}
	}
	if why == nil {
		r.notes.relayed(request.NamespacedName, said, r.Clock.Now())
	} else {
		r.notes.takenBack(request.NamespacedName, r.Clock.Now())
	}
	return result, r.say(ctx, message, why)
}

// copyOf is the copy that there is to be of the Message, and what it says. The error is a Refusal if there is to be none.
func (r *relay) copyOf(ctx context.Context, message *v1alpha1.Message) (*v1alpha1.Message, *trust.Statement, error) {
	name, _ := strings.CutPrefix(message.Namespace, v1alpha1.TenantNamespacePrefix)
	sender, err := local.Find(ctx, r.Client, client.ObjectKey{Name: name}, &v1alpha1.Peer{})
	if err != nil {
		return nil, nil, err
	}
	if !isMember(sender) {
		return nil, nil, &trust.Refusal{
			Reason: v1alpha1.ReasonNotAMember, Message: "This cluster relays for its members alone: its Peer for the sender has not the role Member",
		}
	}
	said, err := trust.ReadStatement(&message.Spec.SignedStatement, message.Spec.To, r.Clock.Now())
	if err == nil && said.From != sender.Spec.ClusterID {
		err = &trust.Refusal{Reason: v1alpha1.ReasonForged, Message: "The statement is not from the member in whose namespace it lies"}
	}
	if err == nil && said.To == "" && said.Type != trust.Introduction {
		err = &trust.Refusal{Reason: v1alpha1.ReasonMalformed, Message: "A member introduces itself to all, and says nothing else to them"}
	}
	if err == nil {
		err = said.Judge(sender.Spec.PublicKey, 0)
	}
	if err != nil {
		return nil, nil, err
	}
	copied := &v1alpha1.Message{ObjectMeta: metav1.ObjectMeta{
		Namespace: v1alpha1.MembersNamespace, Name: said.From,
		Labels:      map[string]string{v1alpha1.LabelFrom: sender.Name},
		Annotations: map[string]string{v1alpha1.AnnotationMessage: message.Namespace + "/" + message.Name},
	}, Spec: message.Spec}
	if said.To == "" {
		return copied, said, nil
	}
	recipient, err := r.memberCalled(ctx, said.To)
	if err != nil {
		return nil, nil, err
	}
	copied.Namespace, copied.Name = v1alpha1.TenantNamespace(recipient.Name), v1alpha1.RelayedName(said.From, message.Name)
	return copied, said, nil
}

// isMember says whether the peer is heard and reads as a member: one that is suspended may not.
func isMember(peer *v1alpha1.Peer) bool {
	return peer != nil && peer.HasRole(v1alpha1.RoleMember) && peer.DeletionTimestamp.IsZero() && peer.Access() != v1alpha1.AccessSuspended
}

// memberCalled is the Peer of the member of that id. The error is a Refusal if there is none.
func (r *relay) memberCalled(ctx context.Context, id string) (*v1alpha1.Peer, error) {
	all := &v1alpha1.PeerList{}
	if err := r.Client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Peers: %w", err)
	}
	for i := range all.Items {
		if isMember(&all.Items[i]) && all.Items[i].Spec.ClusterID == id {
			return &all.Items[i], nil
		}
	}
	return nil, &trust.Refusal{Reason: v1alpha1.ReasonUnknownMember, Message: fmt.Sprintf("This cluster has no member %s", id)}
}

// takeBack deletes the copies of the Message, but for the one that there is to be.
func (r *relay) takeBack(ctx context.Context, origin client.ObjectKey, but *v1alpha1.Message) error {
	sender, _ := strings.CutPrefix(origin.Namespace, v1alpha1.TenantNamespacePrefix)
	copies := &v1alpha1.MessageList{}
	if err := r.Client.List(ctx, copies, client.MatchingLabels{v1alpha1.LabelFrom: sender}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list copies of Messages: %w", err)
	}
	for i := range copies.Items {
		there := &copies.Items[i]
		if there.Annotations[v1alpha1.AnnotationMessage] != origin.String() ||
			but != nil && client.ObjectKeyFromObject(there) == client.ObjectKeyFromObject(but) {
			continue
		}
		if err := r.Client.Delete(ctx, there.DeepCopy(), client.Preconditions{UID: &there.UID}); local.IgnoreStale(err) != nil {
			return fmt.Errorf("delete a copy of Message %s: %w", origin, err)
		}
	}
	return nil
}

// bring makes the copy, and says why not if there is no room for it.
func (r *relay) bring(ctx context.Context, copied *v1alpha1.Message) (*trust.Refusal, error) {
	there, err := local.Find(ctx, r.Client, client.ObjectKeyFromObject(copied), &v1alpha1.Message{})
	switch {
	case err != nil:
		return nil, err
	case there == nil:
		if why, err := r.tooMany(ctx, copied); why != nil || err != nil {
			return why, err
		}
		err = r.Client.Create(ctx, copied)
	case equality.Semantic.DeepEqual(there.Spec, copied.Spec) && there.Annotations[v1alpha1.AnnotationMessage] == copied.Annotations[v1alpha1.AnnotationMessage]:
	default:
		copied.ResourceVersion = there.ResourceVersion
		err = r.Client.Update(ctx, copied)
	}
	why := whyNot(copied.Namespace, err)
	if why == nil && err != nil {
		return nil, fmt.Errorf("copy a Message: %w", err)
	}
	return why, nil
}

// tooMany refuses what would leave others no room with the member: of one sender there are so many Messages at most.
func (r *relay) tooMany(ctx context.Context, copied *v1alpha1.Message) (*trust.Refusal, error) {
	there := &v1alpha1.MessageList{}
	from := client.MatchingLabels{v1alpha1.LabelFrom: copied.Labels[v1alpha1.LabelFrom]}
	if err := r.Client.List(ctx, there, client.InNamespace(copied.Namespace), from, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list copies of Messages: %w", err)
	}
	if len(there.Items) < mostFromOne {
		return nil, nil
	}
	return &trust.Refusal{
		Reason: v1alpha1.ReasonRecipientFull, Message: fmt.Sprintf("%d Messages from the sender lie with the member, and that is all there may be", mostFromOne),
	}, nil
}

// whyNot says why the API server takes no copy in the namespace, nil if trying again may help. We have rights in namespace hanse-members
// where it is, so that its absence looks as if they were missing.
func whyNot(namespace string, err error) *trust.Refusal {
	absent, forbidden := apierrors.IsNotFound(err), apierrors.IsForbidden(err)
	switch {
	case (absent || forbidden) && namespace == v1alpha1.MembersNamespace:
		return &trust.Refusal{Reason: v1alpha1.ReasonBrokerDisabled, Message: "This cluster is no broker: the value broker.enabled of its chart is not set"}
	case absent:
		return &trust.Refusal{Reason: v1alpha1.ReasonUnknownMember, Message: "The member has no namespace here yet"}
	case forbidden:
		return &trust.Refusal{Reason: v1alpha1.ReasonRecipientFull, Message: "There is no room for more Messages for the member"}
	case apierrors.IsInvalid(err):
		return &trust.Refusal{Reason: v1alpha1.ReasonMalformed, Message: "metadata.name: it is too long for a copy, whose name begins with the id of the sender"}
	default:
		return nil
	}
}

// say writes what has become of the Message.
func (r *relay) say(ctx context.Context, message *v1alpha1.Message, why *trust.Refusal) error {
	status := message.Status.DeepCopy()
	status.ObservedGeneration = message.Generation
	said := metav1.Condition{
		Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRelayed, Message: "It lies where it is read", ObservedGeneration: message.Generation,
	}
	if why != nil {
		said.Status, said.Reason, said.Message = metav1.ConditionFalse, why.Reason, why.Message
	}
	for _, said.Type = range []string{v1alpha1.ConditionRelayed, v1alpha1.ConditionReady} {
		meta.SetStatusCondition(&status.Conditions, said)
	}
	if equality.Semantic.DeepEqual(status, &message.Status) {
		return nil
	}
	return local.IgnoreStale(local.ApplyStatus(ctx, r.Client, fieldOwner, message, status))
}
