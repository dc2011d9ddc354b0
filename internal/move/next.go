// SPDX-License-Identifier: Apache-2.0

package move

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Do is what is to be done next.
type Do string

const (
	// Wait does nothing: what is observed will change.
	Wait Do = "Wait"
	// Begin notes down what there is before anything is touched.
	Begin Do = "Begin"
	// CreateCopy creates the copy.
	CreateCopy Do = "CreateCopy"
	// LowerCost has the owner prefer the original when it deletes a pod.
	LowerCost Do = "LowerCost"
	// HandOver gives the copy its labels, and makes it nobody's, so that its controller adopts it.
	HandOver Do = "HandOver"
	// Evict evicts the original.
	Evict Do = "Evict"
	// Gate has the owner's next pod be created with a gate.
	Gate Do = "Gate"
	// Steer sends the pod that the owner has made to the destination, and lifts its gate.
	Steer Do = "Steer"
	// EvictCopy undoes Steer: the owner makes another pod.
	EvictCopy Do = "EvictCopy"
	// Note keeps the original as it is to be made again.
	Note Do = "Note"
	// Recreate makes the original again at its destination.
	Recreate Do = "Recreate"
	// Restore makes it again where it was.
	Restore Do = "Restore"
	// Settle takes off the copy what only the move needed.
	Settle Do = "Settle"
	// Succeed notes down that the pod has moved.
	Succeed Do = "Succeed"
	// Abort notes down why the move fails, before anything is undone.
	Abort Do = "Abort"
	// RestoreCost undoes LowerCost.
	RestoreCost Do = "RestoreCost"
	// DeleteCopy undoes CreateCopy.
	DeleteCopy Do = "DeleteCopy"
	// Fail notes down that all was undone.
	Fail Do = "Fail"
	// Release lets go of the PodMove: nothing more is to be done.
	Release Do = "Release"
	// Remove deletes the PodMove, which has been over for long enough.
	Remove Do = "Remove"
	// Nothing is for a move that is over.
	Nothing Do = "Nothing"
)

// DefaultDeadline is how long a move that names no deadline has until its copy is Ready.
const DefaultDeadline = 10 * time.Minute

// Step is the next step of a move.
type Step struct {
	Do    Do
	Cause Cause         // of waiting, and of what goes wrong
	After time.Duration // for Wait and Nothing: look again by then. With 0 something that changes brings us back.
}

// Observed is all that decides about the next step.
type Observed struct {
	Move *v1alpha1.PodMove
	// Original is the pod to move, nil if it is gone.
	Original *corev1.Pod
	// Copy is the pod that was made for this move, by us or, with Steer, by the owner; nil if there is none.
	Copy *corev1.Pod
	// Namesake is a pod with the name of an original that was deleted first: that one made again where it was, or somebody else's.
	Namesake *corev1.Pod
	// Owner is the controller of the original, nil if it has none, or the owner is gone or going.
	Owner *Owner
	// Method and Findings are those of Preflight. They count until the move begins.
	Method   v1alpha1.MoveMethod
	Findings []Cause
	// Waits says that another move of the same owner is under way, or comes first. It counts until the move begins.
	Waits bool
}

// Next returns the next step. Up to HandOver everything can be undone, and is if something goes wrong. From then on the copy is
// the owner's, and the move goes on until the original is gone. With Steer the eviction is what cannot be undone. With DeleteFirst
// it is undone until the copy has started.
func Next(seen Observed, now time.Time) Step {
	goOn, undo := seen.goOn, seen.rollBack
	switch seen.Move.Status.Method {
	case v1alpha1.MoveSteer:
		goOn, undo = seen.steer, seen.freeReplacement
	case v1alpha1.MoveDeleteFirst:
		goOn, undo = seen.recreate, seen.restore
	case v1alpha1.MoveSurge:
	}
	switch seen.Move.Status.Phase {
	case v1alpha1.MoveSucceeded, v1alpha1.MoveFailed:
		return seen.keep(now)
	case "", v1alpha1.MovePending:
		return seen.first(now)
	case v1alpha1.MoveRollingBack:
		return undo()
	default:
		return goOn(now)
	}
}

func (s *Observed) letGo() Step {
	if slices.Contains(s.Move.Finalizers, v1alpha1.FinalizerPodMove) {
		return Step{Do: Release}
	}
	return Step{Do: Nothing}
}

// keep is for a move that is over.
func (s *Observed) keep(now time.Time) Step {
	step, at, ttl := s.letGo(), s.Move.Status.FinishedAt, s.Move.Spec.TTLSecondsAfterFinished
	if step.Do != Nothing || s.isDeleted() || at == nil || ttl == nil {
		return step
	}
	if left := time.Duration(*ttl)*time.Second - now.Sub(at.Time); left > 0 {
		return Step{Do: Nothing, After: left}
	}
	return Step{Do: Remove}
}

