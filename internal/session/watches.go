package session

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// peerChanges are those that say something new about joining and renewing: our invitation for the peer was made or used,
// the peer no longer knows us, somebody took our own condition away, or the client rings.
var peerChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*v1alpha1.Peer), e.ObjectNew.(*v1alpha1.Peer)
	return before.UID != after.UID || before.Generation != after.Generation ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		before.Annotations[v1alpha1.AnnotationJoin] != after.Annotations[v1alpha1.AnnotationJoin] ||
		slices.ContainsFunc([]string{
			v1alpha1.ConditionJoined, v1alpha1.ConditionAuthenticated, v1alpha1.ConditionSession,
		}, func(kind string) bool { return conditionChanged(before, after, kind) })
}}

func conditionChanged(before, after *v1alpha1.Peer, kind string) bool {
	a := meta.FindStatusCondition(before.Status.Conditions, kind)
	b := meta.FindStatusCondition(after.Status.Conditions, kind)
	if a == nil || b == nil {
		return (a == nil) != (b == nil)
	}
	return a.Status != b.Status || a.Reason != b.Reason
}

// unknownSince reports whether the peer was found not to know us any more after the session was made.
func unknownSince(peer *v1alpha1.Peer, h *holding) bool {
	found := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionAuthenticated)
	return found != nil && found.Status == metav1.ConditionFalse && found.Reason == v1alpha1.ReasonUnauthorized &&
		found.LastTransitionTime.After(h.issued)
}
