// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// statusReader reads what a provider claims about the containers of a home pod.
type statusReader struct {
	home     *corev1.Pod
	restarts map[string]int32 // container → restarts of the pods that ran before
	remade   bool             // there were such pods
	life     span             // of the home pod
}

// containers returns the statuses of the containers that the home pod names, in its order. A container that was shown
// once stays, as on any node; unreported says what becomes of one that the provider no longer tells of.
func (c statusReader) containers(
	named []corev1.Container, claimed, shown []corev1.ContainerStatus, unreported func(*corev1.ContainerStatus) corev1.ContainerStatus,
) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for i := range named {
		container := &named[i]
		now, was := statusOf(claimed, container.Name), statusOf(shown, container.Name)
		switch {
		case was != nil && StaysEnded(&c.home.Spec, was) && (now == nil || now.State.Terminated == nil):
			out = append(out, *was)
		case now != nil:
			out = append(out, c.taken(container, now, was))
		case was != nil:
			out = append(out, unreported(was))
		}
	}
	return out
}

func (c statusReader) lost(was *corev1.ContainerStatus) corev1.ContainerStatus {
	out := *was.DeepCopy()
	lose(&out, c.life.to)
	return out
}

func (c statusReader) taken(container *corev1.Container, now, was *corev1.ContainerStatus) corev1.ContainerStatus {
	out := *now
	out.VolumeMounts = slices.DeleteFunc(out.VolumeMounts, func(m corev1.VolumeMountStatus) bool {
		return !slices.ContainsFunc(container.VolumeMounts, func(named corev1.VolumeMount) bool {
			return named.Name == m.Name && named.MountPath == m.MountPath
		})
	})
	if len(out.VolumeMounts) == 0 {
		out.VolumeMounts = nil
	}
	out.RestartCount = c.restartsOf(now, was)
	return out
}

// restartsOf returns how often the container was restarted. What was shown stays where the provider made the pod again and may
// have lost the count. Of the same container of the same pod the provider corrects itself. Nothing restarts more than once a
// second, so that a lie has no more than the age of the pod makes possible.
func (c statusReader) restartsOf(now, was *corev1.ContainerStatus) int32 {
	count := added(c.restarts[now.Name], now.RestartCount)
	if was != nil && (c.remade || was.ContainerID == "" || was.ContainerID != now.ContainerID) {
		count = max(count, was.RestartCount)
	}
	age := int64(c.life.to.Sub(c.life.from.Time) / time.Second)
	return min(count, added(restartsAtOnce, int32(min(max(age, 0), math.MaxInt32))))
}

// restartsAtOnce is how many restarts are believed of a pod however young it is.
const restartsAtOnce = 10

// awaited returns the status of a container that the provider has not reported yet, because it created the pod again.
func awaited(was *corev1.ContainerStatus) corev1.ContainerStatus {
	last := was.LastTerminationState
	if was.State.Terminated != nil {
		last = was.State
	}
	return corev1.ContainerStatus{
		Name:                 was.Name,
		Image:                was.Image,
		RestartCount:         was.RestartCount,
		LastTerminationState: last,
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}},
	}
}

func statusOf(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &statuses[i]
}

// added adds two counts of restarts that a peer claims.
func added(a, b int32) int32 {
	sum := int64(max(a, 0)) + int64(max(b, 0))
	return int32(min(sum, math.MaxInt32))
}

// StaysEnded says whether the API server would refuse that a container leaves its terminated state. In a pod that was
// made again such a container runs again; home keeps showing its first end until there is the next.
func StaysEnded(spec *corev1.PodSpec, status *corev1.ContainerStatus) bool {
	return status.State.Terminated != nil && !mayRestart(spec, status.Name, status.State.Terminated.ExitCode)
}

func mayRestart(spec *corev1.PodSpec, name string, exitCode int32) bool {
	policy, always := spec.RestartPolicy, false
	forEachContainer(spec, func(c *corev1.Container) {
		for _, rule := range c.RestartPolicyRules {
			// The exit of one container can restart all.
			always = always || rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers ||
				c.Name == name && ruleMatches(rule.ExitCodes, exitCode)
		}
		if c.Name == name {
			policy = ptr.Deref((*corev1.RestartPolicy)(c.RestartPolicy), spec.RestartPolicy)
		}
	})
	ephemeral := slices.ContainsFunc(spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name })
	switch {
	case ephemeral, always:
		return !ephemeral
	case policy == corev1.RestartPolicyOnFailure:
		return exitCode != 0
	default:
		return policy != corev1.RestartPolicyNever
	}
}

func ruleMatches(codes *corev1.ContainerRestartRuleOnExitCodes, exitCode int32) bool {
	if codes == nil {
		return false
	}
	in := slices.Contains(codes.Values, exitCode)
	if codes.Operator == corev1.ContainerRestartRuleOnExitCodesOpNotIn {
		return !in
	}
	return in
}
