// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Outbound returns the pod template that a provider is asked to run for the home pod, which sees hostIP as the address of
// its host. Fields about the consumer's nodes, scheduler and service accounts stay at home. Fields that the pod reads about
// itself have home's values, and its tokens come from its TokenSecret: see WithoutToken for a pod that goes without. An error
// says to the author of the pod why it cannot run remotely.
func Outbound(home *corev1.Pod, hostIP string) (corev1.PodTemplateSpec, error) {
	out := translate(home, hostIP)
	if err := checkTemplate(&out); err != nil {
		return corev1.PodTemplateSpec{}, err
	}
	return out, nil
}

func translate(home *corev1.Pod, hostIP string) corev1.PodTemplateSpec {
	out := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      sentEntries(home.Labels),
			Annotations: sentEntries(home.Annotations),
		},
		Spec: *home.Spec.DeepCopy(),
	}
	podRule.each(reflect.ValueOf(&out.Spec), func(line *fieldLine, value reflect.Value) {
		if line.verdict == dropped {
			value.SetZero()
		}
	})
	out.Spec.AutomountServiceAccountToken = ptr.To(false)
	if SkipsToken(home) {
		skipTokens(&out.Spec)
	}
	readTokens(&out.Spec, TokenSecret(home.UID))
	leaveEphemeralAtHome(&out.Spec)
	self := identity{home: home, hostIP: hostIP}
	forEachKindOfContainer(&out.Spec, func(c *corev1.Container) { self.inEnv(c.Env) })
	if self.inVolumes(out.Spec.Volumes) {
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[v1alpha1.AnnotationHomeNamespace] = home.Namespace
	}
	return out
}

// identity is what a pod can read about itself: always its values at home.
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
	if key, ok := subscript(path, "metadata.labels"); ok {
		return s.home.Labels[key], true
	}
	if key, ok := subscript(path, "metadata.annotations"); ok {
		return s.home.Annotations[key], true
	}
	value, ok := map[string]string{
		"metadata.name":           s.home.Name,
		"metadata.namespace":      s.home.Namespace,
		"metadata.uid":            string(s.home.UID),
		"spec.nodeName":           s.home.Spec.NodeName,
		"spec.serviceAccountName": s.home.Spec.ServiceAccountName,
		"status.hostIP":           s.hostIP,
		"status.hostIPs":          s.hostIP,
	}[path]
	return value, ok
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

// Refusal says why the home pod cannot run remotely (yet), in words for its author. The provider has the last word: this
// spares the way there.
func Refusal(home *corev1.Pod) (reason string, refused bool) {
	if _, err := Outbound(home, ""); err != nil {
		return err.Error(), true
	}
	return "", false
}

// KeptHome says why admission has kept the pod at home, and whether it has. The reason is worked out once more: the annotation may
// be of a user, and what that says is nothing that Hanse says.
func KeptHome(pod *corev1.Pod) (reason string, kept bool) {
	if pod.Annotations[v1alpha1.AnnotationRunsAtHome] == "" {
		return "", false
	}
	return Refusal(pod)
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
