package kubelet

import (
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Most strings of a pod are those of all pods of its Deployment, or of all pods there are. What decodes objects makes each
// anew, and with ten thousand pods that is a good part of the memory. So those that are cached share one. Package unique
// forgets with each collection of garbage which it has seen, so that what comes later shares another one: a few in place of
// thousands, and nothing that grows.

// shareOfPod shares what other pods have as well.
func shareOfPod(pod *corev1.Pod) {
	shareOfMeta(&pod.ObjectMeta)
	spec := &pod.Spec
	share(
		&spec.NodeName, &spec.ServiceAccountName, &spec.DeprecatedServiceAccount, &spec.SchedulerName,
		&spec.PriorityClassName, &spec.Hostname, &spec.Subdomain,
	)
	shareKind(&spec.RestartPolicy)
	shareKind(&spec.DNSPolicy)
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			share(&containers[i].Name, &containers[i].Image)
			for m := range containers[i].VolumeMounts {
				mount := &containers[i].VolumeMounts[m]
				share(&mount.Name, &mount.MountPath, &mount.SubPath)
			}
		}
	}
	shareOfStatus(&pod.Status)
}

func shareOfStatus(status *corev1.PodStatus) {
	share(&status.Message, &status.Reason, &status.HostIP)
	shareKind(&status.Phase)
	shareKind(&status.QOSClass)
	for i := range status.HostIPs {
		share(&status.HostIPs[i].IP)
	}
	for i := range status.Conditions {
		condition := &status.Conditions[i]
		shareKind(&condition.Type)
		shareKind(&condition.Status)
		share(&condition.Reason, &condition.Message)
	}
	for _, containers := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range containers {
			share(&containers[i].Name, &containers[i].Image, &containers[i].ImageID)
		}
	}
}

// shareOfRecord shares what other records have as well.
func shareOfRecord(shadow *v1alpha1.ShadowPod) {
	shareOfMeta(&shadow.ObjectMeta)
	share(&shadow.Kind, &shadow.APIVersion)
	for i := range shadow.Status.Conditions {
		condition := &shadow.Status.Conditions[i]
		share(&condition.Type, &condition.Reason, &condition.Message)
		shareKind(&condition.Status)
	}
}

func shareOfMeta(meta *metav1.ObjectMeta) {
	share(&meta.Namespace, &meta.GenerateName)
	meta.Labels = shared(meta.Labels)
	meta.Annotations = shared(meta.Annotations)
	for i := range meta.Finalizers {
		share(&meta.Finalizers[i])
	}
	for i := range meta.OwnerReferences {
		owner := &meta.OwnerReferences[i]
		share(&owner.APIVersion, &owner.Kind, &owner.Name)
		shareKind(&owner.UID)
	}
}

func share(texts ...*string) {
	for _, text := range texts {
		shareKind(text)
	}
}

func shareKind[T ~string](text *T) {
	if *text != "" {
		*text = T(unique.Make(string(*text)).Value())
	}
}

func shared(texts map[string]string) map[string]string {
	if texts == nil {
		return nil
	}
	out := make(map[string]string, len(texts))
	for key, value := range texts {
		share(&key, &value)
		out[key] = value
	}
	return out
}
