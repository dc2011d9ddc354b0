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
	corev1.PodReasonUnschedulable: unschedulable,
	corev1.PodReasonDeferred:      "The provider has no room for the new size at the moment",
	corev1.PodReasonInfeasible:    "The provider cannot give the pod the new size where it runs",
}

const unschedulable = "The provider has no node with room for the pod"

// exported are the conditions of a pod that a consumer sees, and those of them whose message it sees.
var exported = map[corev1.PodConditionType]bool{
	corev1.PodScheduled:              false,
	corev1.PodReadyToStartContainers: true,
	corev1.PodInitialized:            true,
	corev1.ContainersReady:           true,
	corev1.PodReady:                  true,
	corev1.DisruptionTarget:          false,
	corev1.PodResizePending:          false,
	corev1.PodResizeInProgress:       false,
}

// Export returns what a provider shows of the pod's status to the consumer: no names, addresses or number of nodes,
// everything bounded.
func Export(pod *corev1.Pod) corev1.PodStatus {
	in := &pod.Status
	scrub := scrubber(pod)
	return corev1.PodStatus{
		Phase:                 in.Phase,
		Conditions:            exportConditions(in.Conditions, scrub),
		Reason:                bounded(in.Reason, maxWord),
		Message:               bounded(scrub(in.Message), maxMessage),
		PodIP:                 in.PodIP,
		PodIPs:                in.PodIPs,
		StartTime:             in.StartTime,
		InitContainerStatuses: copyContainers(in.InitContainerStatuses, scrub),
		ContainerStatuses:     copyContainers(in.ContainerStatuses, scrub),

		EphemeralContainerStatuses: copyContainers(in.EphemeralContainerStatuses, scrub),
		AllocatedResources:         copyResourceList(in.AllocatedResources),
		Resources:                  copyResources(in.Resources),
	}
}

func exportConditions(in []corev1.PodCondition, scrub func(string) string) []corev1.PodCondition {
	var out []corev1.PodCondition
	for i := range in {
		withMessage, ok := exported[in[i].Type]
		if !ok {
			continue
		}
		c := corev1.PodCondition{
			Type:               in[i].Type,
			Status:             in[i].Status,
			LastTransitionTime: in[i].LastTransitionTime,
			Reason:             bounded(in[i].Reason, maxWord),
		}
		c.Message = safeMessages[c.Reason]
		if withMessage {
			c.Message = bounded(scrub(in[i].Message), maxMessage)
		}
		out = append(out, c)
	}
	return out
}

// scrubber returns a function that removes the name and the addresses of the pod's node from a text.
func scrubber(pod *corev1.Pod) func(string) string {
	var pairs []string
	for _, secret := range append([]string{pod.Spec.NodeName, pod.Status.HostIP}, hostIPs(pod)...) {
		if secret != "" {
			pairs = append(pairs, secret, "(node)")
		}
	}
	return strings.NewReplacer(pairs...).Replace
}

func hostIPs(pod *corev1.Pod) []string {
	out := make([]string, 0, len(pod.Status.HostIPs))
	for _, host := range pod.Status.HostIPs {
		out = append(out, host.IP)
	}
	return out
}

func copyContainers(in []corev1.ContainerStatus, scrub func(string) string) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for i := range in {
		out = append(out, copyContainer(&in[i], scrub))
	}
	return out
}

var containerRule = ruleFor("status.containerStatuses[]", reflect.TypeFor[corev1.ContainerStatus]())

// copyContainer returns what the table lets through of what is told of a container, bounded.
func copyContainer(in *corev1.ContainerStatus, scrub func(string) string) corev1.ContainerStatus {
	out := *in.DeepCopy()
	for _, state := range []*corev1.ContainerState{&out.State, &out.LastTerminationState} {
		keepOneState(state)
		if state.Terminated != nil {
			state.Terminated.Message = scrub(state.Terminated.Message)
		}
		if state.Waiting != nil {
			state.Waiting.Message = scrub(state.Waiting.Message)
		}
	}
	out.VolumeMounts = out.VolumeMounts[:min(len(out.VolumeMounts), maxMounts)]
	if !isUser(out.User) {
		out.User = nil
	}
	containerRule.strip(reflect.ValueOf(&out))
	return out
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

// strip takes out the fields of a status that the table does not let through, and bounds the others.
func (r *rule) strip(value reflect.Value) {
	if value.Kind() == reflect.Pointer {
		if value.IsNil() {
			return
		}
		if r.line == nil || !r.line.coversAllBelow() {
			value = value.Elem()
		}
	}
	switch {
	case r.line != nil:
		r.line.strip(value)
	case r.items != nil:
		for i := range value.Len() {
			r.items.strip(value.Index(i))
		}
	}
	for _, field := range r.fields {
		field.rule.strip(value.FieldByIndex(field.index))
	}
}

func (f *fieldLine) strip(value reflect.Value) {
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

// copyResources leaves claims out: they name devices of the provider.
func copyResources(in *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	if in == nil {
		return nil
	}
	return &corev1.ResourceRequirements{Limits: copyResourceList(in.Limits), Requests: copyResourceList(in.Requests)}
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
