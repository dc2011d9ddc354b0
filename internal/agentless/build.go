// SPDX-License-Identifier: Apache-2.0

package agentless

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/reflection"
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
	referToCopies(id, shadow.Namespace, &pod.Spec)
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
	offload.NoteAsked(&template.ObjectMeta, offload.AskedOf(&template.ObjectMeta, &template.Spec))
	return template, nil
}

func ownLabels(id string, uid types.UID) map[string]string {
	return map[string]string{v1alpha1.LabelAgentless: id, v1alpha1.LabelHomeUID: string(uid)}
}

// origin says which home pod the ShadowPod is for.
func origin(shadow *v1alpha1.ShadowPod) map[string]string {
	return map[string]string{v1alpha1.AnnotationHomeNamespace: shadow.Namespace, v1alpha1.AnnotationHomePod: shadow.Name}
}

// annotationsOf returns what is to be remembered of the ShadowPod.
func annotationsOf(shadow *v1alpha1.ShadowPod) map[string]string {
	annotations := origin(shadow)
	for key, value := range shadow.Annotations {
		if _, own := annotations[key]; !own && key != v1alpha1.AnnotationRecord {
			annotations[key] = value
		}
	}
	if grace := shadow.Spec.DeletionGracePeriodSeconds; grace != nil {
		annotations[v1alpha1.AnnotationDeletionGrace] = strconv.FormatInt(*grace, 10)
	}
	if asksForDebugging(shadow) {
		annotations[v1alpha1.AnnotationDebugAsked] = "true"
	}
	return annotations
}

func asksForDebugging(shadow *v1alpha1.ShadowPod) bool {
	if shadow.Spec.Pod == "" {
		return shadow.Annotations[v1alpha1.AnnotationDebugAsked] != ""
	}
	containers, err := offload.Debugging(shadow, offload.Rules{})
	return err == nil && len(containers) > 0
}

// refusal says why a cluster without Hanse cannot run the pod of that name as it should, in words for its author, or "".
func refusal(name string, spec *corev1.PodSpec) string {
	for _, judge := range []func(*corev1.PodSpec) string{restartRefusal, projectionRefusal} {
		if reason := judge(spec); reason != "" {
			return reason
		}
	}
	if spec.Hostname == "" && spec.HostnameOverride == nil && len(validation.IsDNS1123Label(hostname(name))) > 0 {
		return fmt.Sprintf("its name %q is no host name, which at a cluster without Hanse it must be: set spec.hostname", name)
	}
	return ""
}

// restartRefusal refuses what neither a ReplicaSet nor a Job of one can hold.
func restartRefusal(spec *corev1.PodSpec) string {
	switch {
	case spec.RestartPolicy == corev1.RestartPolicyOnFailure:
		return "its restartPolicy is OnFailure: a cluster without Hanse runs pods with Always and Never alone, since a Job " +
			"there could start it again after it has ended"
	case spec.RestartPolicy != corev1.RestartPolicyNever && spec.ActiveDeadlineSeconds != nil:
		return "it has activeDeadlineSeconds and restartPolicy Always: at a cluster without Hanse a ReplicaSet would start " +
			"it again after its deadline"
	default:
		return ""
	}
}

// projectionRefusal refuses volumes of what only the cluster of the pod's author has.
func projectionRefusal(spec *corev1.PodSpec) string {
	roots := false
	reflection.Visit(spec, func(kind reflection.Kind, name *string, _ *bool) {
		roots = roots || kind == reflection.ConfigMap && *name == reflection.RootCertificates
	})
	if roots {
		return fmt.Sprintf("it refers to ConfigMap %q, which does not go to a cluster without Hanse", reflection.RootCertificates)
	}
	for i := range spec.Volumes {
		projected := spec.Volumes[i].Projected
		if projected != nil && slices.ContainsFunc(projected.Sources, isOfHome) {
			return fmt.Sprintf("volume %q projects more than ConfigMaps, Secrets and the pod's own fields, which does not go to a "+
				"cluster without Hanse", spec.Volumes[i].Name)
		}
	}
	return ""
}

func isOfHome(s corev1.VolumeProjection) bool {
	return s.DownwardAPI == nil && s.ConfigMap == nil && s.Secret == nil
}

// referToCopies has the pod refer to copies of the objects of home's namespace, by their names at the peer.
func referToCopies(id, namespace string, spec *corev1.PodSpec) {
	reflection.Visit(spec, func(_ reflection.Kind, name *string, _ *bool) {
		if *name != "" {
			*name = remoteName(id, types.NamespacedName{Namespace: namespace, Name: *name})
		}
	})
}

// hostname is what a kubelet makes of the name of a pod that does not say how its host is called.
func hostname(name string) string {
	const most = 63
	if len(name) > most {
		name = strings.TrimRight(name[:most], "-.")
	}
	return name
}

func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:])
}

// maxReadable is how much of the name of a pod, or of what it refers to, is in the name at the peer: with the hash and what
// controllers add, no name is longer than a label may be.
const maxReadable = 40

// remoteName returns the name of what runs the home pod, or of the copy of what a pod refers to. Objects of that name in other
// namespaces, and of other homes, have other ones.
func remoteName(id string, home types.NamespacedName) string {
	readable := strings.ReplaceAll(home.Name, ".", "-")
	if len(readable) > maxReadable {
		readable = strings.TrimRight(readable[:maxReadable], "-")
	}
	return readable + "-" + hash(id, home.Namespace, home.Name)[:10]
}

// homeOf returns the home pod that an object at the peer is for. Whatever is not ours, or has been tampered with, is for
// none.
func homeOf(id string, object client.Object) (types.NamespacedName, bool) {
	home, ours := originOf(id, object, v1alpha1.AnnotationHomePod)
	return home, ours && object.GetLabels()[v1alpha1.LabelHomeUID] != ""
}

// originOf returns the object at home that an object at the peer is for, whose name the annotation says.
func originOf(id string, object client.Object, named string) (types.NamespacedName, bool) {
	annotations := object.GetAnnotations()
	home := types.NamespacedName{Namespace: annotations[v1alpha1.AnnotationHomeNamespace], Name: annotations[named]}
	sound := len(validation.IsDNS1123Label(home.Namespace)) == 0 && len(validation.IsDNS1123Subdomain(home.Name)) == 0
	return home, sound && object.GetLabels()[v1alpha1.LabelAgentless] == id
}
