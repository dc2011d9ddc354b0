// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/fault"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/unread"
)

const (
	// reasonRemadeTooOften: the back-offs are used up.
	reasonRemadeTooOften = "RemadeTooOften"

	// refusedFor is for how long an API server may refuse the pod before that is final. Quotas become free, and new
	// rights take a moment to be known.
	refusedFor     = time.Minute
	refusedAtLeast = 500 * time.Millisecond
	refusedAtMost  = 15 * time.Second
	// quotaRetryAtMost is for how long the pod waits for the next try that a quota does not take.
	quotaRetryAtMost = 30 * time.Second
	// policyRetryAtMost is for how long the pod waits for the next question that the policies did not answer.
	policyRetryAtMost = 30 * time.Second
	// endKept is for how long the record of an end waits for home to have read it: longer than a cut and both sides'
	// restarts take, and no longer than somebody waits who deletes a namespace. Home may be gone for good, or of a
	// version that does not say when it has.
	endKept = 2 * time.Minute

	// writePeriod is how often the status of one ShadowPod is written over time, and writeBurst what may come at once: a
	// pod on its way up changes a few times in a row.
	writePeriod = time.Second
	writeBurst  = 3
)

// record writes the status, if it changed, and returns when to look again. A status that changes all the time is written
// now and then, and what cannot be seen again later at once. A conflict means that our copy is old: the newer one is on its
// way to us.
func (r *shadowPodReconciler) record(ctx context.Context, seen *observation, next *decision) (time.Duration, error) {
	shadow := seen.shadow
	if equality.Semantic.DeepEqual(shadow.Status, next.status) {
		return next.again, nil
	}
	note := r.noteOf(shadow)
	if wait, written := r.untilRecord(seen, next, note); !written || wait > 0 {
		return sooner(next.again, wait), nil
	}
	note.wrote(seen.now)
	if !equality.Semantic.DeepEqual(shadow.Status.Events, next.status.Events) {
		note.pace.wrote(seen.now)
	}
	fault.Point(fault.BeforeRecord)
	began := r.config.Clock.Now()
	err := r.client.Status().Update(unread.Answer(ctx), statusOf(shadow, next.status))
	if err == nil {
		r.traceStatus(ctx, seen, &next.status, began)
	}
	if err = local.IgnoreStale(err); err != nil {
		return 0, fmt.Errorf("write the status: %w", err)
	}
	fault.Point(fault.Recorded)
	return next.again, nil
}

// untilRecord returns how long the status has to wait to be written, and whether it is written at all for what is new.
func (r *shadowPodReconciler) untilRecord(seen *observation, next *decision, note *note) (time.Duration, bool) {
	events := onlyEvents(&seen.shadow.Status, &next.status)
	if events {
		wait, written := note.pace.untilEvents(seen.shadow.Status.Events, next.status.Events, seen.now)
		if !written || wait > 0 {
			return wait, written
		}
	}
	if wait := note.untilWrite(seen.now); wait > 0 && !next.lasting(seen) {
		return wait, true
	}
	if events {
		return note.pace.untilTurn(r.events.budgets, seen.peer, seen.now), true
	}
	return 0, true
}

// note is what the process remembers of a ShadowPod to spare itself work. Nothing is decided by it that would be decided
// otherwise without it. Only the reconciliation of the ShadowPod uses it.
type note struct {
	carried carried
	paid    time.Time // until when the writes of the status count
	pace    eventPace
}

// carried is the generation of a ShadowPod that the pod was made from or changed to.
type carried struct {
	pod        types.UID
	generation int64
}

func (r *shadowPodReconciler) noteOf(shadow *v1alpha1.ShadowPod) *note {
	found, _ := r.notes.LoadOrStore(client.ObjectKeyFromObject(shadow), &note{})
	return found.(*note) //nolint:forcetypeassert // nothing else is stored there
}

// untilWrite is how long the next write of the status has to wait.
func (n *note) untilWrite(now time.Time) time.Duration {
	return max(n.paid.Add(-(writeBurst-1)*writePeriod).Sub(now), 0)
}

// wrote counts a write.
func (n *note) wrote(now time.Time) {
	if n.paid.Before(now) {
		n.paid = now
	}
	n.paid = n.paid.Add(writePeriod)
}

// sooner returns the shorter of two waits, of which none is 0.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// statusOf returns what writes the status of that very ShadowPod as it was read: the API server looks at nothing else of it.
func statusOf(shadow *v1alpha1.ShadowPod, status v1alpha1.ShadowPodStatus) *v1alpha1.ShadowPod {
	return &v1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: shadow.Namespace, Name: shadow.Name, UID: shadow.UID, ResourceVersion: shadow.ResourceVersion,
		},
		Status: status,
	}
}

