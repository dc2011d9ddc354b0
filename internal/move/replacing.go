// SPDX-License-Identifier: Apache-2.0

package move

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// BusyStatefulSet says why no pod would be made in the place of the named one, or another one than that was, or returns "". The pod
// is nil if it is gone.
func BusyStatefulSet(set *appsv1.StatefulSet, name string, pod *corev1.Pod) string {
	first, replicas := int64(0), int64(ptr.Deref(set.Spec.Replicas, 1))
	if set.Spec.Ordinals != nil {
		first = int64(set.Spec.Ordinals.Start)
	}
	ordinal, err := strconv.ParseInt(name[strings.LastIndex(name, "-")+1:], 10, 32)
	if err != nil || ordinal < first || ordinal >= first+replicas {
		return fmt.Sprintf("StatefulSet %s is to have no pod %s", set.Name, name)
	}
	next := set.Status.UpdateRevision
	if update := set.Spec.UpdateStrategy.RollingUpdate; update != nil && update.Partition != nil && ordinal < int64(*update.Partition) {
		next = set.Status.CurrentRevision
	}
	if pod != nil && next != "" && pod.Labels[appsv1.ControllerRevisionHashLabelKey] != next {
		return fmt.Sprintf("StatefulSet %s has a newer revision, with which it would make the pod in the place of %s", set.Name, name)
	}
	return ""
}

// BusyJob says why the Job makes no pods any more, or returns "".
func BusyJob(job *batchv1.Job) string {
	if ptr.Deref(job.Spec.Suspend, false) {
		return fmt.Sprintf("Job %s is suspended", job.Name)
	}
	isOver := slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed || c.Type == batchv1.JobFailureTarget || c.Type == batchv1.JobSuccessCriteriaMet)
	})
	if isOver {
		return fmt.Sprintf("Job %s is over", job.Name)
	}
	return ""
}

// UnforgivingJob says why the Job would fail if its pod, nil if that is gone, were evicted, or returns "".
func UnforgivingJob(job *batchv1.Job, pod *corev1.Pod) string {
	if policy := job.Spec.PodFailurePolicy; policy != nil {
		for i := range policy.Rules { // the first that matches counts, and of an evicted pod that is its DisruptionTarget
			disrupted := slices.ContainsFunc(policy.Rules[i].OnPodConditions, func(c batchv1.PodFailurePolicyOnPodConditionsPattern) bool {
				return c.Type == corev1.DisruptionTarget && c.Status != corev1.ConditionFalse
			})
			switch {
			case disrupted && policy.Rules[i].Action == batchv1.PodFailurePolicyActionIgnore:
				return ""
			case disrupted && policy.Rules[i].Action != batchv1.PodFailurePolicyActionCount:
				return fmt.Sprintf("Job %s gives up when a pod is evicted (podFailurePolicy)", job.Name)
			}
		}
	}
	limit, failed := ptr.Deref(job.Spec.BackoffLimit, 6), job.Status.Failed
	if job.Spec.BackoffLimitPerIndex != nil && pod != nil {
		count, _ := strconv.ParseInt(pod.Annotations[batchv1.JobIndexFailureCountAnnotation], 10, 32)
		limit, failed = *job.Spec.BackoffLimitPerIndex, int32(count)
	}
	if failed >= limit {
		return fmt.Sprintf("Job %s counts an evicted pod as failed, and has no retry left (backoffLimit)", job.Name)
	}
	return ""
}
