package agentless

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// templateFrom returns the template of a ReplicaSet or Job.
func templateFrom(owner client.Object) corev1.PodTemplateSpec {
	switch owner := owner.(type) {
	case *appsv1.ReplicaSet:
		return owner.Spec.Template
	case *batchv1.Job:
		return owner.Spec.Template
	default:
		return corev1.PodTemplateSpec{}
	}
}

// changedPod returns the pod with the labels, annotations and images of the template. Entries that were in the template
// before and are not now go; those that others have put on the pod stay.
func changedPod(pod *corev1.Pod, before, now corev1.PodTemplateSpec) *corev1.Pod {
	changed := pod.DeepCopy()
	changed.Labels = merged(pod.Labels, before.Labels, now.Labels)
	changed.Annotations = merged(pod.Annotations, before.Annotations, now.Annotations)
	for _, lists := range [][2][]corev1.Container{
		{changed.Spec.InitContainers, now.Spec.InitContainers}, {changed.Spec.Containers, now.Spec.Containers},
	} {
		eachOf(lists[0], lists[1], func(running, wanted *corev1.Container) { running.Image = wanted.Image })
	}
	return changed
}

// resizedPod returns the pod with the resources of the template.
func resizedPod(pod *corev1.Pod, now corev1.PodTemplateSpec) *corev1.Pod {
	resized := pod.DeepCopy()
	for _, lists := range [][2][]corev1.Container{
		{resized.Spec.InitContainers, now.Spec.InitContainers}, {resized.Spec.Containers, now.Spec.Containers},
	} {
		eachOf(lists[0], lists[1], func(running, wanted *corev1.Container) {
			adopt(running.Resources.Requests, wanted.Resources.Requests)
			adopt(running.Resources.Limits, wanted.Resources.Limits)
		})
	}
	return resized
}

// adopt takes over the amounts of resources that the pod has: which those are cannot change while it runs, and the peer's
// defaults stay.
func adopt(running, wanted corev1.ResourceList) {
	for name := range running {
		if amount, named := wanted[name]; named {
			running[name] = amount
		}
	}
}

func eachOf(running, wanted []corev1.Container, apply func(running, wanted *corev1.Container)) {
	for i := range running {
		for j := range wanted {
			if running[i].Name == wanted[j].Name {
				apply(&running[i], &wanted[j])
			}
		}
	}
}

func merged(entries, before, now map[string]string) map[string]string {
	out := maps.Clone(entries)
	if out == nil {
		out = map[string]string{}
	}
	for key := range before {
		if _, stays := now[key]; !stays {
			delete(out, key)
		}
	}
	maps.Copy(out, now)
	return out
}
