package offload

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// ErrOtherPod is returned by Inbound for a record of another pod of the same name.
var ErrOtherPod = errors.New("the ShadowPod is of another pod")

// Inbound returns the status of the home pod from what its provider recorded. The record is a claim: what makes no
// sense is left out, all of it is bounded, only containers of the home pod are told of, and conditions of others
// (PodScheduled, readiness gates) stay. The host's addresses are left as they are. A pod that ended stays ended.
func Inbound(home *corev1.Pod, shadow *v1alpha1.ShadowPod, m AddressMap) (corev1.PodStatus, error) {
	out := *home.Status.DeepCopy()
	if shadow.Spec.HomeUID != home.UID {
		return out, ErrOtherPod
	}
	if terminal(out.Phase) {
		return out, nil
	}
	remote, err := claim(shadow)
	if err != nil {
		return out, err
	}
	if remote != nil {
		take(&out, home, remote, shadow)
		takeAddresses(&out, remote, m)
	}
	if c := meta.FindStatusCondition(shadow.Status.Conditions, v1alpha1.ConditionUnrecoverable); c != nil && c.Status == "True" {
		giveUp(&out, bounded(c.Reason, maxWord), bounded(c.Message, maxMessage))
	}
	return out, nil
}

// claim decodes the status that the provider tells. It returns nil if there is none yet.
func claim(shadow *v1alpha1.ShadowPod) (*corev1.PodStatus, error) {
	if shadow.Status.Pod == nil || len(shadow.Status.Pod.Raw) == 0 {
		return nil, nil
	}
	if n := len(shadow.Status.Pod.Raw); n > v1alpha1.MaxShadowPodBytes {
		return nil, fmt.Errorf("status.pod: %d bytes, at most %d are taken", n, v1alpha1.MaxShadowPodBytes)
	}
	if err := checkExponents(shadow.Status.Pod.Raw); err != nil {
		return nil, fmt.Errorf("status.pod: %s", bounded(err.Error(), maxMessage))
	}
	remote := &corev1.PodStatus{}
	// A newer provider may tell more than we know, so unknown fields are no error.
	if err := json.Unmarshal(shadow.Status.Pod.Raw, remote); err != nil {
		return nil, fmt.Errorf("status.pod: %s", bounded(err.Error(), maxMessage))
	}
	return remote, nil
}

func take(out *corev1.PodStatus, home *corev1.Pod, remote *corev1.PodStatus, shadow *v1alpha1.ShadowPod) {
	ended := mayEnd(home, remote, shadow)
	if !ended && terminal(remote.Phase) {
		interrupted := Interrupted(remote, "Interrupted")
		remote = &interrupted
	}
	if knownPhase(remote.Phase) && !goesBack(out.Phase, remote.Phase) {
		out.Phase = remote.Phase
	}
	out.Reason = bounded(remote.Reason, maxWord)
	out.Message = bounded(remote.Message, maxMessage)
	out.ObservedGeneration = home.Generation
	if out.StartTime == nil && remote.StartTime != nil && !remote.StartTime.IsZero() {
		out.StartTime = remote.StartTime.DeepCopy()
	}
	c := claimant{home: home, restarts: shadow.Status.Restarts}
	out.InitContainerStatuses = c.containers(home.Spec.InitContainers, remote.InitContainerStatuses, out.InitContainerStatuses)
	out.ContainerStatuses = c.containers(home.Spec.Containers, remote.ContainerStatuses, out.ContainerStatuses)
	out.EphemeralContainerStatuses = c.ephemeral(remote.EphemeralContainerStatuses, out.EphemeralContainerStatuses)
	out.AllocatedResources = copyResourceList(remote.AllocatedResources)
	out.Resources = copyResources(remote.Resources)
	takeConditions(out, home, remote)
}

// mayEnd says whether a terminal phase may go home. One of a pod that the provider will make again may not: home's
// controllers would replace the home pod, and it cannot be taken back. Once home deletes the pod, nothing is made again.
func mayEnd(home *corev1.Pod, remote *corev1.PodStatus, shadow *v1alpha1.ShadowPod) bool {
	if !home.DeletionTimestamp.IsZero() {
		return true
	}
	return shadow.Status.Phase == string(remote.Phase) && !FailedByPlatform(remote)
}

var phases = []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed}

func knownPhase(phase corev1.PodPhase) bool { return slices.Contains(phases, phase) }

// goesBack says whether a phase comes before one that was shown: a pod that runs is never seen pending again.
func goesBack(shown, claimed corev1.PodPhase) bool {
	return shown == corev1.PodRunning && claimed == corev1.PodPending
}

// takeAddresses takes at most one address of each family, as this cluster sees it.
func takeAddresses(out *corev1.PodStatus, remote *corev1.PodStatus, m AddressMap) {
	out.PodIP, out.PodIPs = "", nil
	claimed := []string{remote.PodIP}
	for i := range remote.PodIPs {
		claimed = append(claimed, remote.PodIPs[i].IP)
	}
	for _, text := range claimed {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		// The map is of one family, so the first address that it maps is the only one.
		if seen, ok := m.Map(addr); ok {
			out.PodIP, out.PodIPs = seen.String(), []corev1.PodIP{{IP: seen.String()}}
			return
		}
	}
}

// giveUp fails the pod, so that its controller at home replaces it. It was the provider that failed it, and not its own
// containers, which is how Kubernetes says that.
func giveUp(out *corev1.PodStatus, reason, message string) {
	out.Phase, out.Reason, out.Message = corev1.PodFailed, reason, message
	out.Conditions = append(slices.DeleteFunc(out.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget
	}), corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message,
	})
	for i := range out.Conditions {
		c := &out.Conditions[i]
		if c.Type == corev1.PodReady || c.Type == corev1.ContainersReady {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, "PodFailed", ""
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{
		out.InitContainerStatuses, out.ContainerStatuses, out.EphemeralContainerStatuses,
	} {
		for i := range statuses {
			lose(&statuses[i])
		}
	}
}

// lose ends a container whose end nobody saw, as a kubelet does.
func lose(s *corev1.ContainerStatus) {
	s.Ready = false
	if s.State.Terminated != nil {
		return
	}
	lost := &corev1.ContainerStateTerminated{
		ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "The container could not be found at its provider",
		ContainerID: s.ContainerID,
	}
	if s.State.Running != nil {
		lost.StartedAt = s.State.Running.StartedAt
	}
	s.State = corev1.ContainerState{Terminated: lost}
}
