// SPDX-License-Identifier: Apache-2.0

package move

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Owner is the controller of a pod that moves.
type Owner struct {
	v1alpha1.MoveOwner
	// Template is what it makes its pods from, and Selector what it knows them by: of ReplicaSets and ReplicationControllers alone.
	Template *corev1.PodTemplateSpec
	Selector labels.Selector
	// Replicas is how many pods it is to have.
	Replicas int32
	// MinReadySeconds is for how long a pod must be Ready before it counts.
	MinReadySeconds int32
	// Busy says why it is about to replace or remove its pods itself, or is "".
	Busy string
	// Unforgiving says why it does not make another pod in the place of one that is evicted, or is "".
	Unforgiving string
	// Pods are those that it controls.
	Pods []corev1.Pod
}

// active is how many of its pods the controller counts.
func (o *Owner) active() int {
	n := 0
	for i := range o.Pods {
		if isActive(&o.Pods[i]) {
			n++
		}
	}
	return n
}

// methods are those by which the pod of that controller, nil without one, can be moved as the PodMove asks, the best first.
func methods(m *v1alpha1.PodMove, owner *metav1.OwnerReference) []v1alpha1.MoveMethod {
	var able []v1alpha1.MoveMethod
	if owner == nil || adoptsPods(owner) {
		able = append(able, v1alpha1.MoveSurge)
	}
	if owner != nil && m.Spec.Bind != v1alpha1.BindAtCreation {
		able = append(able, v1alpha1.MoveSteer)
	}
	if owner == nil { // a controller would make another pod in the place of the original at once
		able = append(able, v1alpha1.MoveDeleteFirst)
	}
	return slices.DeleteFunc(able, func(method v1alpha1.MoveMethod) bool { return m.Spec.Method != "" && m.Spec.Method != method })
}

// adoptsPods says whether the controller takes pods for its own that somebody else has made.
func adoptsPods(owner *metav1.OwnerReference) bool {
	return owner.Kind == "ReplicaSet" && owner.APIVersion == "apps/v1" || owner.Kind == "ReplicationController" && owner.APIVersion == "v1"
}

// HiddenLabel returns the label without which the selector no longer matches the pod's labels, "" if there is none. One is
// always enough. Of several the one is best that the fewest Services select by, and among those the one that a Deployment adds.
func HiddenLabel(selector labels.Selector, of map[string]string, services []corev1.Service) string {
	requirements, _ := selector.Requirements()
	best, fewest := "", 0
	for _, r := range requirements {
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals, selection.Exists, selection.GreaterThan, selection.LessThan:
		default:
			continue // a pod without the label matches too
		}
		lost := 0
		for i := range services {
			if _, selects := services[i].Spec.Selector[r.Key()]; selects && labels.SelectorFromSet(services[i].Spec.Selector).Matches(labels.Set(of)) {
				lost++
			}
		}
		if best == "" || lost < fewest || lost == fewest && r.Key() == appsv1.DefaultDeploymentUniqueLabelKey {
			best, fewest = r.Key(), lost
		}
	}
	return best
}
