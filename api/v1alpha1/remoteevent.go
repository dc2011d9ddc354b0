// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxRemoteEvents is how many events a message tells of, such as a ShadowPod of those of its pod.
const MaxRemoteEvents = 10

// Sources of events.
const (
	// SourceKubelet is the kubelet that runs the pod.
	SourceKubelet = "Kubelet"
	// SourceHanse is the provider's Hanse.
	SourceHanse = "Hanse"
	// SourceKubernetes is a controller of the provider's cluster, or a provisioner of its volumes.
	SourceKubernetes = "Kubernetes"
)

// RemoteEvent is something that happened to an object at the provider once or several times.
type RemoteEvent struct {
	// type is Normal or Warning.
	// +required
	// +kubebuilder:validation:Enum=Normal;Warning
	Type string `json:"type"`

	// reason is the kind of event, in one word.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z]+$`
	Reason string `json:"reason"`

	// container is the name of the container of a pod that the event is about. By default it is about the whole object.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Container string `json:"container,omitempty"`

	// message says what happened, without names and addresses of the provider's nodes.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`

	// source says who saw it. It names no node.
	// +required
	// +kubebuilder:validation:Enum=Kubelet;Hanse;Kubernetes
	Source string `json:"source"`

	// count is about how often it happened.
	// +required
	// +kubebuilder:validation:Minimum=1
	Count int32 `json:"count"`

	// first is when it happened first, by the provider's clock.
	// +required
	First metav1.Time `json:"first"`

	// last is when it happened last, by the provider's clock.
	// +required
	Last metav1.Time `json:"last"`
}
