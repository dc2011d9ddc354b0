package offload

import (
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

func copyContainers(in []corev1.ContainerStatus, scrub func(string) string) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for i := range in {
		out = append(out, copyContainer(&in[i], scrub))
	}
	return out
}

// copyContainer is the allow-list of what is told of a container, bounded.
func copyContainer(in *corev1.ContainerStatus, scrub func(string) string) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name:                 in.Name,
		State:                copyState(&in.State, scrub),
		LastTerminationState: copyState(&in.LastTerminationState, scrub),
		Ready:                in.Ready,
		RestartCount:         in.RestartCount,
		Image:                bounded(in.Image, maxReference),
		ImageID:              bounded(in.ImageID, maxReference),
		ContainerID:          bounded(in.ContainerID, maxReference),
		Started:              in.Started,
		AllocatedResources:   copyResourceList(in.AllocatedResources),
		Resources:            copyResources(in.Resources),
		VolumeMounts:         copyMounts(in.VolumeMounts),
		User:                 copyUser(in.User),
		StopSignal:           copyWord(in.StopSignal),
	}
}

func copyState(in *corev1.ContainerState, scrub func(string) string) corev1.ContainerState {
	switch {
	case in.Terminated != nil:
		t := in.Terminated
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode:    t.ExitCode,
			Signal:      t.Signal,
			Reason:      bounded(t.Reason, maxWord),
			Message:     bounded(scrub(t.Message), maxTermination),
			StartedAt:   t.StartedAt,
			FinishedAt:  t.FinishedAt,
			ContainerID: bounded(t.ContainerID, maxReference),
		}}
	case in.Running != nil:
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: in.Running.StartedAt}}
	case in.Waiting != nil:
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason:  bounded(in.Waiting.Reason, maxWord),
			Message: bounded(scrub(in.Waiting.Message), maxMessage),
		}}
	}
	return corev1.ContainerState{}
}

const (
	maxResources = 32
	maxMounts    = 256
	maxGroups    = 64
)

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

func copyMounts(in []corev1.VolumeMountStatus) []corev1.VolumeMountStatus {
	var out []corev1.VolumeMountStatus
	for i := range in[:min(len(in), maxMounts)] {
		out = append(out, corev1.VolumeMountStatus{
			Name:              bounded(in[i].Name, maxWord),
			MountPath:         bounded(in[i].MountPath, maxReference),
			ReadOnly:          in[i].ReadOnly,
			RecursiveReadOnly: copyWord(in[i].RecursiveReadOnly),
		})
	}
	return out
}

// copyUser leaves out what the API server of the home pod would refuse.
func copyUser(in *corev1.ContainerUser) *corev1.ContainerUser {
	if in == nil || in.Linux == nil {
		return nil
	}
	user := in.Linux
	if user.UID < 0 || user.UID > math.MaxUint32 || !isGroup(user.GID) || len(user.SupplementalGroups) > maxGroups {
		return nil
	}
	for _, group := range user.SupplementalGroups {
		if !isGroup(group) {
			return nil
		}
	}
	return &corev1.ContainerUser{Linux: user.DeepCopy()}
}

func isGroup(id int64) bool { return len(validation.IsValidGroupID(id)) == 0 }

func copyWord[T ~string](in *T) *T {
	if in == nil {
		return nil
	}
	out := T(bounded(string(*in), maxWord))
	return &out
}
