// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// nodeNameField is the index of pods by the virtual node that they are bound to.
const nodeNameField = "spec.nodeName"

// CacheByObject returns what the process's cache keeps of each kind: of Nodes the virtual ones, of pods and Services
// what TrimPod and TrimService leave.
func CacheByObject() map[client.Object]cache.ByObject {
	virtual := labels.SelectorFromSet(labels.Set{v1alpha1.LabelType: v1alpha1.TypeVirtualNode})
	return map[client.Object]cache.ByObject{
		&corev1.Pod{}:                   {Transform: TrimPod},
		&corev1.Service{}:               {Transform: TrimService},
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
		shareTexts(pod)
	}
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

// wholePod returns the pod as the API server has it where the cache has only a part of it. One that has failed by then, by
// what we wrote ourselves, must not run anew.
func wholePod(ctx context.Context, live client.Reader, pod *corev1.Pod) (*corev1.Pod, error) {
	if !started(pod) {
		return pod, nil
	}
	all := &corev1.Pod{}
	if err := live.Get(ctx, client.ObjectKeyFromObject(pod), all); err != nil {
		return nil, fmt.Errorf("read Pod: %w", err)
	}
	if all.UID != pod.UID || terminal(all) && !terminal(pod) {
		return nil, errWaiting // for the cache to hear of it
	}
	return all, nil
}

// trimRecord removes the pod from a ShadowPod, because each update sets it, and shares what all ShadowPods have. spec.onward stays: an update
// sends it back unchanged, because the provider refuses a change of it.
func trimRecord(object client.Object) {
	if shadow, ok := object.(*v1alpha1.ShadowPod); ok {
		shadow.Spec.Pod = ""
		offload.DropTooLarge(&shadow.Status)
		if phase := corev1.PodPhase(shadow.Status.Phase); phase != "" && phase != corev1.PodPending {
			shareTexts(shadow)
		}
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

// podsOn returns the pods of a namespace, or of all, that are bound to the virtual node.
func podsOn(ctx context.Context, reader client.Reader, node, namespace string) ([]corev1.Pod, error) {
	return listPods(ctx, reader, client.MatchingFields{nodeNameField: node}, client.InNamespace(namespace))
}

// PodsOf returns a function that says how many pods are on the virtual node of a peer, for peers.Config.Pods. It reads the cache
// of the manager that SetupWithManager was called with.
func PodsOf(reader client.Reader) func(peer string) int {
	return func(peer string) int {
		ctx := context.Background() //nolint:forbidigo // a cache is read, and nothing is waited for
		pods, err := listPods(ctx, reader, client.MatchingFields{nodeNameField: v1alpha1.VirtualNodeName(peer)})
		if err != nil {
			return 0 // before the cache is filled; what is too much then is read again
		}
		return len(pods)
	}
}

// listPods returns pods, which are the cache's own and must not be changed.
func listPods(ctx context.Context, reader client.Reader, options ...client.ListOption) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	if err := reader.List(ctx, pods, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return pods.Items, nil
}

// Most strings of a pod are those of all pods of its Deployment, or of all pods there are. What decodes objects makes each
// anew, and with ten thousand pods that is a good part of the memory. So those that are cached share one. Package unique
// forgets with each collection of garbage which it has seen, so that what comes later shares another one: a few in place of
// thousands, and nothing that grows. What a pod is while it starts is soon replaced, and shares nothing.

// shareTexts has what the object consists of share the strings that others have as well. No version is another's.
func shareTexts(object client.Object) {
	version := object.GetResourceVersion()
	object.SetResourceVersion("")
	share(reflect.ValueOf(object))
	object.SetResourceVersion(version)
}

func share(v reflect.Value) {
	switch v.Kind() { //nolint:exhaustive // in no other kind are strings
	case reflect.Pointer:
		if !v.IsNil() {
			share(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Field(i); field.CanSet() {
				share(field)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			share(v.Index(i))
		}
	case reflect.Map:
		if texts, ok := v.Interface().(map[string]string); ok && texts != nil {
			v.Set(reflect.ValueOf(shared(texts)))
		}
	case reflect.String:
		v.SetString(unique.Make(v.String()).Value())
	}
}

func shared(texts map[string]string) map[string]string {
	out := make(map[string]string, len(texts))
	for key, value := range texts {
		out[unique.Make(key).Value()] = unique.Make(value).Value()
	}
	return out
}