// onlyEvents says whether nothing but events is new.
func onlyEvents(recorded, next *v1alpha1.ShadowPodStatus) bool {
	before, after := *recorded, *next
	before.Events, after.Events = nil, nil
	return equality.Semantic.DeepEqual(before, after)
}

// lasting says whether the decision is about more than how the pod is just now. There are few of those.
func (d *decision) lasting(s *observation) bool {
	before := &s.shadow.Status
	return offload.Terminal(d.status.Phase) || d.unrecoverable() || d.status.PodUID != before.PodUID ||
		remaking(&d.status) != remaking(before)
}

// remaking says whether the record is of a pod that went.
func remaking(status *v1alpha1.ShadowPodStatus) bool {
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	return c != nil && c.Reason == offload.ReasonRemaking
}

// tell puts the status of the pod on record.
func (d *decision) tell(s *observation, status corev1.PodStatus) {
	d.adopt(s)
	d.put(&status)
	d.status.ObservedGeneration = s.shadow.Generation
	d.place(s, &status)
	if offload.Terminal(d.status.Phase) && !offload.Terminal(s.shadow.Status.Phase) {
		d.dateEnd(s)
	}
	d.mirror(s, &status, corev1.PodReady, v1alpha1.ConditionReady)
	d.sentOn(s)
	if left := offload.LeftOut(s.pod); left != "" {
		d.since(s.now, s, v1alpha1.ConditionMetadata, v1alpha1.ReasonMetadataLeftOut, left)
	} else {
		meta.RemoveStatusCondition(&d.status.Conditions, v1alpha1.ConditionMetadata)
	}
}

// dateEnd has the condition Ready say when the end was put on record. A pod that was not ready before has an older one, and
// some have none.
func (d *decision) dateEnd(s *observation) {
	meta.RemoveStatusCondition(&d.status.Conditions, v1alpha1.ConditionReady)
	d.condition(s, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: d.status.Phase})
}

// place tells whether the scheduler has found a node, and if not, why, and since when that has been so.
func (d *decision) place(s *observation, status *corev1.PodStatus) {
	switch stuck := unschedulable(s.pod); {
	case stuck == nil:
		d.mirror(s, status, corev1.PodScheduled, v1alpha1.ConditionScheduled)
	case !s.scalingUp.IsZero():
		d.since(s.scalingUp, s, v1alpha1.ConditionScheduled, v1alpha1.ReasonScalingUp, because(scalingUp, stuck))
	default:
		d.since(stuck.LastTransitionTime.Time, s, v1alpha1.ConditionScheduled, v1alpha1.ReasonNoRoom, because(noRoom, stuck))
	}
}

// interrupt records that the pod is going and the next will come: of what was known only its readiness changes.
func (d *decision) interrupt(s *observation) {
	d.adopt(s)
	known := offload.RecordedPod(&d.status)
	if known == nil {
		if s.pod == nil {
			return
		}
		exported := offload.Export(s.pod)
		known = &exported
	}
	status := offload.Interrupted(known, offload.ReasonRemaking)
	if !everStarted(&status) {
		status.Phase = corev1.PodPending
	}
	d.put(&status)
	d.since(s.now, s, v1alpha1.ConditionReady, offload.ReasonRemaking, "The pod went and will be made again")
}

// adopt begins the record of the pod that runs now. What is known of an earlier one is added up.
func (d *decision) adopt(s *observation) {
	if s.pod == nil || d.status.PodUID == s.pod.UID {
		return
	}
	if d.status.PodUID != "" {
		if lived(&d.status, interruptedAt(&d.status)) >= longLife {
			d.status.RecreationsInARow = 0
		}
		d.status.RecreationsInARow++
		d.status.Recreations++
		if known := offload.RecordedPod(&d.status); known != nil {
			d.status.Restarts = offload.AddRestarts(d.status.Restarts, known)
		}
	}
	d.status.PodUID = s.pod.UID
	d.status.Pod = nil
	// The next interruption is a new one.
	meta.RemoveStatusCondition(&d.status.Conditions, v1alpha1.ConditionReady)
}

