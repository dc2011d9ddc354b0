// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// safeMessages replace messages that reveal the number or the load of the provider's nodes: reason of the condition → message.
var safeMessages = map[string]string{
	corev1.PodReasonUnschedulable: "The provider has no node with room for the pod",
	corev1.PodReasonDeferred:      "The provider has no room for the new size at the moment",
	corev1.PodReasonInfeasible:    "The provider cannot give the pod the new size where it runs",
}

// conditions are those of a pod that a consumer sees. Some come to the pod at home, because a kubelet would set them; all
// others have other writers there.
var conditions = []struct {
	kind        corev1.PodConditionType
	withMessage bool // the consumer sees what it says
	comesHome   bool
	passes      bool // it is gone when it no longer holds
}{
	{corev1.PodScheduled, false, false, false},
	{corev1.DisruptionTarget, false, false, false},
	{corev1.PodReadyToStartContainers, true, true, false},
	{corev1.PodInitialized, true, true, false},
	{corev1.ContainersReady, true, true, false},
	{corev1.PodReady, true, true, false},
	{corev1.PodResizePending, false, true, true},
	{corev1.PodResizeInProgress, false, true, true},
}

// Export returns what a provider shows of the pod's status to the consumer: no names, addresses or number of nodes,
// everything bounded.
func Export(pod *corev1.Pod) corev1.PodStatus {
	out := *pod.Status.DeepCopy()
	scrub, say := scrubber(pod), speaker(pod)
	out.ObservedGeneration, out.Message = 0, say(out.Message)
	out.Conditions = nil
	for _, known := range conditions {
		if has := PodCondition(&pod.Status, known.kind); has != nil {
			c := *has
			c.ObservedGeneration, c.Message = 0, say(c.Message)
			if !known.withMessage {
				c.Message = safeMessages[c.Reason]
			}
			out.Conditions = append(out.Conditions, c)
		}
	}
	for _, container := range ContainerStatuses(&out) {
		for _, state := range []*corev1.ContainerState{&container.State, &container.LastTerminationState} {
			if state.Waiting != nil {
				state.Waiting.Message = say(state.Waiting.Message)
			}
			if ended := state.Terminated; ended != nil && slices.Contains(ownEnds, ended.Reason) {
				ended.Message = scrub(ended.Message)
			} else if ended != nil {
				ended.Message = say(ended.Message)
			}
		}
	}
	clean(&out)
	return out
}

// ownEnds are the reasons with which the message of a container that ended is its own last words, which may name whatever
// addresses the container knows.
var ownEnds = []string{"Completed", "Error", eventOOMKilled}

// speaker returns a function that removes from what the provider says of the pod whatever tells of its nodes and network.
func speaker(pod *corev1.Pod) func(string) string {
	scrub := scrubber(pod)
	return func(text string) string { return hideAddresses(pod, scrub(text)) }
}

// scrubber returns a function that removes the name and the addresses of the pod's node from a text.
func scrubber(pod *corev1.Pod) func(string) string {
	secrets := []string{pod.Spec.NodeName, pod.Status.HostIP}
	for _, host := range pod.Status.HostIPs {
		secrets = append(secrets, host.IP)
	}
	var pairs []string
	for _, secret := range secrets {
		if secret != "" {
			pairs = append(pairs, secret, "(node)")
		}
	}
	return strings.NewReplacer(pairs...).Replace
}

var statusRule = ruleFor("status", reflect.TypeFor[corev1.PodStatus]())

// clean takes out of a status what the table does not let through, and bounds the rest.
func clean(status *corev1.PodStatus) {
	for _, container := range ContainerStatuses(status) {
		keepOneState(&container.State)
		keepOneState(&container.LastTerminationState)
		container.VolumeMounts = container.VolumeMounts[:min(len(container.VolumeMounts), maxMounts)]
		if !isUser(container.User) {
			container.User = nil
		}
	}
	statusRule.each(reflect.ValueOf(status), (*fieldLine).clean)
}

// keepOneState keeps the last of the states that a container claims to be in.
func keepOneState(state *corev1.ContainerState) {
	if state.Terminated != nil {
		state.Running = nil
	}
	if state.Terminated != nil || state.Running != nil {
		state.Waiting = nil
	}
}

const (
	maxResources = 32
	maxMounts    = 256
	maxGroups    = 64
)

func (f *fieldLine) clean(value reflect.Value) {
	list, isList := value.Interface().(corev1.ResourceList)
	switch {
	case f.coversAllBelow():
		value.SetZero()
	case isList:
		value.Set(reflect.ValueOf(copyResourceList(list)))
	case value.Kind() == reflect.String:
		value.SetString(bounded(value.String(), textLimit(f.path)))
	}
}

// textLimit returns how many bytes a status may tell in the field.
func textLimit(path string) int {
	switch name := path[strings.LastIndexByte(path, '.')+1:]; {
	case strings.HasSuffix(path, "terminated.message"):
		return maxTermination
	case name == "message", name == "image", name == "imageID", name == "containerID", name == "mountPath":
		return maxMessage
	default:
		return maxWord
	}
}

func copyResourceList(in corev1.ResourceList) corev1.ResourceList {
	var out corev1.ResourceList
	for _, name := range slices.Sorted(maps.Keys(in)) {
		quantity := in[name]
		if len(out) == maxResources || len(validation.IsQualifiedName(string(name))) > 0 || len(quantity.String()) > maxWord {
			continue
		}
		if out == nil {
			out = corev1.ResourceList{}
		}
		out[name] = quantity.DeepCopy()
	}
	return out
}

// isUser refuses what the API server of the home pod would refuse.
func isUser(in *corev1.ContainerUser) bool {
	if in == nil || in.Linux == nil {
		return false
	}
	user := in.Linux
	return user.UID >= 0 && user.UID <= math.MaxUint32 && isGroup(user.GID) && len(user.SupplementalGroups) <= maxGroups &&
		!slices.ContainsFunc(user.SupplementalGroups, func(id int64) bool { return !isGroup(id) })
}

func isGroup(id int64) bool { return len(validation.IsValidGroupID(id)) == 0 }
