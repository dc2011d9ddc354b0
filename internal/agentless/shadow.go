// SPDX-License-Identifier: Apache-2.0

package agentless

import (
	"maps"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// maxMessage is the bound of messages of pods.
const maxMessage = 1024

// shadowOf returns the ShadowPod that stands for what there is. It lies in the namespace of its home pod, so that pods of
// the same name do not meet, and has no spec.pod: what is not changed need not be read.
func shadowOf(home types.NamespacedName, o observed) *v1alpha1.ShadowPod {
	annotations := maps.Clone(o.owner.GetAnnotations())
	delete(annotations, v1alpha1.AnnotationRecord)
	return &v1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         home.Namespace,
			Name:              home.Name,
			UID:               o.owner.GetUID(),
			ResourceVersion:   strconv.FormatUint(o.version, 10),
			Generation:        o.owner.GetGeneration(),
			CreationTimestamp: o.owner.GetCreationTimestamp(),
			DeletionTimestamp: o.owner.GetDeletionTimestamp(),
			Annotations:       annotations,
		},
		Spec: v1alpha1.ShadowPodSpec{
			HomeUID:                    types.UID(o.owner.GetLabels()[v1alpha1.LabelHomeUID]),
			DeletionGracePeriodSeconds: graceOf(o.owner),
		},
		Status: o.status(),
	}
}

// graceOf returns the grace that home gives the pod, or nil if it has said none.
func graceOf(owner client.Object) *int64 {
	grace, err := strconv.ParseInt(owner.GetAnnotations()[v1alpha1.AnnotationDeletionGrace], 10, 64)
	if err != nil || grace < 0 {
		return nil
	}
	return &grace
}

func (o observed) status() v1alpha1.ShadowPodStatus {
	earlier := o.record()
	status := v1alpha1.ShadowPodStatus{
		ObservedGeneration: o.owner.GetGeneration(),
		Recreations:        earlier.Recreations,
		Restarts:           earlier.Restarts,
	}
	if pod := o.pod(); pod != nil {
		status.PodUID = pod.UID
		status.Events = offload.Happened(pod, earlier.Recreations)
		o.tell(&status, pod)
	} else if o.jobCondition(batchv1.JobComplete) != nil {
		offload.RecordPod(&status, &corev1.PodStatus{Phase: corev1.PodSucceeded}) // somebody took the pod away after it had ended
	}
	o.explain(&status)
	return status
}

// tell enters the status of the pod.
func (o observed) tell(status *v1alpha1.ShadowPodStatus, pod *corev1.Pod) {
	told := offload.Export(pod)
	if o.remade(pod) {
		told = offload.Interrupted(&told, offload.ReasonRemaking)
	}
	offload.RecordPod(status, &told)
	for i := range told.Conditions {
		c := &told.Conditions[i]
		switch {
		case c.Type == corev1.PodReady:
			set(status, v1alpha1.ConditionReady, metav1.ConditionStatus(c.Status), c.Reason, c.Message, c.LastTransitionTime)
		case c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable:
			set(status, v1alpha1.ConditionScheduled, metav1.ConditionFalse, v1alpha1.ReasonNoRoom, c.Message, c.LastTransitionTime)
		case c.Type == corev1.PodScheduled:
			set(status, v1alpha1.ConditionScheduled, metav1.ConditionStatus(c.Status), c.Reason, c.Message, c.LastTransitionTime)
		}
	}
}

// explain says what stands against the pod.
func (o observed) explain(status *v1alpha1.ShadowPodStatus) {
	if c := o.unmade(); c != nil && o.pod() == nil {
		reason := v1alpha1.ReasonPodRefused
		if strings.Contains(c.Message, "exceeded quota") {
			reason = v1alpha1.ReasonNoRoom
		}
		why := sanitize.Text("The peer's API server does not take the pod: "+c.Message, maxMessage)
		set(status, v1alpha1.ConditionScheduled, metav1.ConditionFalse, reason, why, c.LastTransitionTime)
		offload.RecordPod(status, &corev1.PodStatus{Phase: corev1.PodPending, Reason: reason, Message: why})
	}
	if c := o.failed(); c != nil {
		set(status, v1alpha1.ConditionUnrecoverable, metav1.ConditionTrue, c.Reason,
			"The Job that ran the pod at the peer has failed: "+c.Message, c.LastTransitionTime)
	}
	if pod := o.pod(); pod != nil {
		if left := offload.LeftOut(pod); left != "" {
			set(status, v1alpha1.ConditionMetadata, metav1.ConditionFalse, v1alpha1.ReasonMetadataLeftOut, left, pod.CreationTimestamp)
		}
	}
	if o.owner.GetAnnotations()[v1alpha1.AnnotationDebugAsked] != "" {
		set(status, v1alpha1.ConditionDebug, metav1.ConditionFalse, v1alpha1.ReasonDebugForbidden,
			"Containers cannot be added to pods at a cluster without Hanse: use kubectl exec", o.owner.GetCreationTimestamp())
	}
}

//nolint:revive // the fields of a condition
func set(
	status *v1alpha1.ShadowPodStatus, kind string, is metav1.ConditionStatus, reason, message string, since metav1.Time,
) {
	offload.SetCondition(status, metav1.Condition{
		Type: kind, Status: is, ObservedGeneration: status.ObservedGeneration, LastTransitionTime: since, Reason: reason, Message: message,
	})
}
