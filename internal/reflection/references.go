// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// RootCertificates is the ConfigMap with the certificate authority of the API server, which every cluster puts into each of its
// namespaces itself. Remote pods find home's beside their tokens.
const RootCertificates = "kube-root-ca.crt"

// A Reference is an object that a pod cannot start without, in the namespace of the pod.
type Reference struct {
	Kind Kind
	Name string
	// Optional means that the pod can start without it all the same.
	Optional bool
}

// References returns what the pod refers to, sorted, each object once. It is optional only if every mention of it is.
func References(spec *corev1.PodSpec) []Reference {
	var found []Reference
	Visit(spec, func(kind Kind, name *string, optional *bool) {
		if *name == "" || kind == ConfigMap && *name == RootCertificates {
			return
		}
		found = append(found, Reference{Kind: kind, Name: *name, Optional: optional != nil && *optional})
	})
	slices.SortFunc(found, compare)
	return slices.CompactFunc(found, func(a, b Reference) bool { return a.Kind == b.Kind && a.Name == b.Name })
}

// compare puts mentions of one object side by side, those that need it first.
func compare(a, b Reference) int {
	needed := func(r Reference) int {
		if r.Optional {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(needed(a), needed(b)))
}

// Condense returns volumes that refer to just what the pod does, for caches that do not keep the pod's own spec.
func Condense(spec *corev1.PodSpec) []corev1.Volume {
	var volumes []corev1.Volume
	for _, r := range References(spec) {
		var volume corev1.Volume
		switch r.Kind {
		case ConfigMap:
			volume.ConfigMap = &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: r.Name}, Optional: &r.Optional,
			}
		case Secret:
			volume.Secret = &corev1.SecretVolumeSource{SecretName: r.Name, Optional: &r.Optional}
		case Service, EndpointSlice, Ingress: // no pod refers to one
		}
		volumes = append(volumes, volume)
	}
	return volumes
}

// A Visitor is called for each mention of an object. It may write another name into the pod.
type Visitor func(kind Kind, name *string, optional *bool)

// Visit calls see for each mention of an object in the pod. Names may be empty, and optional nil.
func Visit(spec *corev1.PodSpec, see Visitor) {
	for i := range spec.Volumes {
		visitVolume(&spec.Volumes[i].VolumeSource, see)
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			visitEnvironment(containers[i].EnvFrom, containers[i].Env, see)
		}
	}
	for i := range spec.EphemeralContainers {
		visitEnvironment(spec.EphemeralContainers[i].EnvFrom, spec.EphemeralContainers[i].Env, see)
	}
	for i := range spec.ImagePullSecrets {
		// Without one the image is pulled as by anybody.
		see(Secret, &spec.ImagePullSecrets[i].Name, new(true))
	}
}

func visitVolume(v *corev1.VolumeSource, see Visitor) {
	if v.ConfigMap != nil {
		see(ConfigMap, &v.ConfigMap.Name, v.ConfigMap.Optional)
	}
	if v.Secret != nil {
		see(Secret, &v.Secret.SecretName, v.Secret.Optional)
	}
	if v.Projected == nil {
		return
	}
	for i := range v.Projected.Sources {
		source := &v.Projected.Sources[i]
		if source.ConfigMap != nil {
			see(ConfigMap, &source.ConfigMap.Name, source.ConfigMap.Optional)
		}
		if source.Secret != nil {
			see(Secret, &source.Secret.Name, source.Secret.Optional)
		}
	}
}

func visitEnvironment(from []corev1.EnvFromSource, env []corev1.EnvVar, see Visitor) {
	for i := range from {
		if source := from[i].ConfigMapRef; source != nil {
			see(ConfigMap, &source.Name, source.Optional)
		}
		if source := from[i].SecretRef; source != nil {
			see(Secret, &source.Name, source.Optional)
		}
	}
	for i := range env {
		if env[i].ValueFrom == nil {
			continue
		}
		if source := env[i].ValueFrom.ConfigMapKeyRef; source != nil {
			see(ConfigMap, &source.Name, source.Optional)
		}
		if source := env[i].ValueFrom.SecretKeyRef; source != nil {
			see(Secret, &source.Name, source.Optional)
		}
	}
}
