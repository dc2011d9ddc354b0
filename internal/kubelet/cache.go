package kubelet

import (
	"context"
	"fmt"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// nodeNameField is the index of pods by the virtual node that they are bound to.
const nodeNameField = "spec.nodeName"

// CacheByObject returns what the process's cache keeps of each kind: of Nodes the virtual ones, of pods what TrimPod
// leaves.
func CacheByObject() map[client.Object]cache.ByObject {
	virtual := labels.SelectorFromSet(labels.Set{v1alpha1.LabelType: v1alpha1.TypeVirtualNode})
	return map[client.Object]cache.ByObject{
		&corev1.Pod{}:                   {Transform: TrimPod},
		&corev1.Node{}:                  {Label: virtual, Transform: cache.TransformStripManagedFields()},
		&v1alpha1.Peer{}:                {Transform: cache.TransformStripManagedFields()},
		&v1alpha1.Advertisement{}:       {Transform: cache.TransformStripManagedFields()},
		&v1alpha1.NamespaceOffloading{}: {Transform: cache.TransformStripManagedFields()},
	}
}

// TrimPod is a cache transform that keeps of a pod what is read: of one that may be on a virtual node all but what
// field managers and kubectl note down, and of the spec of one that has started what its status is judged by; of all
// others just which it is. See wholePod for those who need more.
func TrimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil // a tombstone: what it holds was trimmed before
	}
	if !maybeVirtual(pod.Spec.NodeName) {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		}}, nil
	}
	pod.ManagedFields = nil
	delete(pod.Annotations, corev1.LastAppliedConfigAnnotation)
	if started(pod) {
		trimSpec(&pod.Spec)
	}
	shareOfPod(pod)
	return pod, nil
}

// trimSpec takes off what is large, and read only when the pod goes out.
func trimSpec(spec *corev1.PodSpec) {
	spec.Volumes, spec.Affinity, spec.Tolerations, spec.NodeSelector = nil, nil, nil, nil
	spec.TopologySpreadConstraints, spec.ImagePullSecrets, spec.HostAliases, spec.DNSConfig = nil, nil, nil, nil
	spec.SecurityContext = nil
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			c := &containers[i]
			// Which volumes are mounted where is compared with what the peer tells.
			*c = corev1.Container{
				Name: c.Name, Image: c.Image, VolumeMounts: c.VolumeMounts,
				RestartPolicy: c.RestartPolicy, RestartPolicyRules: c.RestartPolicyRules,
			}
		}
	}
}

// wholePod returns the pod as the API server has it where the cache has only a part of it.
func wholePod(ctx context.Context, live client.Reader, pod *corev1.Pod) (*corev1.Pod, error) {
	if !started(pod) {
		return pod, nil
	}
	all := &corev1.Pod{}
	if err := live.Get(ctx, client.ObjectKeyFromObject(pod), all); err != nil {
		return nil, fmt.Errorf("read Pod: %w", err)
	}
	if all.UID != pod.UID {
		return nil, errWaiting // for the cache to hear of it
	}
	return all, nil
}

// trimRecord takes off a ShadowPod what we sent ourselves, and shares what all of them have.
func trimRecord(object client.Object) {
	if shadow, ok := object.(*v1alpha1.ShadowPod); ok {
		shadow.Spec.Pod.Raw = nil
		shareOfRecord(shadow)
	}
}

// maybeVirtual says whether a node of that name may be a virtual one. Only its label tells for certain.
func maybeVirtual(node string) bool { return strings.HasPrefix(node, v1alpha1.VirtualNodePrefix) }

// peerOf returns the name of the Peer that a virtual node of that name stands for.
func peerOf(node string) string { return strings.TrimPrefix(node, v1alpha1.VirtualNodePrefix) }

func indexPod(object client.Object) []string {
	pod, ok := object.(*corev1.Pod)
	if !ok || !maybeVirtual(pod.Spec.NodeName) {
		return nil
	}
	return []string{pod.Spec.NodeName}
}

// podsOn returns the pods of a namespace, or of all, that are bound to the virtual node. They are the cache's own and
// must not be changed.
func podsOn(ctx context.Context, reader client.Reader, node, namespace string) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	err := reader.List(ctx, pods, client.MatchingFields{nodeNameField: node}, client.InNamespace(namespace),
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list pods of Node %s: %w", node, err)
	}
	return pods.Items, nil
}

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
