package offload

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Changed returns the running pod with the labels, annotations and images of the wanted one. Entries of before that are
// wanted no more go, and those that others have put on the pod stay.
func Changed(pod *corev1.Pod, before metav1.ObjectMeta, wanted *corev1.Pod) *corev1.Pod {
	out := pod.DeepCopy()
	out.Labels = changedEntries(pod.Labels, before.Labels, wanted.Labels)
	out.Annotations = changedEntries(pod.Annotations, before.Annotations, wanted.Annotations)
	for _, lists := range [][2][]corev1.Container{
		{out.Spec.InitContainers, wanted.Spec.InitContainers}, {out.Spec.Containers, wanted.Spec.Containers},
	} {
		eachPair(lists[0], lists[1], func(running, wanted *corev1.Container) {
			if wanted.Image != "" {
				running.Image = wanted.Image
			}
		})
	}
	return out
}

func changedEntries(running, before, wanted map[string]string) map[string]string {
	out := maps.Clone(running)
	for key := range before {
		delete(out, key)
	}
	if out == nil && len(wanted) > 0 {
		out = map[string]string{}
	}
	maps.Copy(out, wanted)
	return out
}

// Resized returns the running pod with the resources of the wanted one that can change while it runs. What is not asked
// for stays: the cluster that runs the pod may have set it.
func Resized(pod, wanted *corev1.Pod) *corev1.Pod {
	out := pod.DeepCopy()
	resize := func(running, wanted *corev1.Container) { resizeTo(&running.Resources, &wanted.Resources) }
	eachPair(out.Spec.Containers, wanted.Spec.Containers, resize)
	eachPair(out.Spec.InitContainers, wanted.Spec.InitContainers, func(running, wanted *corev1.Container) {
		if running.RestartPolicy != nil && *running.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			resize(running, wanted)
		}
	})
	if out.Spec.Resources != nil && wanted.Spec.Resources != nil {
		resizeTo(out.Spec.Resources, wanted.Spec.Resources)
	}
	return out
}

func resizeTo(running, wanted *corev1.ResourceRequirements) {
	running.Requests = resizedAmounts(running.Requests, wanted.Requests)
	running.Limits = resizedAmounts(running.Limits, wanted.Limits)
}

func resizedAmounts(running, wanted corev1.ResourceList) corev1.ResourceList {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		amount, asked := wanted[name]
		if !asked {
			continue
		}
		if running == nil {
			running = corev1.ResourceList{}
		}
		running[name] = amount
	}
	return running
}

// eachPair goes through the containers that both lists have.
func eachPair(running, wanted []corev1.Container, do func(running, wanted *corev1.Container)) {
	for i := range running {
		for j := range wanted {
			if running[i].Name == wanted[j].Name {
				do(&running[i], &wanted[j])
			}
		}
	}
}
