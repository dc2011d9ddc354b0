// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Metadata says which labels and annotations a provider takes, besides those that every provider does: patterns of keys, in
// which * stands for anything but a slash. A pattern behind ! takes out what it matches, and the last that matches decides.
type Metadata []string

// harmlessMetadata is what every provider takes unless it says otherwise. Labels and annotations can control software of the
// provider: scrape targets, sidecars, networks to join, roles of a cloud to take. Such keys have a domain, all but one. Those
// of Kubernetes' own controllers say what has made a pod at home, and over there control nothing of another owner.
var harmlessMetadata = Metadata{
	"*", "!aadpodidbinding", "app.kubernetes.io/*",
	"apps.kubernetes.io/*", "batch.kubernetes.io/*", "kubectl.kubernetes.io/*", "statefulset.kubernetes.io/*",
}

// Validate returns an error that names the first pattern that is none.
func (m Metadata) Validate() error {
	for _, pattern := range m {
		if _, err := path.Match(strings.TrimPrefix(pattern, "!"), ""); err != nil || pattern == "" {
			return fmt.Errorf("%q is no pattern of labels and annotations", pattern)
		}
	}
	return nil
}

// takes says whether a provider that says this takes labels and annotations of the key. It never takes our own: those have
// another meaning there.
func (m Metadata) takes(key string) bool {
	taken := false
	for _, patterns := range []Metadata{harmlessMetadata, m} {
		for _, pattern := range patterns {
			bare, out := strings.CutPrefix(pattern, "!")
			if matches, _ := path.Match(bare, key); matches {
				taken = !out
			}
		}
	}
	return taken && !v1alpha1.IsOwn(key)
}

// isTaken says whether every provider takes labels and annotations of the key, as far as home knows.
func isTaken(key string) bool { return Metadata(nil).takes(key) }

// isSent says which labels and annotations home sends: all but our own, and what Kubernetes and kubectl note down for
// themselves, of which the latter is as large as the pod. A provider leaves out what it does not take, and says so.
func isSent(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	ofKubernetes := slices.ContainsFunc([]string{"kubernetes.io", "k8s.io"}, func(suffix string) bool {
		return domain == suffix || strings.HasSuffix(domain, "."+suffix)
	})
	return key != corev1.LastAppliedConfigAnnotation && !v1alpha1.IsOwn(key) && (!ofKubernetes || isTaken(key))
}

// sentEntries returns the entries of a map that home sends, and nil if there are none.
func sentEntries(entries map[string]string) map[string]string {
	var out map[string]string
	for key, value := range entries {
		if !isSent(key) {
			continue
		}
		if out == nil {
			out = make(map[string]string, len(entries))
		}
		out[key] = value
	}
	return out
}

// mayBeSent says why labels or annotations that a consumer sends may not be. Ours may not, but for the home namespace, which
// downward volumes read from an annotation.
func mayBeSent(meta *metav1.ObjectMeta) *refusedField {
	for _, entries := range []struct {
		path string
		of   map[string]string
	}{{".annotations", meta.Annotations}, {".labels", meta.Labels}} {
		for _, key := range slices.Sorted(maps.Keys(entries.of)) {
			if len(validation.IsQualifiedName(strings.ToLower(key))) > 0 || v1alpha1.IsOwn(key) && !isHomeNamespace(entries.path, key, entries.of[key]) {
				return &refusedField{path: entries.path + step(key)}
			}
		}
	}
	return nil
}

func isHomeNamespace(path, key, value string) bool {
	return path == ".annotations" && key == v1alpha1.AnnotationHomeNamespace && len(validation.IsDNS1123Label(value)) == 0
}

// maxLeftOut is how many bytes of what was left out are noted down.
const maxLeftOut = 600

// leaveOut takes off the pod what the provider does not take, and notes it down on the pod: so what home is told holds for
// as long as the pod is as it was made.
func (m Metadata) leaveOut(pod *corev1.Pod) {
	left := map[string]bool{}
	for _, entries := range []map[string]string{pod.Labels, pod.Annotations} {
		maps.DeleteFunc(entries, func(key, _ string) bool {
			out := !v1alpha1.IsOwn(key) && !m.takes(key)
			if out {
				left[key] = true
			}
			return out
		})
	}
	text, more := "", len(left)
	for _, key := range slices.Sorted(maps.Keys(left)) {
		if len(text)+len(key) > maxLeftOut {
			break
		}
		text, more = strings.TrimPrefix(text+", "+key, ", "), more-1
	}
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	if text != "" {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.AnnotationLeftOut, text)
	}
}

// LeftOut says what was left out of the labels and annotations of a pod that runs for another cluster, "" if nothing was.
func LeftOut(pod *corev1.Pod) string {
	left := pod.Annotations[v1alpha1.AnnotationLeftOut]
	if left == "" {
		return ""
	}
	return "The provider takes only labels and annotations that are harmless or that its administrator allows. It has left out " + left
}
