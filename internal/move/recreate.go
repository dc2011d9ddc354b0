// SPDX-License-Identifier: Apache-2.0

package move

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// MaxRecord is how long the record of a pod may be.
	MaxRecord = 256 << 10
	// RefusedFor is for how long a copy may be refused whose original is gone before the move is rolled back. A quota counts a pod for a
	// moment after it has gone.
	RefusedFor = 10 * time.Second
	// oldNodeWeight is the highest that there is.
	oldNodeWeight = 100
)

// Record returns the pod as it is to be made again, to be kept while there is none.
func Record(original *corev1.Pod) string {
	pod := again(original)
	pod.APIVersion, pod.Kind = "v1", "Pod"
	text, _ := json.Marshal(pod) //nolint:errchkjson // a pod that came as JSON becomes JSON
	return string(text)
}

// Recreated returns the pod of the record, for the destination.
func Recreated(m *v1alpha1.PodMove) (*corev1.Pod, error) {
	pod, err := recorded(m)
	if err != nil {
		return nil, err
	}
	direct(&pod.Spec, m, nodeBefore(m))
	return pod, nil
}

// nodeBefore is the node of the original.
func nodeBefore(m *v1alpha1.PodMove) string {
	if m.Status.Original == nil {
		return ""
	}
	return m.Status.Original.Node
}

// Restored returns the pod of the record, for the node that it ran on, or for another one if that has no room.
func Restored(m *v1alpha1.PodMove) (*corev1.Pod, error) {
	pod, err := recorded(m)
	if err != nil || nodeBefore(m) == "" {
		return pod, err
	}
	preferred := &nodeAffinity(&pod.Spec).PreferredDuringSchedulingIgnoredDuringExecution
	*preferred = append(*preferred, corev1.PreferredSchedulingTerm{
		Weight: oldNodeWeight, Preference: corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{nodeName(corev1.NodeSelectorOpIn, nodeBefore(m))}},
	})
	return pod, nil
}

func recorded(m *v1alpha1.PodMove) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := json.Unmarshal([]byte(m.Status.Record), pod); err != nil {
		return nil, fmt.Errorf("read status.record: %w", err)
	}
	belong(pod, m)
	return pod, nil
}

// Recognise says what the pod with the name of the copy is: the copy, or, with DeleteFirst, the original made again or somebody else's.
func (s *Observed) Recognise(pod *corev1.Pod) {
	noted := s.Move.Status.Copy
	isNoted := noted != nil && noted.UID == pod.UID
	switch {
	case s.Move.Status.Method != v1alpha1.MoveDeleteFirst:
		if isNoted || s.made(pod) {
			s.Copy = pod
		}
	case pod.UID == s.Move.Spec.Pod.UID: // the original
	case isNoted, s.made(pod) && s.Move.Status.Phase != v1alpha1.MoveRollingBack: // the copy is noted before it is rolled back
		s.Copy = pod
	default:
		s.Namesake = pod
	}
}

// made says whether the pod was made for this move.
func (s *Observed) made(pod *corev1.Pod) bool {
	return pod.Annotations[v1alpha1.AnnotationMove] == string(s.Move.UID)
}

// recreate is for a move whose original is evicted, and then made again.
func (s *Observed) recreate(now time.Time) Step {
	pod := s.Move.Spec.Pod.Name
	if s.HandedOver() && s.hasStarted() {
		if s.made(s.Copy) {
			return Step{Do: Settle}
		}
		return Step{Do: Succeed, Cause: Cause{v1alpha1.ReasonMoved, fmt.Sprintf("Pod %s was made again, and runs on node %s", pod, s.Copy.Spec.NodeName)}}
	}
	if cause := s.troubleOfRecreation(now); cause != nil {
		return Step{Do: Abort, Cause: *cause}
	}
	switch {
	case isThere(s.Original) && Record(s.Original) != s.Move.Status.Record:
		return Step{Do: Note}
	case isThere(s.Original):
		return Step{Do: Evict}
	case s.Original != nil:
		return Step{Do: Wait, After: s.left(now), Cause: Cause{v1alpha1.ReasonMoving, fmt.Sprintf("Waiting for pod %s to be gone%s", pod, heldBy(s.Original))}}
	case s.Copy == nil:
		return Step{Do: Recreate}
	case !s.HandedOver():
		return Step{Do: HandOver, Cause: Cause{v1alpha1.ReasonMoving, fmt.Sprintf("Pod %s was made again", pod)}}
	default:
		return Step{Do: Wait, After: s.left(now), Cause: Cause{v1alpha1.ReasonMoving, fmt.Sprintf("Waiting for pod %s, which was made again, to be Ready", pod)}}
	}
}

// hasStarted says whether the copy does what it is there for, or has done it.
func (s *Observed) hasStarted() bool {
	return isReady(s.Copy) && isActive(s.Copy) || s.Copy.Status.Phase == corev1.PodSucceeded && s.Copy.DeletionTimestamp == nil
}

// troubleOfRecreation says why the move cannot go on, as long as the copy has not started. That the original is gone is none: who has
// deleted it cannot be told, since a manager may have died right after it did.
func (s *Observed) troubleOfRecreation(now time.Time) *Cause {
	if cause := s.stopped(); cause != nil {
		return cause
	}
	pod := s.Move.Spec.Pod.Name
	switch {
	case s.Namesake != nil:
		return &Cause{v1alpha1.ReasonNameTaken, fmt.Sprintf("Somebody else has created a pod %s when the original was gone", pod)}
	case s.hasEnded():
		return &Cause{v1alpha1.ReasonOriginalLost, fmt.Sprintf("Pod %s has ended before it was evicted", pod)}
	case s.left(now) <= 0 && s.Copy != nil:
		late := s.tooLate()
		return &late
	case s.left(now) <= 0:
		return &Cause{v1alpha1.ReasonDeadlineExceeded, s.lastWords()}
	default:
		return nil
	}
}

// hasEnded says whether the original is over though nobody has deleted it.
func (s *Observed) hasEnded() bool {
	return s.Original != nil && s.Original.DeletionTimestamp == nil && !isActive(s.Original)
}

// restore undoes an eviction: the original is made again, where there is no pod of its name.
func (s *Observed) restore() Step {
	wait := Step{Do: Wait}
	switch {
	case isThere(s.Original), s.hasEnded():
		return Step{Do: Fail}
	case s.Original != nil:
		return wait
	case s.Namesake != nil && s.made(s.Namesake):
		return Step{Do: Settle}
	case s.Namesake != nil:
		return Step{Do: Fail}
	case s.Copy == nil:
		return Step{Do: Restore}
	case s.Copy.DeletionTimestamp != nil:
		return wait
	case s.hasStarted(), s.Move.Spec.OnFailure == v1alpha1.OnFailureLeave:
		if s.made(s.Copy) {
			return Step{Do: Settle}
		}
		return Step{Do: Fail}
	default:
		return Step{Do: DeleteCopy}
	}
}

// RefusedSince returns when the API server has refused the copy first, or zero.
func RefusedSince(m *v1alpha1.PodMove) metav1.Time {
	for _, step := range m.Status.Steps {
		if step.Action == v1alpha1.MoveCopyRefused {
			return step.Time
		}
	}
	return metav1.Time{}
}
