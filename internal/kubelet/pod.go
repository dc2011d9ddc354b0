// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// podFacts are what decides about one pod.
type podFacts struct {
	peer string
	// home is the pod, nil if there is none of that name bound to the virtual node.
	home *corev1.Pod
	// virtual says that the Node of that name is a virtual one of ours and exists.
	virtual bool
	// peered says that there is a Peer, so that what is missing may come.
	peered bool
	// to is that Peer, and empty if there is none. It is the cache's own.
	to *v1alpha1.Peer
	// unpeeredByForce says that we leave the peer by force, so that the peer is asked for nothing.
	unpeeredByForce bool
	// offloaded says that the pod's namespace has a NamespaceOffloading, and how is what that wants.
	offloaded bool
	how       v1alpha1.NamespaceOffloadingSpec
	// offloading is the same with what was decided about it. It is the cache's own.
	offloading *v1alpha1.NamespaceOffloading
	// settled says that it is known whether the peer answers. It is not, for a moment, when this process has just started.
	settled bool
	// linked says that view is what the peer told, and not just empty.
	linked bool
	view
	// earlier is the record of another pod of that name, which has ended and which nobody here can end, nil if there is none.
	// Then there is no record of this one.
	earlier *v1alpha1.ShadowPod
	// justBound says that the pod was bound only a moment ago, so that waiting is no news yet.
	justBound bool
}

// action is what to do about a pod.
type action int

const (
	// doNothing: all is as it should be, or an event that we wait for brings us back.
	doNothing action = iota
	// doHold: the pod cannot be offloaded (yet), which it must say.
	doHold
	// doWait: the same, but so new that it is not worth saying.
	doWait
	// doCreate: ask the peer to run it.
	doCreate
	// doDisconnect: say that nobody knows how the pod is.
	doDisconnect
	// doReport: bring changes out and the status home.
	doReport
	// doEnd: home deletes the pod, so the peer must end it.
	doEnd
	// doGiveUp: the pod ended at the peer with its namespace, so home must run another.
	doGiveUp
	// doFinish: nothing of the pod is left at the peer, so home can forget it.
	doFinish
	// doClear: the record at the peer is of a pod that home does not know any more, or that has ended there.
	doClear
)

// decision is an action, with the explanation for a pod that is held.
type decision struct {
	do      action
	message string
}

func decide(f podFacts) decision {
	if f.unpeeredByForce {
		return decision{} // the drain deletes it
	}
	if f.shadow != nil && !wanted(f.shadow, f.home) {
		return decision{do: ifAnswered(f, doClear)}
	}
	switch {
	case f.home == nil || !f.virtual:
		return decision{}
	case f.cut && isOut(f.home):
		return decision{do: doDisconnect}
	case !f.home.DeletionTimestamp.IsZero():
		return decision{do: decideDeleted(f)}
	case f.shadow != nil:
		return decision{do: doReport}
	case terminal(f.home):
		return decision{}
	default:
		return decideMissing(f)
	}
}

// ifAnswered puts off what the peer must be asked for until it answers, which brings the pod back.
func ifAnswered(f podFacts, what action) action {
	if !f.answers {
		return doNothing
	}
	return what
}

// decideDeleted says what to do about a pod that home deletes.
func decideDeleted(f podFacts) action {
	if f.shadow != nil {
		return ifAnswered(f, doEnd)
	}
	if _, stays := staysHome(f.home); stays || !f.peered {
		return doFinish
	}
	// What was not seen may still be there: only a peer that answered can say that nothing is left.
	if !f.linked || !f.synced() {
		return doNothing
	}
	return ifAnswered(f, doFinish)
}

// decideMissing says what to do about a pod that the peer should run and has no record of.
func decideMissing(f podFacts) decision {
	if why, stays := staysHome(f.home); stays {
		return decision{do: doHold, message: why}
	}
	if !f.offloaded {
		return decision{do: doHold, message: fmt.Sprintf(
			"namespace %q is not offloaded: create a NamespaceOffloading called %q in it, "+
				"or keep the pod off Node %s", f.home.Namespace, v1alpha1.NamespaceOffloadingName, f.home.Spec.NodeName)}
	}
	if f.answers && f.twinEnds() && f.synced() && everStarted(&f.home.Status) {
		return decision{do: doGiveUp}
	}
	return decideOutgoing(f, obstacle(f))
}

