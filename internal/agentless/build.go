package agentless

import (
	"errors"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// build returns what keeps the pod of the ShadowPod running in that namespace of the peer: a ReplicaSet of one replica, or
// a Job of one pod that is not to be restarted. Its error is in words for the pod's author.
func build(id, namespace string, shadow *v1alpha1.ShadowPod) (client.Object, error) {
	template, err := templateOf(id, shadow)
	if err != nil {
		return nil, err
	}
	home := types.NamespacedName{Namespace: shadow.Namespace, Name: shadow.Name}
	described := metav1.ObjectMeta{
		Namespace:   namespace,
		Name:        remoteName(id, home),
		Labels:      ownLabels(id, shadow.Spec.HomeUID),
		Annotations: annotationsOf(shadow),
	}
	if template.Spec.RestartPolicy == corev1.RestartPolicyNever {
		return &batchv1.Job{ObjectMeta: described, Spec: jobOf(template)}, nil
	}
	return &appsv1.ReplicaSet{ObjectMeta: described, Spec: appsv1.ReplicaSetSpec{
		Replicas: ptr.To[int32](1),
		Selector: &metav1.LabelSelector{MatchLabels: ownLabels(id, shadow.Spec.HomeUID)},
		Template: template,
	}}, nil
}

// jobOf makes a Job that runs the pod to its end, once: another pod comes only if the cluster itself has ended one.
func jobOf(template corev1.PodTemplateSpec) batchv1.JobSpec {
	return batchv1.JobSpec{
		Completions:  ptr.To[int32](1),
		Parallelism:  ptr.To[int32](1),
		BackoffLimit: ptr.To[int32](0),
		PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action: batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
			}},
		}}},
		PodReplacementPolicy: ptr.To(batchv1.Failed),
		Template:             template,
	}
}

// labelsOfJobs are what the pods of a Job at home say of it. Over there they would have to speak of the Job there.
var labelsOfJobs = []string{
	batchv1.ControllerUidLabel, batchv1.JobNameLabel, "controller-uid", "job-name",
}

// templateOf returns the pod that is to run, made of the fields that providers with Hanse take too. Its processes see the
// host name that they have at home.
func templateOf(id string, shadow *v1alpha1.ShadowPod) (corev1.PodTemplateSpec, error) {
	pod, err := offload.Build(shadow, offload.Rules{})
	if err != nil {
		return corev1.PodTemplateSpec{}, err
	}
	if reason := refusal(shadow.Name, &pod.Spec); reason != "" {
		return corev1.PodTemplateSpec{}, errors.New(reason)
	}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations},
		Spec:       pod.Spec,
	}
	if template.Spec.Hostname == "" && template.Spec.HostnameOverride == nil {
		template.Spec.Hostname = hostname(shadow.Name)
	}
	for _, key := range labelsOfJobs {
		delete(template.Labels, key)
	}
	for key, value := range ownLabels(id, shadow.Spec.HomeUID) {
		metav1.SetMetaDataLabel(&template.ObjectMeta, key, value)
	}
	for key, value := range origin(shadow) {
		metav1.SetMetaDataAnnotation(&template.ObjectMeta, key, value)
	}
	return template, nil
}

func ownLabels(id string, uid types.UID) map[string]string {
	return map[string]string{v1alpha1.LabelAgentless: id, v1alpha1.LabelHomeUID: string(uid)}
}

// origin says which home pod the ShadowPod is for.
func origin(shadow *v1alpha1.ShadowPod) map[string]string {
	return map[string]string{v1alpha1.AnnotationHomeNamespace: shadow.Namespace, annotationHomePod: shadow.Name}
}

// annotationsOf returns what is to be remembered of the ShadowPod.
func annotationsOf(shadow *v1alpha1.ShadowPod) map[string]string {
	annotations := origin(shadow)
	for key, value := range shadow.Annotations {
		if _, own := annotations[key]; !own && key != annotationRecord {
			annotations[key] = value
		}
	}
	if grace := shadow.Spec.DeletionGracePeriodSeconds; grace != nil {
		annotations[annotationGrace] = strconv.FormatInt(*grace, 10)
	}
	if asksForDebugging(shadow) {
		annotations[annotationDebug] = "true"
	}
	return annotations
}

func asksForDebugging(shadow *v1alpha1.ShadowPod) bool {
	if len(shadow.Spec.Pod.Raw) == 0 {
		return shadow.Annotations[annotationDebug] != ""
	}
	containers, err := offload.Debugging(shadow, offload.Rules{})
	return err == nil && len(containers) > 0
}
