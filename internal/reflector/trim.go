package reflector

import (
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// KeepReferences returns a transform of a cache of pods that trims them as the given one does, and keeps of those on
// virtual nodes what they refer to: as volumes, which are not the pod's own. A remote pod, which may be on a virtual node
// itself, is kept whole by the given one already.
func KeepReferences(trim toolscache.TransformFunc) toolscache.TransformFunc {
	return func(object any) (any, error) {
		pod, ok := object.(*corev1.Pod)
		if !ok || !losesReferences(pod) {
			return trim(object)
		}
		kept := reflection.Condense(&pod.Spec)
		trimmed, err := trim(object)
		if pod, ok := trimmed.(*corev1.Pod); ok && err == nil {
			pod.Spec.Volumes, pod.Spec.ImagePullSecrets = kept, nil
		}
		return trimmed, err
	}
}

func losesReferences(pod *corev1.Pod) bool {
	_, away := peerOf(pod)
	_, remote := pod.Labels[v1alpha1.LabelHomeUID]
	return away && !remote
}
