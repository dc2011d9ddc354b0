package offload

import (
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// guardedTaints keep pods off nodes on which no peer's pod may run, whatever is offered.
var guardedTaints = []string{
	"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master", v1alpha1.TaintVirtualNode, v1alpha1.TaintWithdrawn,
}

// offeredTolerations returns the tolerations of taints that the provider offers. All others speak of the consumer's nodes,
// or of nodes that the provider keeps for somebody else.
func offeredTolerations(in []corev1.Toleration, offered []corev1.Taint) []corev1.Toleration {
	var out []corev1.Toleration
	for i := range in {
		if isOffered(&in[i], offered) {
			out = append(out, in[i])
		}
	}
	return out
}

func isOffered(t *corev1.Toleration, offered []corev1.Taint) bool {
	if t.Key == "" || slices.Contains(guardedTaints, t.Key) {
		return false
	}
	return slices.ContainsFunc(offered, func(taint corev1.Taint) bool {
		return t.ToleratesTaint(logr.Discard(), &taint, false)
	})
}