// first is for a move that has touched nothing yet.
func (s *Observed) first(now time.Time) Step {
	switch {
	case s.isDeleted():
		return s.letGo()
	case s.left(now) <= 0:
		return Step{Do: Fail, Cause: s.tooLate()}
	case s.Waits:
		// Without its name: of a hundred that wait each would be written whenever one is over.
		return Step{Do: Wait, After: s.left(now), Cause: Cause{v1alpha1.ReasonWaitsForOther, "another PodMove of the same owner comes first"}}
	case len(s.Findings) > 0:
		return Step{Do: Fail, Cause: join(s.Findings)}
	default:
		return Step{Do: Begin}
	}
}

// goOn is for a move that has begun.
func (s *Observed) goOn(now time.Time) Step {
	if s.HandedOver() {
		return s.takeOver()
	}
	if cause := s.trouble(now); cause != nil {
		return Step{Do: Abort, Cause: *cause}
	}
	if s.Copy == nil {
		return Step{Do: CreateCopy}
	}
	if wait := s.untilAvailable(now); wait != nil {
		return *wait
	}
	if s.isOwned() && isThere(s.Original) {
		goesFirst := s.wouldGoFirst(now) == s.Original.UID
		isDecided := goesFirst && s.Owner.active() == 1 // between a single pod and its copy, by the cost of the copy
		switch {
		case !isDecided && s.Original.Annotations[corev1.PodDeletionCost] != LowestCost:
			return Step{Do: LowerCost}
		case !goesFirst:
			return Step{Do: Evict}
		}
	}
	return Step{Do: HandOver}
}

// trouble says why the move cannot go on, as long as the copy has not taken over.
func (s *Observed) trouble(now time.Time) *Cause {
	if cause := s.stopped(); cause != nil {
		return cause
	}
	if s.left(now) <= 0 {
		late := s.tooLate()
		return &late
	}
	mayTakeOver := s.isOwned() && s.Copy != nil && isReady(s.Copy)
	if !isThere(s.Original) && !mayTakeOver {
		return &Cause{v1alpha1.ReasonOriginalLost, fmt.Sprintf("Pod %s has ended or was deleted before the copy took over", s.Move.Spec.Pod.Name)}
	}
	return nil
}

// stopped says whether the move has lost what any method needs, or is wanted no more.
func (s *Observed) stopped() *Cause {
	if s.isDeleted() {
		return &Cause{v1alpha1.ReasonAborted, "The PodMove was deleted"}
	}
	return cmp.Or(s.troubleOfOwner(), s.troubleOfCopy())
}

func (s *Observed) troubleOfOwner() *Cause {
	noted := s.Move.Status.Owner
	switch {
	case noted == nil:
		return nil
	case s.Owner == nil:
		return &Cause{v1alpha1.ReasonOwnerLost, fmt.Sprintf("%s %s was deleted", noted.Kind, noted.Name)}
	case s.Owner.Busy != "":
		return &Cause{v1alpha1.ReasonRolloutUnderWay, s.Owner.Busy}
	default:
		return nil
	}
}

func (s *Observed) troubleOfCopy() *Cause {
	noted := s.Move.Status.Copy
	switch {
	case s.Copy == nil && noted != nil:
		return &Cause{v1alpha1.ReasonCopyLost, fmt.Sprintf("The copy %s was deleted before it took over", noted.Name)}
	case s.Copy != nil && !isActive(s.Copy):
		return &Cause{v1alpha1.ReasonCopyLost, fmt.Sprintf("The copy %s has ended before it took over", s.Copy.Name)}
	default:
		return nil
	}
}

// tooLate says what the copy waits for, in the scheduler's words if that has any.
func (s *Observed) tooLate() Cause {
	text := "The copy was not Ready in time"
	if s.Copy == nil {
		text = "The move did not begin in time"
	} else if at := slices.IndexFunc(s.Copy.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
	}); at >= 0 {
		text += ": " + s.Copy.Status.Conditions[at].Message
	}
	return Cause{v1alpha1.ReasonDeadlineExceeded, text}
}

