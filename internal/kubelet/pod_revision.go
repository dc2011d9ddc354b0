package kubelet

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// annotationRevision tells, on a ShadowPod, of which revision of the home pod it is. Comparing what went out with what
// would go out now costs a translation for each change of status, and would take a new address of the virtual node for
// a change of the pod.
const annotationRevision = v1alpha1.AnnotationHomeRevision

// revision changes whenever something changes at the home pod, or about how its namespace changes it, that may travel.
func revision(home *corev1.Pod, overrides []v1alpha1.ClusterOverride) string {
	var all []byte
	for _, entries := range []map[string]string{home.Labels, home.Annotations} {
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			all = fmt.Appendf(all, "%q=%q,", key, entries[key])
		}
		all = append(all, ';')
	}
	if len(overrides) > 0 {
		encoded, _ := json.Marshal(overrides) // what the API server sent is JSON
		all = append(all, encoded...)
	}
	sum := fnv.New64a()
	_, _ = sum.Write(all) // a hash never fails
	return fmt.Sprintf("%d-%x", home.Generation, sum.Sum64())
}
