package offload

import (
	"errors"
	"fmt"

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
	for _, judge := range []func(*corev1.PodSpec) string{hostRefusal, claimRefusal, secretRefusal} {
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

func secretRefusal(spec *corev1.PodSpec) string {
	if len(spec.ImagePullSecrets) > 0 {
		return fmt.Sprintf("it pulls images with Secret %q; Secrets are not reflected yet", spec.ImagePullSecrets[0].Name)
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
	case v.ConfigMap != nil:
		return fmt.Sprintf("volume %q is a ConfigMap; these are not reflected yet", v.Name)
	case v.Secret != nil:
		return fmt.Sprintf("volume %q is a Secret; these are not reflected yet", v.Name)
	case v.Projected != nil:
		return projectionRefusal(v)
	}
	return ""
}

func projectionRefusal(v *corev1.Volume) string {
	for _, source := range v.Projected.Sources {
		if source.DownwardAPI == nil {
			return fmt.Sprintf("volume %q projects more than the pod's own fields; "+
				"ConfigMaps, Secrets and tokens are not reflected yet", v.Name)
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
	if len(c.EnvFrom) > 0 {
		return fmt.Sprintf("container %q takes its environment from a ConfigMap or Secret; "+
			"these are not reflected yet", c.Name)
	}
	for i := range c.Env {
		from := c.Env[i].ValueFrom
		if from != nil && (from.ConfigMapKeyRef != nil || from.SecretKeyRef != nil) {
			return fmt.Sprintf("variable %q of container %q comes from a ConfigMap or Secret; "+
				"these are not reflected yet", c.Env[i].Name, c.Name)
		}
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
	case security.Capabilities != nil && len(security.Capabilities.Add) > 0:
		return fmt.Sprintf("container %q adds capabilities", c.Name)
	}
	return ""
}
