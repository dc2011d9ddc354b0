package offload

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Debugging returns the ephemeral containers that a provider adds to the running pod of the ShadowPod, from the fields on
// the allow-list and confined as the pod's own containers are. Build leaves them out, because a new pod cannot have any.
func Debugging(shadow *v1alpha1.ShadowPod, rules Rules) ([]corev1.EphemeralContainer, error) {
	asked, err := decodeTemplate(shadow.Spec.Pod.Raw)
	if err != nil {
		return nil, err
	}
	allowed, err := allow(asked, rules.Taints)
	if err != nil {
		return nil, err
	}
	for i := range allowed.Spec.EphemeralContainers {
		confineContainer(asContainer(&allowed.Spec.EphemeralContainers[i]), rules.Restricted)
	}
	return allowed.Spec.EphemeralContainers, nil
}

// DebugRefusal says why an ephemeral container of the home pod is left at home, in words for whoever added it. The pod
// itself goes on.
func DebugRefusal(home *corev1.Pod) (reason string, refused bool) {
	for i := range home.Spec.EphemeralContainers {
		left := home.Spec.EphemeralContainers[i].DeepCopy()
		leaveTracingAtHome(left)
		if reason := ephemeralRefusal(left); reason != "" {
			return reason, true
		}
	}
	return "", false
}

// asContainer shows the fields that an ephemeral container shares with others.
func asContainer(c *corev1.EphemeralContainer) *corev1.Container {
	return (*corev1.Container)(&c.EphemeralContainerCommon)
}

// allowedEphemeral is the allow-list of an ephemeral container's fields: those of a container, less the ones that
// Kubernetes itself refuses in it.
func allowedEphemeral(in corev1.EphemeralContainer) corev1.EphemeralContainer {
	c := allowedContainer(*asContainer(&in))
	c.Ports, c.Resources, c.ResizePolicy, c.RestartPolicy, c.RestartPolicyRules = nil, corev1.ResourceRequirements{}, nil, nil, nil
	c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.Lifecycle = nil, nil, nil, nil
	return corev1.EphemeralContainer{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon(c),
		TargetContainerName:      in.TargetContainerName,
	}
}

// leaveEphemeralAtHome drops the ephemeral containers that cannot go along: the pod runs already, and stays.
func leaveEphemeralAtHome(spec *corev1.PodSpec) {
	for i := range spec.EphemeralContainers {
		leaveTracingAtHome(&spec.EphemeralContainers[i])
	}
	spec.EphemeralContainers = slices.DeleteFunc(spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool {
		return ephemeralRefusal(&c) != ""
	})
	if len(spec.EphemeralContainers) == 0 {
		spec.EphemeralContainers = nil
	}
}

// leaveTracingAtHome takes off the capability that "kubectl debug" asks for by default and that Pod Security grants to
// nobody. Most that one looks for is found without it.
func leaveTracingAtHome(c *corev1.EphemeralContainer) {
	if c.SecurityContext == nil || c.SecurityContext.Capabilities == nil {
		return
	}
	capabilities := c.SecurityContext.Capabilities
	capabilities.Add = slices.DeleteFunc(capabilities.Add, func(name corev1.Capability) bool { return name == "SYS_PTRACE" })
	if len(capabilities.Add) == 0 {
		capabilities.Add = nil
	}
}

func ephemeralRefusal(c *corev1.EphemeralContainer) string {
	if reason := containerRefusal(asContainer(c)); reason != "" {
		return reason
	}
	left, err := firstDifference(c, allowedEphemeral(*c))
	if err != nil {
		return err.Error()
	}
	if left != "" {
		return fmt.Sprintf("container %q: %s", c.Name, notAllowed("spec.ephemeralContainers[]."+left))
	}
	return ""
}