// untilAvailable returns nil once the copy is Ready for long enough.
func (s *Observed) untilAvailable(now time.Time) *Step {
	since := readySince(s.Copy)
	if since.IsZero() {
		return &Step{Do: Wait, After: s.left(now), Cause: Cause{v1alpha1.ReasonMoving, fmt.Sprintf("Waiting for the copy %s to be Ready", s.Copy.Name)}}
	}
	if !s.isOwned() || s.Owner.MinReadySeconds == 0 {
		return nil
	}
	left := time.Duration(s.Owner.MinReadySeconds)*time.Second - now.Sub(since.Time)
	if left <= 0 {
		return nil
	}
	return &Step{Do: Wait, After: left, Cause: Cause{v1alpha1.ReasonMoving, fmt.Sprintf("Waiting until the copy %s is Ready for minReadySeconds", s.Copy.Name)}}
}

// wouldGoFirst returns the UID of the pod that the owner would delete if it had the copy too.
func (s *Observed) wouldGoFirst(now time.Time) types.UID {
	adopted := s.Copy.DeepCopy()
	metav1.SetMetaDataAnnotation(&adopted.ObjectMeta, corev1.PodDeletionCost, HighestCost) // somebody may have taken all off
	order := DeletionOrder(append(slices.Clone(s.Owner.Pods), *adopted), now)
	return order[0].UID
}

// takeOver is for a move whose copy has its labels.
func (s *Observed) takeOver() Step {
	adopted := !s.isOwned() || metav1.GetControllerOf(s.Copy) != nil
	switch {
	case !isActive(s.Copy):
		return Step{Do: Abort, Cause: Cause{v1alpha1.ReasonCopyLost, fmt.Sprintf("The copy %s has ended while it took over", s.Copy.Name)}}
	case !adopted && s.Owner == nil:
		return Step{Do: Abort, Cause: Cause{v1alpha1.ReasonOwnerLost, "The owner was deleted before it adopted the copy"}}
	case !adopted:
		return Step{Do: Wait, Cause: Cause{v1alpha1.ReasonMoving, s.waitingForOwner()}}
	case !isThere(s.Original) && s.Copy.Annotations[v1alpha1.AnnotationMove] != "":
		return Step{Do: Settle}
	case !isThere(s.Original):
		return Step{Do: Succeed, Cause: Cause{v1alpha1.ReasonMoved, fmt.Sprintf("Pod %s runs on node %s in the place of %s", s.Copy.Name, s.Copy.Spec.NodeName, s.Move.Spec.Pod.Name)}}
	case s.isOwned() && s.Owner != nil && s.Owner.active() > int(s.Owner.Replicas):
		return Step{Do: Wait, Cause: Cause{v1alpha1.ReasonMoving, s.waitingForOwner()}}
	default:
		return Step{Do: Evict}
	}
}

// waitingForOwner is the same for both: each would be a write.
func (s *Observed) waitingForOwner() string {
	return fmt.Sprintf("Waiting for %s %s to adopt the copy and to delete the original", s.Owner.Kind, s.Owner.Name)
}

// rollBack undoes what was done. What its owner has adopted meanwhile is the owner's.
func (s *Observed) rollBack() Step {
	before := s.Move.Status.Original
	switch {
	case isThere(s.Original) && s.Original.Annotations[corev1.PodDeletionCost] == LowestCost && (before == nil || before.DeletionCost != LowestCost):
		return Step{Do: RestoreCost}
	case s.Copy != nil && s.Copy.DeletionTimestamp == nil && s.Copy.Annotations[v1alpha1.AnnotationMove] != "" && metav1.GetControllerOf(s.Copy) == nil:
		return Step{Do: DeleteCopy}
	default:
		return Step{Do: Fail}
	}
}

// HandedOver says whether there is a copy that is no longer the PodMove's, or that was sent to the destination.
func (s *Observed) HandedOver() bool {
	if s.Move.Status.Method == v1alpha1.MoveSteer {
		return s.Copy != nil && isSteered(s.Move, s.Copy)
	}
	return s.Copy != nil && !slices.ContainsFunc(s.Copy.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == s.Move.UID })
}

func (s *Observed) isOwned() bool   { return s.Move.Status.Owner != nil }
func (s *Observed) isDeleted() bool { return !s.Move.DeletionTimestamp.IsZero() }

// left is how much time there is.
func (s *Observed) left(now time.Time) time.Duration {
	deadline := DefaultDeadline
	if s.Move.Spec.Deadline != nil {
		deadline = s.Move.Spec.Deadline.Duration
	}
	return s.Move.CreationTimestamp.Add(deadline).Sub(now)
}

func isThere(pod *corev1.Pod) bool { return pod != nil && isActive(pod) }

// join makes one cause of several, with the reason of the first.
func join(causes []Cause) Cause {
	all := causes[0]
	for _, c := range causes[1:] {
		all.Message += "; " + c.Message
	}
	return all
}
