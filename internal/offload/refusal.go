package offload

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Refusal says why the home pod cannot run remotely (yet), in words for its author. The last word is the provider's;
// this spares the way there, and has the better explanations.
func Refusal(home *corev1.Pod) (reason string, refused bool) {
	_, err := Outbound(home, Options{})
	var refusal refusalError
	if errors.As(err, &refusal) {
		return string(refusal), true
	}
	return "", false
}

// knownRefusal explains what pods are most often refused for. Whatever else is not on the allow-list is found by allow.
func knownRefusal(home *corev1.Pod) (string, bool) {
	for _, judge := range []func(*corev1.PodSpec) string{hostRefusal, claimRefusal, certificateRefusal} {
		if reason := judge(&home.Spec); reason != "" {
			return reason, true
		}
	}
	for i := range home.Spec.Volumes {
		if reason := volumeRefusal(&home.Spec.Volumes[i]); reason != "" {
			return reason, true
		}
	}
	if reason := downwardRefusal(home.Spec.Volumes); reason != "" {
		return reason, true
	}
	for _, containers := range [][]corev1.Container{home.Spec.InitContainers, home.Spec.Containers} {
		for i := range containers {
			if reason := containerRefusal(&containers[i]); reason != "" {
				return reason, true
			}
		}
	}
	return "", false
}

func hostRefusal(spec *corev1.PodSpec) string {
	if spec.HostNetwork || spec.HostPID || spec.HostIPC {
		return "it uses namespaces of its host (hostNetwork, hostPID or hostIPC)"
	}
	if spec.RuntimeClassName != nil {
		return fmt.Sprintf("it needs runtime class %q, which is of this cluster", *spec.RuntimeClassName)
	}
	return ""
}

func claimRefusal(spec *corev1.PodSpec) string {
	if len(spec.ResourceClaims) > 0 {
		return fmt.Sprintf("it uses resource claim %q; claims are not taken along", spec.ResourceClaims[0].Name)
	}
	return ""
}

func certificateRefusal(spec *corev1.PodSpec) string {
	if showsRootCertificates(spec) {
		return fmt.Sprintf("it reads ConfigMap %q; there it would be the other cluster's", rootCertificates)
	}
	return ""
}

func volumeRefusal(v *corev1.Volume) string {
	switch {
	case isTokenVolume(v):
		return ""
	case v.PersistentVolumeClaim != nil, v.Ephemeral != nil:
		return fmt.Sprintf("volume %q is a persistent volume; these are not taken along yet", v.Name)
	case v.HostPath != nil:
		return fmt.Sprintf("volume %q is a path of its host", v.Name)
	case v.Projected != nil:
		return projectionRefusal(v)
	}
	return ""
}

func projectionRefusal(v *corev1.Volume) string {
	for i := range v.Projected.Sources {
		source := &v.Projected.Sources[i]
		switch {
		case source.ServiceAccountToken != nil:
			return fmt.Sprintf("volume %q is a token of this cluster; these are not taken along yet", v.Name)
		case source.ClusterTrustBundle != nil, source.PodCertificate != nil:
			return fmt.Sprintf("volume %q is made of certificates of this cluster; these are not taken along", v.Name)
		}
	}
	return ""
}

// downwardRefusal looks for files that would be empty over there.
func downwardRefusal(volumes []corev1.Volume) string {
	reason := ""
	forEachDownwardFile(volumes, func(file *corev1.DownwardAPIVolumeFile) {
		if file.FieldRef == nil {
			return
		}
		if key, ok := subscript(file.FieldRef.FieldPath, "metadata.annotations"); ok && !annotationTravels(key, "") {
			reason = fmt.Sprintf("file %q shows annotation %q, which is not taken along", file.Path, key)
		}
	})
	return reason
}

func containerRefusal(c *corev1.Container) string {
	if reason := privilegeRefusal(c); reason != "" {
		return reason
	}
	for i := range c.Ports {
		if c.Ports[i].HostPort != 0 {
			return fmt.Sprintf("container %q uses a port of its host", c.Name)
		}
	}
	return ""
}

func privilegeRefusal(c *corev1.Container) string {
	security := c.SecurityContext
	switch {
	case security == nil:
		return ""
	case security.Privileged != nil && *security.Privileged:
		return fmt.Sprintf("container %q is privileged", c.Name)
	case security.Capabilities != nil:
		if i := slices.IndexFunc(security.Capabilities.Add, func(name corev1.Capability) bool { return !isHarmless(string(name)) }); i >= 0 {
			return fmt.Sprintf("container %q adds capability %q", c.Name, security.Capabilities.Add[i])
		}
	}
	return ""
}

// showsRootCertificates says whether a volume or a variable shows the ConfigMap that the provider has itself.
func showsRootCertificates(spec *corev1.PodSpec) bool {
	shown := slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool {
		return v.ConfigMap != nil && v.ConfigMap.Name == rootCertificates ||
			v.Projected != nil && !isTokenVolume(&v) && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
				return s.ConfigMap != nil && s.ConfigMap.Name == rootCertificates
			})
	})
	forEachContainer(spec, func(c *corev1.Container) { shown = shown || readsRootCertificates(c) })
	return shown
}

func readsRootCertificates(c *corev1.Container) bool {
	return slices.ContainsFunc(c.EnvFrom, func(e corev1.EnvFromSource) bool {
		return e.ConfigMapRef != nil && e.ConfigMapRef.Name == rootCertificates
	}) || slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
		return e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil && e.ValueFrom.ConfigMapKeyRef.Name == rootCertificates
	})
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
	if reason := containerRefusal(asContainer(c)); reason != "" {
		return reason
	}
	if found := ephemeralRule.firstRefused(reflect.ValueOf(c)); found != nil {
		return fmt.Sprintf("container %q: %s", c.Name, found.under("spec.ephemeralContainers[]"))
	}
	return ""
}
