// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// MaxShadowPodBytes is the largest pod, as JSON, that a provider takes in a ShadowPod. What a kubelet can run is far
// smaller; what etcd takes is larger.
const MaxShadowPodBytes = 256 << 10

// MaxPath is how many clusters a pod may have come through when a provider is asked to run it.
const MaxPath = 4

// MaxOnwardBytes is how long spec.onward may be. What one NamespaceOffloading of the largest size asks takes less.
const MaxOnwardBytes = 32 << 10

// ShadowPodSpec says which pod a provider must keep running.
type ShadowPodSpec struct {
	// homeUID is the UID of the consumer's pod that this one runs for. A peer cannot change it: another pod is another
	// ShadowPod.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	HomeUID types.UID `json:"homeUID"`

	// pod is the pod to run, as the JSON of a pod template (metadata with labels and annotations, and spec). The provider
	// reads it strictly and builds its own pod from the fields that it allows. At most 256 KiB.
	// +required
	// +kubebuilder:validation:MaxLength=262144
	Pod string `json:"pod"`

	// deletionGracePeriodSeconds is the grace that the pod is deleted with when this object is deleted, in seconds. By
	// default the pod's own.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DeletionGracePeriodSeconds *int64 `json:"deletionGracePeriodSeconds,omitempty"`

	// path are the ids of the clusters that the pod has come through, its home first. By default the consumer alone. A
	// provider sends it on to none of them. It cannot change.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=30
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Path []string `json:"path,omitempty"`

	// onward is what is asked of each cluster that the pod may be sent on to, by its home and by the clusters that it has
	// come through: a list of OnwardPlacement as JSON, of which all must hold. By default nothing is asked. A provider
	// that sends the pod on obeys it, and keeps on its own nodes a pod of which it cannot read this. Condition Onward says
	// which. It cannot change.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Onward string `json:"onward,omitempty"`

	// request is the name of a Request of the consumer whose reservation the pod uses. While that is not acknowledged, or by
	// default, the pod gets what is reserved for nobody. It cannot change.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Request string `json:"request,omitempty"`
}

// OnwardPlacement is what one cluster asks of each cluster that a pod is sent on to.
type OnwardPlacement struct {
	// clusterSelector selects clusters by the labels of their virtual nodes in the cluster that sends the pod on. By default
	// all.
	// +optional
	ClusterSelector *ClusterSelector `json:"clusterSelector,omitempty"`

	// exclude are the ids of clusters that the pod must not be sent on to.
	// +optional
	Exclude []string `json:"exclude,omitempty"`

	// request is the pod that maxPrice is about. By default one core and 1Gi of memory.
	// +optional
	Request corev1.ResourceList `json:"request,omitempty"`

	// maxPrice is the most that such a pod may cost for an hour, by what the cluster that is asked here was offered.
	// +optional
	MaxPrice *Price `json:"maxPrice,omitempty"`

	// maxLatency is how far away, by the round-trip time, a cluster may be from the one that sends the pod on.
	// +optional
	MaxLatency *metav1.Duration `json:"maxLatency,omitempty"`

	// minBandwidth is how many bytes per second must pass between a cluster and the one that sends the pod on.
	// +optional
	MinBandwidth *resource.Quantity `json:"minBandwidth,omitempty"`
}

// ShadowPodStatus is what the provider tells of the pod.
type ShadowPodStatus struct {
	// conditions: Scheduled (the provider's scheduler found a node), Ready (as the pod's), Unrecoverable (the pod can
	// no longer be made; home should run another), Onward (whether the pod may be sent on by what spec.onward asks).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase is the phase of the pod.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Phase string `json:"phase,omitempty"`

	// podUID is the UID of the pod that runs now. It changes when the provider had to make the pod again.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=63
	PodUID types.UID `json:"podUID,omitempty"`

	// pod is the status of the pod, as far as the provider shows it.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Pod *runtime.RawExtension `json:"pod,omitempty"`

	// recreations counts how often the pod was made again.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Recreations int32 `json:"recreations,omitempty"`

	// recreationsInARow counts how often in a row the pod was made again after it had not run for long. It says how long
	// the provider waits before it makes the next, and when it gives up.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RecreationsInARow int32 `json:"recreationsInARow,omitempty"`

	// restarts are the restarts of each container, by its name, of earlier pods of this record; that it began again in
	// the next pod is one of them. The home pod shows them and the running pod's own added up, so that its counts never
	// go back.
	// +optional
	// +kubebuilder:validation:MaxProperties=250
	Restarts map[string]int32 `json:"restarts,omitempty"`

	// events are what happened to the pod, as far as the provider shows it: the latest of each kind.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Events []RemoteEvent `json:"events,omitempty"`
}

// Its spec has one writer, and so has its status. So each is one field to the API server, which then has no list of their
// fields to work out and to store with each write; and no rule in CEL looks at them, as it would at each write of the status.
// What a peer may not change is in the policy hanse-guard-objects.

// ShadowPod keeps one pod running at a provider until its home deletes it. It has the name of the pod, and is the only
// window through which the consumer sees it.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=hpod,categories=hanse
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Recreations",type=integer,JSONPath=`.status.recreations`
// +kubebuilder:printcolumn:name="Home UID",type=string,priority=1,JSONPath=`.spec.homeUID`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ShadowPod struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the pod to keep, by the consumer.
	// +required
	// +structType=atomic
	Spec ShadowPodSpec `json:"spec"`
	// status is what the provider tells of the pod.
	// +optional
	// +structType=atomic
	Status ShadowPodStatus `json:"status,omitempty"`
}

// ShadowPodList is a list of shadow pods.
// +kubebuilder:object:root=true
type ShadowPodList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ShadowPod `json:"items"`
}

// OwnerShadowPod returns the ShadowPod that the pod runs for, nil if it is nobody's. Kubernetes deletes a pod that names an
// owner that there is not.
func OwnerShadowPod(pod metav1.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "ShadowPod" || owner.APIVersion != GroupVersion.String() {
		return nil
	}
	return owner
}
