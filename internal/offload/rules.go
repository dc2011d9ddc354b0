package offload

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Rules are what a provider adds to the pods of one consumer. The zero value adds what every pod gets.
type Rules struct {
	// Restricted closes what Pod Security "restricted" wants closed, where the author of the pod left it open.
	Restricted bool
	// LeastRequests are what a container counts for that asks for nothing of that resource (cpu or memory).
	LeastRequests corev1.ResourceList
	// Taints are those that the provider offers: a pod may tolerate these and no others.
	Taints []corev1.Taint
	// Path are the ids of the clusters that the pod has come through, this one included, if it may be sent on to another.
	// A pod without one stays on the provider's real nodes.
	Path []string
}

// maxContainers is how many containers a pod may have. The record of its restarts holds as many.
const maxContainers = 250

func checkContainers(spec *corev1.PodSpec) error {
	if count := len(spec.InitContainers) + len(spec.Containers) + len(spec.EphemeralContainers); count > maxContainers {
		return fmt.Errorf("spec.containers: %d with the init and ephemeral ones, at most %d are taken", count, maxContainers)
	}
	return nil
}

// confine closes what the author of the pod left open.
func confine(spec *corev1.PodSpec, restricted bool) {
	spec.AutomountServiceAccountToken = ptr.To(false)
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	if spec.SecurityContext.SeccompProfile == nil {
		spec.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	if restricted && spec.SecurityContext.RunAsNonRoot == nil {
		spec.SecurityContext.RunAsNonRoot = ptr.To(true)
	}
	forEachContainer(spec, func(c *corev1.Container) { confineContainer(c, restricted) })
}

func confineContainer(c *corev1.Container, restricted bool) {
	if c.SecurityContext == nil {
		c.SecurityContext = &corev1.SecurityContext{}
	}
	if c.SecurityContext.AllowPrivilegeEscalation == nil {
		c.SecurityContext.AllowPrivilegeEscalation = ptr.To(false)
	}
	if !restricted {
		return
	}
	if c.SecurityContext.Capabilities == nil {
		c.SecurityContext.Capabilities = &corev1.Capabilities{}
	}
	if len(c.SecurityContext.Capabilities.Drop) == 0 {
		c.SecurityContext.Capabilities.Drop = []corev1.Capability{"ALL"}
	}
}

// forEachKindOfContainer visits the ephemeral containers too.
func forEachKindOfContainer(spec *corev1.PodSpec, f func(*corev1.Container)) {
	forEachContainer(spec, f)
	for i := range spec.EphemeralContainers {
		f(asContainer(&spec.EphemeralContainers[i]))
	}
}

// forEachContainer visits the containers that a pod begins with.
func forEachContainer(spec *corev1.PodSpec, f func(*corev1.Container)) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			f(&containers[i])
		}
	}
}
