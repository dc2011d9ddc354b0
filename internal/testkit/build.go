// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Peer returns the Peer of that name with those roles. Its cluster id is the name with "-id" behind it.
func Peer(name string, roles ...v1alpha1.PeerRole) *v1alpha1.Peer {
	return &v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid"), Generation: 1},
		Spec:       v1alpha1.PeerSpec{ClusterID: name + "-id", Roles: roles},
	}
}

// TenantNamespace returns the namespace for the messages of the peer.
func TenantNamespace(peer string) *corev1.Namespace {
	return Namespace(v1alpha1.TenantNamespace(peer), map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeTenant, v1alpha1.LabelPeer: peer, v1alpha1.LabelManaged: "true",
	})
}

// Namespace returns a namespace with those labels.
func Namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// Advertisement returns the accepted offer of the peer, as it lies in its tenant namespace: 8 CPUs, 16Gi, 100 pods.
func Advertisement(peer string) *v1alpha1.Advertisement {
	ad := &v1alpha1.Advertisement{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(peer), Name: peer + "-id"},
		Spec:       v1alpha1.AdvertisementSpec{ClusterID: peer + "-id", Availability: Resources("8", "16Gi", "100", "50Gi")},
	}
	SetCondition(&ad.Status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	return ad
}

// Resources returns amounts of cpu, memory, pods and ephemeral storage, in this order, as many as are given.
func Resources(amounts ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i, name := range []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage,
	} {
		if i < len(amounts) {
			list[name] = resource.MustParse(amounts[i])
		}
	}
	return list
}

// Quantities returns resources by name, from pairs of a name and an amount.
func Quantities(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// Offloading returns the NamespaceOffloading of the namespace, with the strategy that is the default.
func Offloading(namespace string) *v1alpha1.NamespaceOffloading {
	return &v1alpha1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName, Generation: 1},
	}
}

// Mapping returns the NamespaceMapping of the home namespace in the tenant namespace of that peer, with its twin ready.
func Mapping(peer, home, twin string) *v1alpha1.NamespaceMapping {
	mapping := &v1alpha1.NamespaceMapping{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(peer), Name: home},
		Spec:       v1alpha1.NamespaceMappingSpec{HomeNamespace: home},
		Status:     v1alpha1.NamespaceMappingStatus{Twin: twin},
	}
	SetCondition(&mapping.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonTwinCreated)
	return mapping
}

// ShadowPod returns the record of the pod in the twin namespace.
func ShadowPod(twin string, of *corev1.Pod) *v1alpha1.ShadowPod {
	return &v1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: twin, Name: of.Name, UID: types.UID("shadow-" + of.Name), Finalizers: []string{v1alpha1.FinalizerShadowPod},
		},
		Spec: v1alpha1.ShadowPodSpec{HomeUID: of.UID, Pod: `{}`},
	}
}

// OwnedByShadowPod returns the owner of the pod that runs for the ShadowPod.
func OwnedByShadowPod(name string, uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "ShadowPod", Name: name, UID: uid, Controller: ptr.To(true),
	}}
}

// TwinNamespace returns the namespace of that name that stands for one of the peer's.
func TwinNamespace(name, peer string) *corev1.Namespace {
	return Namespace(name, map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelPeer: peer, v1alpha1.LabelManaged: "true",
	})
}

// VirtualNode returns the Node that stands for the peer.
func VirtualNode(peer string, labels map[string]string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   v1alpha1.VirtualNodeName(peer),
		Labels: map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeer: peer},
	}}
	maps.Copy(node.Labels, labels)
	return node
}

// Pod returns a pending pod of one container on that node. An empty node means that it is not bound yet.
func Pod(namespace, name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID("uid-" + name), Generation: 1, CreationTimestamp: metav1.NewTime(Noon),
		},
		Spec: corev1.PodSpec{
			NodeName: node, RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{{Name: "web", Image: "registry.example/shop:1"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

// SetCondition puts a condition among the others. Its message is empty.
func SetCondition(conditions *[]metav1.Condition, kind string, status metav1.ConditionStatus, reason string) {
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(Noon),
	})
}
