// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// observation is all that a decision about a ShadowPod is based on.
type observation struct {
	shadow   *v1alpha1.ShadowPod
	pod      *corev1.Pod // of the ShadowPod's name; somebody else may have made it
	peer     string
	twin     *corev1.Namespace    // in which the ShadowPod lies
	ending   bool                 // the twin is being deleted
	path     []string             // see offload.Rules
	next     []string             // the same, for a pod that is about to be made
	home     *offload.HomeNetwork // the same
	metadata offload.Metadata
	// scalingUp is when the autoscaler said that it makes room for the pod, which has no node.
	scalingUp time.Time
	// heard is what happened to the pod and may not be on record.
	heard []v1alpha1.RemoteEvent
	// upToDate says that the pod is known to be as the ShadowPod wants it.
	upToDate bool
	now      time.Time
}

// action is what to do about the pod.
type action int

const (
	leavePod action = iota
	makePod
	removePod
	updatePod
	releasePod // take the finalizer off
)

// decision is what to do, what the record shall say, and when to look again if nothing happens.
type decision struct {
	action action
	status v1alpha1.ShadowPodStatus
	again  time.Duration
}

// decide says what to do about a ShadowPod that home wants.
func decide(s *observation) decision {
	next := decision{status: *s.shadow.Status.DeepCopy()}
	switch {
	case meta.IsStatusConditionTrue(s.shadow.Status.Conditions, v1alpha1.ConditionUnrecoverable):
		// Home has given the pod up, which cannot be taken back.
		if s.ours() && s.pod.DeletionTimestamp.IsZero() {
			next.action = removePod
		}
	case offload.Terminal(s.shadow.Status.Phase):
		// It has run to its end, and is never run again.
	case s.pod == nil:
		s.missing(&next)
	case !s.ours():
		next.nameTaken(s)
	case endedByItself(s.pod):
		next.tell(s, offload.Export(s.pod))
	case !s.pod.DeletionTimestamp.IsZero():
		next.interrupt(s)
	case failedByPlatform(&s.pod.Status):
		next.interrupt(s)
		next.action = removePod
	default:
		s.alive(&next)
	}
	if next.action == leavePod && s.heldForNothing() {
		next.action = releasePod
	}
	next.hear(s)
	return next
}

// heldForNothing says whether a pod that is held has nothing left to be put on record.
func (s *observation) heldForNothing() bool {
	if s.pod == nil || !held(s.pod) {
		return false
	}
	going := !s.pod.DeletionTimestamp.IsZero()
	switch {
	case !s.ours(): // its own record went without it
		return going
	case offload.Terminal(s.shadow.Status.Phase):
		return true
	case meta.IsStatusConditionTrue(s.shadow.Status.Conditions, v1alpha1.ConditionUnrecoverable):
		return going
	default:
		return going && settled(s.pod) && !endedByItself(s.pod)
	}
}

func (s *observation) ours() bool { return s.pod != nil && madeFor(s.shadow, s.pod) }

// missing decides about a record without a pod: the first one has to be made, or the next.
func (s *observation) missing(next *decision) {
	if s.ending {
		next.giveUp(s, v1alpha1.ReasonNamespaceTerminating, "The twin namespace is being deleted")
		return
	}
	if s.shadow.Status.PodUID == "" {
		next.action = makePod
		return
	}
	next.interrupt(s)
	since := interruptedAt(&next.status)
	delay, ok := backOff(next.status.RecreationsInARow, lived(&next.status, since))
	switch {
	case !ok:
		next.giveUp(s, reasonRemadeTooOften, "The pod was made again too often without running for long")
	case s.now.Before(since.Add(delay)):
		next.again = since.Add(delay).Sub(s.now)
	default:
		next.action = makePod
	}
}

// alive decides about a pod that runs or is about to.
func (s *observation) alive(next *decision) {
	if s.shadow.Generation != s.shadow.Status.ObservedGeneration && !s.upToDate {
		next.action = updatePod
	}
	if wait := s.reportDelay(&s.pod.Status); wait > 0 {
		next.again = wait
		return
	}
	next.tell(s, offload.Export(s.pod))
}

// Most pods are ready soon, which is then the only thing to tell. These are for how long one is not told of that the
// scheduler has not looked at, that it has no room for (others may just be going), whose containers are being made, and
// whose containers have begun to run and are not ready.
const (
	schedulingDelay = 10 * time.Second
	noRoomDelay     = 2 * time.Second
	creatingDelay   = time.Minute
	startingDelay   = 3 * time.Second
)

// reportDelay says for how long this status need not be told.
func (s *observation) reportDelay(status *corev1.PodStatus) time.Duration {
	age := s.now.Sub(s.pod.CreationTimestamp.Time)
	switch {
	case s.waitedFor() || alarming(status):
		return 0
	case unschedulable(s.pod) != nil:
		return left(noRoomDelay, age)
	case status.Phase == corev1.PodPending && s.pod.Spec.NodeName == "":
		return left(schedulingDelay, age)
	case status.Phase == corev1.PodPending:
		return left(creatingDelay, age)
	case status.Phase == corev1.PodRunning && !ready(status):
		return left(startingDelay, s.now.Sub(lastStart(status)))
	default:
		return 0
	}
}

