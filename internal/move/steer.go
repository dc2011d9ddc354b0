// SPDX-License-Identifier: Apache-2.0

package move

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// GateFor is how long the API server goes on to put the gate on new pods of an owner if no manager renews that.
	GateFor = time.Minute
	// renewBefore is how long before its end that is renewed.
	renewBefore = 30 * time.Second
)

// IsGated says whether the pod waits until it is said where it is to run.
func IsGated(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, isGate)
}

func isGate(gate corev1.PodSchedulingGate) bool { return gate.Name == v1alpha1.GateMove }

// Ungated returns the pod without the gate: it may run anywhere.
func Ungated(pod *corev1.Pod) *corev1.Pod {
	free := pod.DeepCopy()
	free.Spec.SchedulingGates = slices.DeleteFunc(free.Spec.SchedulingGates, isGate)
	return free
}

// Steered returns the gated pod as it is sent to the destination.
func Steered(m *v1alpha1.PodMove, pod *corev1.Pod) *corev1.Pod {
	sent := Ungated(pod)
	direct(&sent.Spec, m, nodeBefore(m))
	return sent
}

// isSteered says whether the pod can run at the destination alone, and has no gate.
func isSteered(m *v1alpha1.PodMove, pod *corev1.Pod) bool {
	wanted := &corev1.PodSpec{}
	direct(wanted, m, nodeBefore(m))
	want := wanted.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
	if IsGated(pod) || pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil || pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	return !slices.ContainsFunc(pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		return !containsAll(term.MatchFields, want.MatchFields) || !containsAll(term.MatchExpressions, want.MatchExpressions)
	})
}

func containsAll(all, some []corev1.NodeSelectorRequirement) bool {
	return len(distinct(slices.Concat(all, some))) == len(distinct(all))
}

// Awaits says whether the move is about to send the gated pod to its destination. The gate of any other pod is of no use.
func Awaits(m *v1alpha1.PodMove, pod *corev1.Pod, now time.Time) bool {
	seen := Observed{Move: m}
	return m.Status.Phase == v1alpha1.MoveSteering && !seen.isDeleted() && seen.left(now) > 0 && takesPlace(m, pod) &&
		(m.Status.Copy == nil || m.Status.Copy.UID == pod.UID)
}

// takesPlace says whether the pod is one that the owner makes in the place of the original. Admission says the same.
func takesPlace(m *v1alpha1.PodMove, pod *corev1.Pod) bool {
	owner, of := m.Status.Owner, metav1.GetControllerOfNoCopy(pod)
	switch {
	case owner == nil || of == nil || of.UID != owner.UID || pod.UID == m.Spec.Pod.UID:
		return false
	case owner.Kind == "StatefulSet":
		return pod.Name == m.Spec.Pod.Name
	case owner.Kind == "Job": // the names of an indexed Job's pods begin with their index
		return strings.HasPrefix(m.Spec.Pod.Name, pod.GenerateName)
	default:
		return true
	}
}

// Replacement returns the pod that its owner has made in the place of the original: the one that was noted down, or the first that
// is gated. As long as the original runs there is none.
func (s *Observed) Replacement() *corev1.Pod {
	if s.Owner == nil {
		return nil
	}
	var first *corev1.Pod
	for i := range s.Owner.Pods {
		pod := &s.Owner.Pods[i]
		switch noted := s.Move.Status.Copy; {
		case noted != nil && noted.UID == pod.UID:
			return pod
		case noted != nil || isThere(s.Original) || !isActive(pod) || !IsGated(pod) || !takesPlace(s.Move, pod):
		case first == nil || cmp.Or(pod.CreationTimestamp.Compare(first.CreationTimestamp.Time), strings.Compare(pod.Name, first.Name)) < 0:
			first = pod
		}
	}
	return first
}

// steer is for a move whose original is evicted.
func (s *Observed) steer(now time.Time) Step {
	if s.HandedOver() {
		return s.arrive(now)
	}
	if cause := s.troubleOfSteering(now); cause != nil {
		return Step{Do: Abort, Cause: *cause}
	}
	waiting := Cause{v1alpha1.ReasonMoving, fmt.Sprintf("Waiting for %s %s to make a pod in the place of %s%s", s.Owner.Kind, s.Owner.Name, s.Move.Spec.Pod.Name, s.heldName())}
	switch {
	case s.Copy != nil:
		return Step{Do: Steer, Cause: Cause{v1alpha1.ReasonMoving, fmt.Sprintf("Pod %s is sent to its destination", s.Copy.Name)}}
	case s.gatedFor(now) < renewBefore:
		return Step{Do: Gate, Cause: waiting}
	case isThere(s.Original):
		return Step{Do: Evict, Cause: waiting}
	default:
		return Step{Do: Wait, After: min(s.left(now), s.gatedFor(now)-renewBefore), Cause: waiting}
	}
}

