package offload

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/json"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Build makes the pod that a provider runs for the ShadowPod, from the fields on the allow-list. It reads strictly: a
// field that is unknown or not on the list is an error that names it. The pod is owned by the ShadowPod, stays off
// virtual nodes unless the rules let it go on, has no token of the provider's API, is confined where its author left that open, and says itself what
// it asks for. It has no ephemeral containers, see Debugging.
func Build(shadow *v1alpha1.ShadowPod, rules Rules) (*corev1.Pod, error) {
	asked, err := decodeTemplate(shadow.Spec.Pod.Raw)
	if err != nil {
		return nil, err
	}
	allowed, err := allow(asked, rules.Taints)
	if err != nil {
		return nil, err
	}
	if problems := validation.IsValidLabelValue(string(shadow.Spec.HomeUID)); shadow.Spec.HomeUID == "" || len(problems) > 0 {
		return nil, errors.New("spec.homeUID: not a UID")
	}
	pod := &corev1.Pod{ObjectMeta: allowed.ObjectMeta, Spec: allowed.Spec}
	pod.Spec.EphemeralContainers = nil
	own(pod, shadow)
	confine(&pod.Spec, rules.Restricted)
	writeRequests(&pod.Spec, rules.LeastRequests)
	route(pod, rules.Path)
	return pod, nil
}

func decodeTemplate(raw []byte) (*corev1.PodTemplateSpec, error) {
	if len(raw) == 0 {
		return nil, errors.New("spec.pod: empty")
	}
	if len(raw) > v1alpha1.MaxShadowPodBytes {
		return nil, fmt.Errorf("spec.pod: %d bytes, at most %d are taken", len(raw), v1alpha1.MaxShadowPodBytes)
	}
	if err := checkExponents(raw); err != nil {
		return nil, fmt.Errorf("spec.pod: %s", bounded(err.Error(), maxMessage))
	}
	asked := &corev1.PodTemplateSpec{}
	unknown, err := json.UnmarshalStrict(raw, asked)
	if err != nil {
		return nil, fmt.Errorf("spec.pod: %s", bounded(err.Error(), maxMessage))
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("spec.pod: %s", bounded(unknown[0].Error(), maxMessage))
	}
	return asked, nil
}

// allow returns what is allowed of a template, or an error that names the first field that is not.
func allow(asked *corev1.PodTemplateSpec, taints []corev1.Taint) (*corev1.PodTemplateSpec, error) {
	if err := checkContainers(&asked.Spec); err != nil {
		return nil, err
	}
	allowed := &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      allowedEntries(asked.Labels, labelTravels),
			Annotations: allowedEntries(asked.Annotations, annotationAllowed),
		},
		Spec: allowedPodSpec(&asked.Spec),
	}
	allowed.Spec.Tolerations = offeredTolerations(asked.Spec.Tolerations, taints)
	left, err := firstDifference(asked, allowed)
	if err != nil {
		return nil, err
	}
	if left != "" {
		return nil, notAllowed(left)
	}
	return allowed, nil
}

func notAllowed(path string) error {
	path = bounded(path, maxMessage)
	if why := whyNot(path); why != "" {
		return fmt.Errorf("%s: not allowed: %s", path, why)
	}
	return fmt.Errorf("%s: not allowed", path)
}

func own(pod *corev1.Pod, shadow *v1alpha1.ShadowPod) {
	pod.Name, pod.Namespace = shadow.Name, shadow.Namespace
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[v1alpha1.LabelHomeUID] = string(shadow.Spec.HomeUID)
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(),
		Kind:       "ShadowPod",
		Name:       shadow.Name,
		UID:        shadow.UID,
		Controller: ptr.To(true),
	}}
}
