package offload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// rootCertificates is the ConfigMap that Kubernetes puts into each namespace: in the twin namespace it is the provider's.
const rootCertificates = "kube-root-ca.crt"

// allowedConfigMap lets through names of ConfigMaps that were brought to the twin namespace.
func allowedConfigMap(name string) string {
	if name == rootCertificates {
		return ""
	}
	return allowedName(name)
}

// allowedName lets through what can be the name of an object.
func allowedName(name string) string {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return ""
	}
	return name
}

func allowedPullSecret(in corev1.LocalObjectReference) corev1.LocalObjectReference {
	return corev1.LocalObjectReference{Name: allowedName(in.Name)}
}

func allowedConfigMapVolume(in *corev1.ConfigMapVolumeSource) *corev1.ConfigMapVolumeSource {
	if in == nil {
		return nil
	}
	return &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: allowedConfigMap(in.Name)},
		Items:                mapped(in.Items, allowedKey),
		DefaultMode:          in.DefaultMode,
		Optional:             in.Optional,
		DefaultUser:          in.DefaultUser,
	}
}

func allowedSecretVolume(in *corev1.SecretVolumeSource) *corev1.SecretVolumeSource {
	if in == nil {
		return nil
	}
	return &corev1.SecretVolumeSource{
		SecretName:  allowedName(in.SecretName),
		Items:       mapped(in.Items, allowedKey),
		DefaultMode: in.DefaultMode,
		Optional:    in.Optional,
		DefaultUser: in.DefaultUser,
	}
}

func allowedConfigMapProjection(in *corev1.ConfigMapProjection) *corev1.ConfigMapProjection {
	if in == nil {
		return nil
	}
	return &corev1.ConfigMapProjection{
		LocalObjectReference: corev1.LocalObjectReference{Name: allowedConfigMap(in.Name)},
		Items:                mapped(in.Items, allowedKey),
		Optional:             in.Optional,
	}
}

func allowedSecretProjection(in *corev1.SecretProjection) *corev1.SecretProjection {
	if in == nil {
		return nil
	}
	return &corev1.SecretProjection{
		LocalObjectReference: corev1.LocalObjectReference{Name: allowedName(in.Name)},
		Items:                mapped(in.Items, allowedKey),
		Optional:             in.Optional,
	}
}

func allowedKey(in corev1.KeyToPath) corev1.KeyToPath {
	return corev1.KeyToPath{Key: in.Key, Path: in.Path, Mode: in.Mode, User: in.User}
}

func allowedEnvFrom(in corev1.EnvFromSource) corev1.EnvFromSource {
	out := corev1.EnvFromSource{Prefix: in.Prefix}
	if ref := in.ConfigMapRef; ref != nil {
		out.ConfigMapRef = &corev1.ConfigMapEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: allowedConfigMap(ref.Name)}, Optional: ref.Optional,
		}
	}
	if ref := in.SecretRef; ref != nil {
		out.SecretRef = &corev1.SecretEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: allowedName(ref.Name)}, Optional: ref.Optional,
		}
	}
	return out
}

// allowedEnvSource lets through what a variable may come from. A file is one of the pod's own volumes.
func allowedEnvSource(in *corev1.EnvVarSource) *corev1.EnvVarSource {
	if in == nil {
		return nil
	}
	out := &corev1.EnvVarSource{ResourceFieldRef: allowedResourceField(in.ResourceFieldRef)}
	if ref := in.FieldRef; ref != nil && envFieldAllowed(ref.FieldPath) {
		out.FieldRef = allowedField(ref)
	}
	if ref := in.ConfigMapKeyRef; ref != nil {
		out.ConfigMapKeyRef = &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: allowedConfigMap(ref.Name)},
			Key:                  ref.Key, Optional: ref.Optional,
		}
	}
	if ref := in.SecretKeyRef; ref != nil {
		out.SecretKeyRef = &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: allowedName(ref.Name)},
			Key:                  ref.Key, Optional: ref.Optional,
		}
	}
	if ref := in.FileKeyRef; ref != nil {
		out.FileKeyRef = &corev1.FileKeySelector{
			VolumeName: ref.VolumeName, Path: ref.Path, Key: ref.Key, Optional: ref.Optional,
		}
	}
	return out
}

func allowedField(in *corev1.ObjectFieldSelector) *corev1.ObjectFieldSelector {
	if in == nil {
		return nil
	}
	return &corev1.ObjectFieldSelector{APIVersion: in.APIVersion, FieldPath: in.FieldPath}
}

func allowedResourceField(in *corev1.ResourceFieldSelector) *corev1.ResourceFieldSelector {
	if in == nil {
		return nil
	}
	return &corev1.ResourceFieldSelector{ContainerName: in.ContainerName, Resource: in.Resource, Divisor: in.Divisor}
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
