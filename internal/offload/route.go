package offload

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Path returns the ids of the clusters that a pod has come through, the one that it is in last. It is nil for a pod that
// began here.
func Path(pod *corev1.Pod) []string {
	if text := pod.Annotations[v1alpha1.AnnotationPath]; text != "" {
		return strings.Split(text, ",")
	}
	return nil
}

// Onward returns the path of the ShadowPod's pod here, in the cluster of that id, if the pod may go on from here: it has
// come neither through here before nor through too many clusters.
func Onward(shadow *v1alpha1.ShadowPod, consumer, here string) (path []string, may bool) {
	path = slices.Clone(shadow.Spec.Path)
	if !slices.Contains(path, consumer) {
		path = append(path, consumer)
	}
	if here == "" || slices.Contains(path, here) || len(path) >= v1alpha1.MaxPath {
		return nil, false
	}
	return append(path, here), true
}

// route keeps the pod off the virtual nodes here: off all of them, or off those of the clusters on its path, where there
// is one. Which of the others it may use, and that it tolerates them, is said by the NamespaceOffloading of the twin.
func route(pod *corev1.Pod, path []string) {
	away := corev1.NodeSelectorRequirement{
		Key: v1alpha1.LabelType, Operator: corev1.NodeSelectorOpNotIn, Values: []string{v1alpha1.TypeVirtualNode},
	}
	if len(path) > 0 && !readsItsHome(pod.Spec.Volumes) {
		away.Key, away.Values = v1alpha1.LabelClusterID, path
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[v1alpha1.AnnotationPath] = strings.Join(path, ",")
	}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{away}}},
		},
	}}
}

// readsItsHome says whether the pod reads from a volume what its first consumer has put into metadata of ours. That does
// not travel any further.
func readsItsHome(volumes []corev1.Volume) bool {
	reads := false
	forEachDownwardFile(volumes, func(file *corev1.DownwardAPIVolumeFile) {
		if file.FieldRef != nil && strings.Contains(file.FieldRef.FieldPath, "['"+v1alpha1.Domain+"/") {
			reads = true
		}
	})
	return reads
}
