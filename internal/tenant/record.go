package tenant

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

const (
	// reasonRemaking: the pod went, not by its own doing, and the next is about to be made.
	reasonRemaking = "Remaking"
	// reasonRemadeTooOften: the back-offs are used up.
	reasonRemadeTooOften = "RemadeTooOften"

	maxMessage = 1024
	// refusedFor is for how long an API server may refuse the pod before that is final. Quotas become free, and new
	// rights take a moment to be known.
	refusedFor     = time.Minute
	refusedAtLeast = 500 * time.Millisecond
	refusedAtMost  = 15 * time.Second
	// quotaRetryAtMost is for how long the pod waits for the next try that a quota does not take.
	quotaRetryAtMost = 30 * time.Second
	// policyRetryAtMost is for how long the pod waits for the next question that the policies did not answer.
	policyRetryAtMost = 30 * time.Second
)

// record writes the status, if it changed. A conflict means that our copy is old: the newer one is on its way to us.
func (k *keeper) record(ctx context.Context, shadow *v1alpha1.ShadowPod, status v1alpha1.ShadowPodStatus) error {
	if equality.Semantic.DeepEqual(shadow.Status, status) {
		return nil
	}
	before := shadow.DeepCopy()
	shadow.Status = status
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := ignoreStale(k.client.Status().Patch(ctx, shadow, patch)); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}

// tell puts the status of the pod on record.
func (d *decision) tell(s *scene, status corev1.PodStatus) {
	d.adopt(s)
	d.put(&status)
	d.status.ObservedGeneration = s.shadow.Generation
	d.mirror(s, &status, corev1.PodScheduled, v1alpha1.ConditionScheduled)
	d.mirror(s, &status, corev1.PodReady, v1alpha1.ConditionReady)
}

// interrupt records that the pod is going and the next will come: of what was known only its readiness changes.
func (d *decision) interrupt(s *scene) {
	d.adopt(s)
	known := recordedPod(&d.status)
	if known == nil {
		if s.pod == nil {
			return
		}
		exported := offload.Export(s.pod)
		known = &exported
	}
	status := offload.Interrupted(known, reasonRemaking)
	d.put(&status)
	d.restart(s, v1alpha1.ConditionReady, reasonRemaking, "The pod went and will be made again")
}

// adopt begins the record of the pod that runs now. What is known of an earlier one is added up.
func (d *decision) adopt(s *scene) {
	if s.pod == nil || d.status.PodUID == s.pod.UID {
		return
	}
	if d.status.PodUID != "" {
		d.status.Recreations++
		d.addRestarts()
	}
	d.status.PodUID = s.pod.UID
	d.status.Pod = nil
	// The next interruption is a new one.
	meta.RemoveStatusCondition(&d.status.Conditions, v1alpha1.ConditionReady)
}

func (d *decision) addRestarts() {
	known := recordedPod(&d.status)
	if known == nil {
		return
	}
	for _, containers := range [][]corev1.ContainerStatus{known.InitContainerStatuses, known.ContainerStatuses} {
		for i := range containers {
			if containers[i].RestartCount == 0 {
				continue
			}
			if d.status.Restarts == nil {
				d.status.Restarts = map[string]int32{}
			}
			d.status.Restarts[containers[i].Name] += containers[i].RestartCount
		}
	}
}

// put stores the pod's status, and keeps the bytes that are there if they say the same.
func (d *decision) put(status *corev1.PodStatus) {
	d.status.Phase = string(status.Phase)
	if known := recordedPod(&d.status); known != nil && equality.Semantic.DeepEqual(known, status) {
		return
	}
	raw, err := json.Marshal(status)
	if err != nil {
		// Nothing in a status that came from an API server cannot be encoded.
		return
	}
	d.status.Pod = &runtime.RawExtension{Raw: raw}
}

// recordedPod returns the status of the pod that is on record, and nil if there is none.
func recordedPod(status *v1alpha1.ShadowPodStatus) *corev1.PodStatus {
	if status.Pod == nil {
		return nil
	}
	known := &corev1.PodStatus{}
	if err := json.Unmarshal(status.Pod.Raw, known); err != nil {
		return nil
	}
	return known
}

// mirror shows a condition of the pod as one of the record.
func (d *decision) mirror(s *scene, status *corev1.PodStatus, from corev1.PodConditionType, to string) {
	for i := range status.Conditions {
		c := &status.Conditions[i]
		if c.Type == from {
			d.condition(s, to, metav1.ConditionStatus(c.Status), reasonOr(c.Reason, to), c.Message)
		}
	}
}

var validReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// reasonOr returns the reason if it is one: those of pods may be empty.
func reasonOr(reason, fallback string) string {
	if validReason.MatchString(reason) {
		return reason
	}
	return fallback
}

func (d *decision) condition(s *scene, kind string, status metav1.ConditionStatus, reason, message string) {
	if len(message) > maxMessage {
		message = message[:maxMessage]
	}
	meta.SetStatusCondition(&d.status.Conditions, metav1.Condition{
		Type:               kind,
		Status:             status,
		ObservedGeneration: s.shadow.Generation,
		LastTransitionTime: metav1.NewTime(s.now),
		Reason:             reason,
		Message:            message,
	})
}

// restart sets a condition to False for a reason, and its time to now unless it had the reason already.
func (d *decision) restart(s *scene, kind, reason, message string) {
	if had := meta.FindStatusCondition(d.status.Conditions, kind); had != nil && had.Reason == reason {
		return
	}
	meta.RemoveStatusCondition(&d.status.Conditions, kind)
	d.condition(s, kind, metav1.ConditionFalse, reason, message)
}

// giveUp says that the pod can no longer be made.
func (d *decision) giveUp(s *scene, reason, message string) {
	d.action, d.again = leavePod, 0
	d.status.ObservedGeneration = s.shadow.Generation
	d.condition(s, v1alpha1.ConditionUnrecoverable, metav1.ConditionTrue, reason, message)
}

// nameTaken says that another pod has the name. It is looked at again, since nothing tells us when that pod goes.
func (d *decision) nameTaken(s *scene) {
	d.restart(s, v1alpha1.ConditionScheduled, v1alpha1.ReasonPodNameTaken,
		"A pod of this name exists in the twin namespace and was not made for this ShadowPod")
	d.again = lookAgain
}

// refused says that the API server does not take the pod now, and gives up when it has not for too long.
func (d *decision) refused(s *scene, message string) {
	if d.retry(s, v1alpha1.ReasonPodRefused, message, refusedAtMost) >= refusedFor {
		d.giveUp(s, v1alpha1.ReasonPodRefused, message)
	}
}

// turnedAway says that the policies do not let the pod in, and gives up when they have not for too long. They are asked
// again when they change, and before that.
func (d *decision) turnedAway(s *scene, reason string) {
	message := "The provider's policies refuse the pod"
	if reason != "" {
		message += ": " + reason
	}
	d.restart(s, v1alpha1.ConditionScheduled, v1alpha1.ReasonRefusedByPolicy, message)
	d.wait(s, v1alpha1.ReasonRefusedByPolicy, message)
	since := meta.FindStatusCondition(d.status.Conditions, v1alpha1.ConditionScheduled).LastTransitionTime
	if d.again = refusedFor - s.now.Sub(since.Time); d.again <= 0 {
		d.giveUp(s, v1alpha1.ReasonRefusedByPolicy, message)
	}
}

// postpone leaves a change at home to be carried over later.
func (d *decision) postpone(s *scene) {
	d.status.ObservedGeneration = s.shadow.Status.ObservedGeneration
	if d.again == 0 {
		d.again = policyRetryAtMost
	}
}

// retry says why there is no pod now, and looks again. It returns for how long that has been so.
func (d *decision) retry(s *scene, reason, message string, atMost time.Duration) time.Duration {
	d.restart(s, v1alpha1.ConditionScheduled, reason, message)
	since := meta.FindStatusCondition(d.status.Conditions, v1alpha1.ConditionScheduled).LastTransitionTime
	waited := s.now.Sub(since.Time)
	// As long again as it has been so already: the waits double.
	d.again = min(max(waited, refusedAtLeast), atMost)
	return waited
}

// wait says why there is no pod. It is looked at again when that changes.
func (d *decision) wait(s *scene, reason, message string) {
	d.again = 0
	d.condition(s, v1alpha1.ConditionScheduled, metav1.ConditionFalse, reason, message)
}

func (d *decision) unrecoverable() bool {
	return meta.IsStatusConditionTrue(d.status.Conditions, v1alpha1.ConditionUnrecoverable)
}

// interruptedAt returns when the record says that the pod went.
func interruptedAt(status *v1alpha1.ShadowPodStatus) time.Time {
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); c != nil {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// lived returns for how long the pod on record had run.
func lived(status *v1alpha1.ShadowPodStatus, until time.Time) time.Duration {
	known := recordedPod(status)
	if known == nil || known.StartTime == nil {
		return 0
	}
	return until.Sub(known.StartTime.Time)
}
