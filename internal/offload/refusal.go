package offload

import (
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Refusal says why the home pod cannot run remotely (yet), in words for its author. The provider has the last word: this
// spares the way there.
func Refusal(home *corev1.Pod) (reason string, refused bool) {
	if _, err := Outbound(home, ""); err != nil {
		return err.Error(), true
	}
	return "", false
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
	if found := ephemeralRule.firstRefused(reflect.ValueOf(c)); found != nil {
		return fmt.Sprintf("container %q: %s", c.Name, found.under("spec.ephemeralContainers[]"))
	}
	return ""
}