// put stores the pod's status, and keeps the bytes that are there if they say the same. Nothing goes back by that: not the
// phase, when the pod was made again or is seen in an old copy, and no count of restarts.
func (d *decision) put(status *corev1.PodStatus) {
	if d.status.Phase == string(corev1.PodRunning) && status.Phase == corev1.PodPending {
		status.Phase = corev1.PodRunning
	}
	d.status.Phase = string(status.Phase)
	if known := offload.RecordedPod(&d.status); known != nil {
		before := map[string]int32{}
		for _, container := range offload.ContainerStatuses(known) {
			before[container.Name] = container.RestartCount
		}
		for _, container := range offload.ContainerStatuses(status) {
			container.RestartCount = max(container.RestartCount, before[container.Name])
		}
		if equality.Semantic.DeepEqual(known, status) {
			return
		}
	}
	offload.RecordPod(&d.status, status)
}

// everStarted says whether a container of the pod has run: one that a kubelet refused has not.
func everStarted(status *corev1.PodStatus) bool {
	return slices.ContainsFunc(offload.ContainerStatuses(status), offload.Started)
}

// mirror shows a condition of the pod as one of the record.
func (d *decision) mirror(s *observation, status *corev1.PodStatus, from corev1.PodConditionType, to string) {
	if c := offload.PodCondition(status, from); c != nil {
		d.condition(s, metav1.Condition{Type: to, Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message})
	}
}

// condition puts a condition on record, of this moment unless it has a time.
func (d *decision) condition(s *observation, c metav1.Condition) {
	c.ObservedGeneration = s.shadow.Generation
	if c.LastTransitionTime.IsZero() {
		c.LastTransitionTime = metav1.NewTime(s.now)
	}
	offload.SetCondition(&d.status, c)
}

// since sets a condition to False for a reason, and its time unless it had the reason already.
func (d *decision) since(at time.Time, s *observation, kind, reason, message string) {
	had := meta.FindStatusCondition(d.status.Conditions, kind)
	if had != nil && (had.Reason != reason || had.Status != metav1.ConditionFalse) {
		meta.RemoveStatusCondition(&d.status.Conditions, kind)
	}
	d.condition(s, metav1.Condition{
		Type: kind, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(at), Reason: reason, Message: message,
	})
}

// giveUp says that the pod can no longer be made.
func (d *decision) giveUp(s *observation, reason, message string) {
	d.action, d.again = leavePod, 0
	d.status.ObservedGeneration = s.shadow.Generation
	d.condition(s, metav1.Condition{
		Type: v1alpha1.ConditionUnrecoverable, Status: metav1.ConditionTrue, Reason: reason, Message: message,
	})
}

// nameTaken says that another pod has the name. It is looked at again, since nothing tells us when that pod goes.
func (d *decision) nameTaken(s *observation) {
	d.since(s.now, s, v1alpha1.ConditionScheduled, v1alpha1.ReasonPodNameTaken,
		"A pod of this name exists in the twin namespace and was not made for this ShadowPod")
	d.again = lookAgain
}

// retry says why there is no pod now, and looks again. It returns for how long that has been so.
func (d *decision) retry(s *observation, reason, message string, atMost time.Duration) time.Duration {
	d.since(s.now, s, v1alpha1.ConditionScheduled, reason, message)
	waited := d.waited(s)
	// As long again as it has been so already: the waits double.
	d.again = min(max(waited, refusedAtLeast), atMost)
	return waited
}

// wait says why there is no pod. It is looked at again when that changes.
func (d *decision) wait(s *observation, reason, message string) {
	d.again = 0
	d.since(s.now, s, v1alpha1.ConditionScheduled, reason, message)
}

// waitAWhile does the same for what may not last, and gives up when it does.
func (d *decision) waitAWhile(s *observation, reason, message string) {
	d.wait(s, reason, message)
	if d.again = refusedFor - d.waited(s); d.again <= 0 {
		d.giveUp(s, reason, message)
	}
}

// waited is for how long there has been no pod for the reason that is on record.
func (d *decision) waited(s *observation) time.Duration {
	c := meta.FindStatusCondition(d.status.Conditions, v1alpha1.ConditionScheduled)
	return s.now.Sub(c.LastTransitionTime.Time)
}

func (d *decision) unrecoverable() bool {
	return meta.IsStatusConditionTrue(d.status.Conditions, v1alpha1.ConditionUnrecoverable)
}

// interruptedAt returns when the record says that the pod went, or ended.
func interruptedAt(status *v1alpha1.ShadowPodStatus) time.Time {
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); c != nil {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// lived returns for how long the pod on record had run.
func lived(status *v1alpha1.ShadowPodStatus, until time.Time) time.Duration {
	known := offload.RecordedPod(status)
	if known == nil || known.StartTime == nil {
		return 0
	}
	return until.Sub(known.StartTime.Time)
}