// waitedFor says whether home follows the pod already: it ran, it is made again, or something stood against it.
func (s *observation) waitedFor() bool {
	recorded := &s.shadow.Status
	heldBack := meta.IsStatusConditionFalse(recorded.Conditions, v1alpha1.ConditionScheduled)
	remade := recorded.PodUID != "" && recorded.PodUID != s.pod.UID
	started := recorded.Phase != "" && recorded.Phase != string(corev1.PodPending)
	return remade || started || heldBack
}

// left returns what is left of a time, and nothing of one that begins in the future: two clocks differ then.
func left(whole, passed time.Duration) time.Duration {
	if passed < 0 {
		return 0
	}
	return max(whole-passed, 0)
}

func lastStart(status *corev1.PodStatus) time.Time {
	var last time.Time
	for i := range status.ContainerStatuses {
		running := status.ContainerStatuses[i].State.Running
		if running != nil && running.StartedAt.After(last) {
			last = running.StartedAt.Time
		}
	}
	return last
}

func ready(status *corev1.PodStatus) bool {
	c := offload.PodCondition(status, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// alarming says whether a container waits for something that its author should know of.
func alarming(status *corev1.PodStatus) bool {
	return slices.ContainsFunc(offload.ContainerStatuses(status), func(c *corev1.ContainerStatus) bool {
		return c.State.Waiting != nil && !slices.Contains([]string{"", "ContainerCreating", "PodInitializing"}, c.State.Waiting.Reason)
	})
}

// failedByPlatform says whether the pod failed by what happened to its node or cluster, or was not taken by a kubelet.
func failedByPlatform(status *corev1.PodStatus) bool {
	return offload.FailedByPlatform(status) || rejected(status)
}

// rejected says whether a kubelet did not take the pod, so that nothing of it ran. The reasons for that are many, and more
// come with each version.
func rejected(status *corev1.PodStatus) bool {
	return status.Phase == corev1.PodFailed && strings.HasPrefix(status.Message, "Pod was rejected") && !everStarted(status)
}

// hasEnded says whether the pod has run to its end.
func hasEnded(status *corev1.PodStatus) bool { return offload.Ended(status) && !rejected(status) }

// endedByItself says whether the pod's own containers ended it, and not its deletion. One that may run to its end and is
// asked to stop has done its work if it says so.
func endedByItself(pod *corev1.Pod) bool {
	switch {
	case !hasEnded(&pod.Status):
		return false
	case pod.DeletionTimestamp.IsZero(), mayEnd(pod) && pod.Status.Phase == corev1.PodSucceeded:
		return true
	default:
		return finishedBeforeDeletion(pod)
	}
}

// mayEnd says whether the pod may run to its end, which home must then learn of.
func mayEnd(pod *corev1.Pod) bool {
	return pod.Spec.RestartPolicy == corev1.RestartPolicyNever || pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
}

// held says whether the pod stays until its end is on record.
func held(pod *corev1.Pod) bool {
	return v1alpha1.OwnerShadowPod(pod) != nil && slices.Contains(pod.Finalizers, v1alpha1.FinalizerRemotePod)
}

// settled says whether nothing more will be told of a pod that is being deleted: its containers have ended, or nobody waits
// for them.
func settled(pod *corev1.Pod) bool {
	grace := pod.DeletionGracePeriodSeconds
	return offload.Terminal(pod.Status.Phase) || grace != nil && *grace == 0
}

// finishedBeforeDeletion says whether each container had run to its end for good when the deletion began. A grace of
// zero tells nothing: it comes last, and moves the time of the deletion.
func finishedBeforeDeletion(pod *corev1.Pod) bool {
	grace := pod.DeletionGracePeriodSeconds
	if grace == nil || *grace == 0 || len(pod.Status.ContainerStatuses) == 0 {
		return false
	}
	asked := pod.DeletionTimestamp.Add(-time.Duration(*grace) * time.Second)
	return !slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return !offload.StaysEnded(&pod.Spec, &c) || !c.State.Terminated.FinishedAt.Time.Before(asked)
	})
}

const (
	// longLife is how long a pod must have lived for its end not to count as one of a series.
	longLife = 10 * time.Minute
	// firstDelay doubles with each remake of a pod that did not live long, up to longestDelay.
	firstDelay      = time.Second
	longestDelay    = 5 * time.Minute
	mostRecreations = 20
)

// backOff says how long to wait before a pod is made again that was so often in a row, and whether it should be at all.
func backOff(recreations int32, lived time.Duration) (time.Duration, bool) {
	switch {
	case recreations <= 0 || lived >= longLife:
		return 0, true
	case recreations >= mostRecreations:
		return 0, false
	}
	delay := firstDelay
	for range recreations - 1 {
		delay = min(2*delay, longestDelay)
	}
	return delay, true
}
