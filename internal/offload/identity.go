package offload

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// identity is what a pod can read of itself: always what it is at home.
type identity struct {
	home   *corev1.Pod
	hostIP string
}

// inEnv replaces references to fields of the pod by home's values. Only the pod's own addresses are left to the
// provider: a process binds to them.
func (s identity) inEnv(env []corev1.EnvVar) {
	for i := range env {
		if env[i].ValueFrom == nil || env[i].ValueFrom.FieldRef == nil {
			continue
		}
		if value, ok := s.value(env[i].ValueFrom.FieldRef.FieldPath); ok {
			// In a literal "$(NAME)" means a variable; a field's value is taken as it is.
			env[i].Value = strings.ReplaceAll(value, "$", "$$")
			env[i].ValueFrom = nil
		}
	}
}

func (s identity) value(path string) (string, bool) {
	switch path {
	case "metadata.name":
		return s.home.Name, true
	case "metadata.namespace":
		return s.home.Namespace, true
	case "metadata.uid":
		return string(s.home.UID), true
	case "spec.nodeName":
		return s.home.Spec.NodeName, true
	case "spec.serviceAccountName":
		return s.home.Spec.ServiceAccountName, true
	case "status.hostIP", "status.hostIPs":
		return s.hostIP, true
	}
	if key, ok := subscript(path, "metadata.labels"); ok {
		return s.home.Labels[key], true
	}
	if key, ok := subscript(path, "metadata.annotations"); ok {
		return s.home.Annotations[key], true
	}
	return "", false
}

// subscript returns key of "field['key']".
func subscript(path, field string) (string, bool) {
	key, ok := strings.CutPrefix(path, field+"['")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(key, "']")
}

// inVolumes makes downward volumes read home's namespace and UID. Files cannot be literals, so they read them from
// metadata that travels along. It reports whether one of them reads the annotation with the home namespace.
func (s identity) inVolumes(volumes []corev1.Volume) bool {
	reads := false
	forEachDownwardFile(volumes, func(file *corev1.DownwardAPIVolumeFile) {
		if file.FieldRef == nil {
			return
		}
		switch file.FieldRef.FieldPath {
		case "metadata.namespace":
			file.FieldRef.FieldPath = "metadata.annotations['" + v1alpha1.AnnotationHomeNamespace + "']"
			reads = true
		case "metadata.uid":
			file.FieldRef.FieldPath = "metadata.labels['" + v1alpha1.LabelHomeUID + "']"
		}
	})
	return reads
}

func forEachDownwardFile(volumes []corev1.Volume, f func(*corev1.DownwardAPIVolumeFile)) {
	visit := func(items []corev1.DownwardAPIVolumeFile) {
		for i := range items {
			f(&items[i])
		}
	}
	for i := range volumes {
		if down := volumes[i].DownwardAPI; down != nil {
			visit(down.Items)
		}
		if projected := volumes[i].Projected; projected != nil {
			for _, source := range projected.Sources {
				if source.DownwardAPI != nil {
					visit(source.DownwardAPI.Items)
				}
			}
		}
	}
}
