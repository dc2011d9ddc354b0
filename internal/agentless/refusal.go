package agentless

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// refusal says why a cluster without Hanse cannot run the pod of that name as it should, in words for its author, or "".
func refusal(name string, spec *corev1.PodSpec) string {
	for _, judge := range []func(*corev1.PodSpec) string{restartRefusal, configurationRefusal} {
		if reason := judge(spec); reason != "" {
			return reason
		}
	}
	if spec.Hostname == "" && spec.HostnameOverride == nil && len(validation.IsDNS1123Label(hostname(name))) > 0 {
		return fmt.Sprintf("its name %q is no host name, which at a cluster without Hanse it must be: set spec.hostname", name)
	}
	return ""
}

// restartRefusal refuses what neither a ReplicaSet nor a Job of one can hold.
func restartRefusal(spec *corev1.PodSpec) string {
	switch {
	case spec.RestartPolicy == corev1.RestartPolicyOnFailure:
		return "its restartPolicy is OnFailure: a cluster without Hanse runs pods with Always and Never alone, since a Job " +
			"there could start it again after it has ended"
	case spec.RestartPolicy != corev1.RestartPolicyNever && spec.ActiveDeadlineSeconds != nil:
		return "it has activeDeadlineSeconds and restartPolicy Always: at a cluster without Hanse a ReplicaSet would start " +
			"it again after its deadline"
	default:
		return ""
	}
}

// configurationRefusal refuses what reads ConfigMaps and Secrets: nobody carries them to a cluster without Hanse, and
// others of the same name may be there.
func configurationRefusal(spec *corev1.PodSpec) string {
	const why = "; ConfigMaps and Secrets are not taken to clusters without Hanse"
	if len(spec.ImagePullSecrets) > 0 {
		return fmt.Sprintf("it pulls images with Secret %q%s", spec.ImagePullSecrets[0].Name, why)
	}
	for i := range spec.Volumes {
		if readsConfiguration(&spec.Volumes[i]) {
			return fmt.Sprintf("volume %q is a ConfigMap or Secret%s", spec.Volumes[i].Name, why)
		}
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			if takesConfiguration(&containers[i]) {
				return fmt.Sprintf("container %q takes its environment from a ConfigMap or Secret%s", containers[i].Name, why)
			}
		}
	}
	return ""
}

func readsConfiguration(volume *corev1.Volume) bool {
	if volume.ConfigMap != nil || volume.Secret != nil {
		return true
	}
	if volume.Projected == nil {
		return false
	}
	for _, source := range volume.Projected.Sources {
		if source.DownwardAPI == nil {
			return true
		}
	}
	return false
}

func takesConfiguration(container *corev1.Container) bool {
	if len(container.EnvFrom) > 0 {
		return true
	}
	for i := range container.Env {
		from := container.Env[i].ValueFrom
		if from != nil && (from.ConfigMapKeyRef != nil || from.SecretKeyRef != nil) {
			return true
		}
	}
	return false
}

// hostname is what a kubelet makes of the name of a pod that does not say how its host is called.
func hostname(name string) string {
	const most = 63
	if len(name) > most {
		name = strings.TrimRight(name[:most], "-.")
	}
	return name
}