// decideOutgoing says what to do about a pod that is to go out, unless something is missing for that.
func decideOutgoing(f podFacts, why string) decision {
	switch {
	case started(f.home) && (why != "" || !f.shadowsSynced):
		// It was out before, and is most likely still there. Whatever comes brings us back.
		return decision{}
	case why == "":
		return decision{do: doCreate}
	case f.justBound, !f.settled && !f.answers:
		return decision{do: doWait}
	default:
		return decision{do: doHold, message: why}
	}
}

// obstacle says what is still missing before the pod can go out, in words for its author.
func obstacle(f podFacts) string {
	switch {
	case !f.linked:
		return fmt.Sprintf("there is no link to peer %q: see the conditions of the Peer", f.peer)
	case !f.mappingsSynced || !f.answers:
		return fmt.Sprintf("peer %q does not answer: see the conditions of the Peer", f.peer)
	case f.mapping == nil:
		return fmt.Sprintf("peer %q has no twin of namespace %q: does the NamespaceOffloading select it?",
			f.peer, f.home.Namespace)
	case f.twin == "" || f.twinEnds() || !meta.IsStatusConditionTrue(f.mapping.Status.Conditions, v1alpha1.ConditionReady):
		return fmt.Sprintf("peer %q has not made a twin of namespace %q yet%s", f.peer, f.home.Namespace,
			because(f.mapping.Status.Conditions))
	case f.earlier != nil:
		return fmt.Sprintf("peer %q still has the record of an earlier pod of this name, which finalizers of others hold there: %s. "+
			"Ask its administrator to remove them, or give the pod another name", f.peer, finalizersOf(f.earlier))
	}
	return ""
}

func because(conditions []metav1.Condition) string {
	ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Message == "" {
		return ""
	}
	return ": " + ready.Message
}

// staysHome says why a pod is not taken out of this cluster, whatever its namespace says.
func staysHome(pod *corev1.Pod) (string, bool) {
	if _, mirrored := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirrored {
		return "it is the mirror of a static pod, which runs where its manifest lies", true
	}
	owner := metav1.GetControllerOf(pod)
	if owner != nil && owner.Kind == "DaemonSet" && owner.APIVersion == "apps/v1" {
		return "pods of DaemonSets are not offloaded: they serve the node that they run on", true
	}
	return "", false
}

func terminal(pod *corev1.Pod) bool {
	return offload.Terminal(pod.Status.Phase)
}

// wanted says whether home, of which the pod may be nil, still wants the record. Nothing may run for a pod that has ended: its
// controller has made another. One that is being deleted ends as it asks to.
func wanted(shadow *v1alpha1.ShadowPod, home *corev1.Pod) bool {
	if home == nil || home.UID != shadow.Spec.HomeUID {
		return false
	}
	return !terminal(home) || !home.DeletionTimestamp.IsZero() || !mayRun(shadow)
}

// mayRun says whether something may run for the record, now or later.
func mayRun(shadow *v1alpha1.ShadowPod) bool {
	return !offload.Terminal(shadow.Status.Phase) &&
		!meta.IsStatusConditionTrue(shadow.Status.Conditions, v1alpha1.ConditionUnrecoverable)
}

func isReady(pod *corev1.Pod) bool {
	ready := offload.PodCondition(&pod.Status, corev1.PodReady)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

// isOut says whether the pod runs at the peer, as far as home was told.
func isOut(home *corev1.Pod) bool {
	_, stays := staysHome(home)
	return started(home) && !terminal(home) && !stays
}

// started says whether the peer has told of the pod before.
func started(pod *corev1.Pod) bool {
	return pod.Status.Reason != v1alpha1.ReasonOffloadingBackOff && len(pod.Status.ContainerStatuses) > 0
}
