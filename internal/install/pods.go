// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RolledOut reports whether all pods of the Deployment are of its newest version, and available.
func RolledOut(d *appsv1.Deployment) bool {
	want, has := ptr.Deref(d.Spec.Replicas, 1), d.Status
	return has.ObservedGeneration >= d.Generation &&
		has.UpdatedReplicas == want && has.Replicas == want && has.AvailableReplicas == want
}

// Troubles says what keeps the Deployment from running, as far as it and its pods tell. It is empty while they start. A
// container that runs counts as one that crashes if it was restarted more than once, and ended after that time.
func Troubles(d *appsv1.Deployment, pods []corev1.Pod, since time.Time) []string {
	var found []string
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			found = append(found, c.Reason+": "+c.Message)
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		selector = labels.Nothing()
	}
	for i := range pods {
		if pods[i].Namespace == d.Namespace && selector.Matches(labels.Set(pods[i].Labels)) {
			found = append(found, troublesOfPod(&pods[i], since)...)
		}
	}
	return found
}

func troublesOfPod(pod *corev1.Pod, since time.Time) []string {
	var found []string
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			found = append(found, fmt.Sprintf("pod %s: %s: %s", pod.Name, c.Reason, c.Message))
		}
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if trouble := troubleOfContainer(&status, since); trouble != "" {
			found = append(found, fmt.Sprintf("pod %s: %s", pod.Name, trouble))
		}
	}
	return found
}

// starting are the reasons for which a container waits on its way to run.
var starting = []string{"ContainerCreating", "PodInitializing"}

func troubleOfContainer(status *corev1.ContainerStatus, since time.Time) string {
	waiting, ended := status.State.Waiting, status.LastTerminationState.Terminated
	if status.State.Terminated != nil && status.State.Terminated.ExitCode != 0 {
		ended = status.State.Terminated
	}
	switch {
	case ended != nil && (waiting != nil || !status.Ready || crashes(status, since)):
		return fmt.Sprintf("it was restarted %d times, and ended last with code %d: %s", status.RestartCount, ended.ExitCode,
			lastLine(ended.Message, ended.Reason))
	case waiting != nil && !slices.Contains(starting, waiting.Reason):
		return waiting.Reason + ": " + waiting.Message
	default:
		return ""
	}
}

func crashes(status *corev1.ContainerStatus, since time.Time) bool {
	return status.RestartCount > 1 && status.LastTerminationState.Terminated.FinishedAt.After(since)
}

// lastLine returns the last line of what a container wrote before it ended, or else the reason.
func lastLine(message, reason string) string {
	lines := strings.Split(strings.TrimSpace(message), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return last
	}
	return reason
}

// troubles reads the pods of the Deployment, and says what keeps it from running.
func (c Cluster) troubles(ctx context.Context, d *appsv1.Deployment) string {
	pods := &corev1.PodList{}
	if err := c.Client.List(ctx, pods, client.InNamespace(d.Namespace)); err != nil {
		return "; its pods cannot be read: " + err.Error()
	}
	found := Troubles(d, pods.Items, time.Time{})
	if len(found) == 0 {
		return ""
	}
	return "; " + strings.Join(found, "; ")
}
