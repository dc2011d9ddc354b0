package offload

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// takeContainers returns the statuses of the containers that the home pod names, in its order.
func takeContainers(
	home *corev1.Pod, named []corev1.Container, claimed, shown []corev1.ContainerStatus, restarts map[string]int32,
) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for i := range named {
		container := &named[i]
		now := statusOf(claimed, container.Name)
		was := statusOf(shown, container.Name)
		if now == nil {
			if was != nil && staysEnded(home, container, was) {
				out = append(out, *was)
			}
			continue
		}
		if was != nil && staysEnded(home, container, was) && now.State.Terminated == nil {
			out = append(out, *was)
			continue
		}
		taken := copyContainers([]corev1.ContainerStatus{*now}, func(text string) string { return text })[0]
		taken.RestartCount = added(restarts[container.Name], taken.RestartCount)
		out = append(out, taken)
	}
	return out
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

// staysEnded says whether the API server would refuse that a container leaves its terminated state. In a pod that was
// made again such a container runs again; home keeps showing its first end until there is the next.
func staysEnded(home *corev1.Pod, c *corev1.Container, was *corev1.ContainerStatus) bool {
	if was.State.Terminated == nil {
		return false
	}
	return !mayRestart(&home.Spec, c, was.State.Terminated.ExitCode)
}

func mayRestart(spec *corev1.PodSpec, c *corev1.Container, exitCode int32) bool {
	for i := range c.RestartPolicyRules {
		if ruleMatches(c.RestartPolicyRules[i].ExitCodes, exitCode) {
			return true
		}
	}
	policy := string(spec.RestartPolicy)
	if c.RestartPolicy != nil {
		policy = string(*c.RestartPolicy)
	}
	switch policy {
	case string(corev1.RestartPolicyNever):
		return false
	case string(corev1.RestartPolicyOnFailure):
		return exitCode != 0
	default:
		return true
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