// troubleOfSteering says why the owner's next pod is not sent to the destination, as long as that has not been done.
func (s *Observed) troubleOfSteering(now time.Time) *Cause {
	if cause := s.stopped(); cause != nil {
		return cause
	}
	pod := s.Move.Spec.Pod.Name
	if s.Copy == nil && s.Original != nil && s.Original.DeletionTimestamp == nil && !isActive(s.Original) {
		return &Cause{v1alpha1.ReasonOriginalLost, fmt.Sprintf("Pod %s has ended before it was evicted", pod)}
	}
	if s.left(now) <= 0 {
		return &Cause{v1alpha1.ReasonDeadlineExceeded, s.lastWords()}
	}
	switch elsewhere := s.madeElsewhere(); {
	case s.Copy != nil && !IsGated(s.Copy):
		return &Cause{v1alpha1.ReasonNotGated, fmt.Sprintf("Somebody else has lifted the gate of %s, which runs where the scheduler puts it", s.Copy.Name)}
	case s.Copy == nil && elsewhere != nil:
		return &Cause{v1alpha1.ReasonNotGated, fmt.Sprintf("The API server has put no gate on %s, which runs where the scheduler puts it", elsewhere.Name)}
	}
	return nil
}

// heldName says what keeps a StatefulSet from using the name of the original again. Other owners make a pod of another name meanwhile.
func (s *Observed) heldName() string {
	if s.Owner.Kind != "StatefulSet" || s.Original == nil {
		return ""
	}
	return heldBy(s.Original)
}

// heldBy names the finalizers that keep a pod in existence whose containers have ended, or is "".
func heldBy(pod *corev1.Pod) string {
	if len(pod.Finalizers) == 0 || pod.DeletionTimestamp == nil || ptr.Deref(pod.DeletionGracePeriodSeconds, 1) > 0 {
		return ""
	}
	return ", which has ended but is held by finalizers: " + strings.Join(pod.Finalizers, ", ")
}

// lastWords says what was waited for in vain.
func (s *Observed) lastWords() string {
	text := "The pod was not sent to its destination in time"
	if complete := meta.FindStatusCondition(s.Move.Status.Conditions, v1alpha1.ConditionComplete); complete != nil {
		text += ": " + complete.Message
	}
	return text
}

// madeElsewhere returns a pod that was made in the place of the evicted one and has no gate, nil if there is none.
func (s *Observed) madeElsewhere() *corev1.Pod {
	at := slices.IndexFunc(s.Move.Status.Steps, func(step v1alpha1.MoveStep) bool { return step.Action == v1alpha1.MoveEvicted })
	if at < 0 {
		return nil
	}
	since := s.Move.Status.Steps[at].Time.Truncate(time.Second) // as precise as times of creation are
	for i := range s.Owner.Pods {
		pod := &s.Owner.Pods[i]
		ready := readySince(pod)
		wasReady := !ready.IsZero() && !ready.After(since) // such as one that a move just before has sent
		if !IsGated(pod) && takesPlace(s.Move, pod) && !pod.CreationTimestamp.Time.Before(since) && !wasReady {
			return pod
		}
	}
	return nil
}

// arrive is for a replacement that is on its way to the destination: nothing stops it but the deadline.
func (s *Observed) arrive(now time.Time) Step {
	switch {
	case isReady(s.Copy) && isActive(s.Copy), s.Copy.Status.Phase == corev1.PodSucceeded:
		return Step{Do: Succeed, Cause: Cause{v1alpha1.ReasonMoved, fmt.Sprintf("Pod %s runs on node %s in the place of the evicted one", s.Copy.Name, s.Copy.Spec.NodeName)}}
	case !isActive(s.Copy):
		return Step{Do: Abort, Cause: Cause{v1alpha1.ReasonCopyLost, fmt.Sprintf("Pod %s has ended before it was Ready", s.Copy.Name)}}
	case s.left(now) <= 0:
		return Step{Do: Abort, Cause: s.tooLate()}
	default:
		return Step{Do: Wait, After: s.left(now), Cause: Cause{v1alpha1.ReasonMoving, fmt.Sprintf("Waiting for %s to be Ready", s.Copy.Name)}}
	}
}

// freeReplacement undoes Steer: the owner makes another pod in the place of one that cannot start. An original that was evicted is gone.
func (s *Observed) freeReplacement() Step {
	if s.HandedOver() && isActive(s.Copy) && !isReady(s.Copy) && s.Move.Spec.OnFailure != v1alpha1.OnFailureLeave {
		return Step{Do: EvictCopy}
	}
	return Step{Do: Fail}
}

// gatedFor is for how long new pods of the owner get the gate.
func (s *Observed) gatedFor(now time.Time) time.Duration {
	if s.Move.Status.GateUntil == nil {
		return 0
	}
	return s.Move.Status.GateUntil.Sub(now)
}
