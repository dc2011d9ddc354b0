// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ShadowClaimSpec says which storage a provider must keep for a claim of the consumer's.
// +kubebuilder:validation:XValidation:rule="self.homeUID == oldSelf.homeUID",message="homeUID is immutable: another claim needs another ShadowClaim"
// +kubebuilder:validation:XValidation:rule="self.accessModes == oldSelf.accessModes",message="accessModes is immutable, as that of a PersistentVolumeClaim is"
// +kubebuilder:validation:XValidation:rule="(has(self.volumeMode) ? self.volumeMode : 'Filesystem') == (has(oldSelf.volumeMode) ? oldSelf.volumeMode : 'Filesystem')",message="volumeMode is immutable, as that of a PersistentVolumeClaim is"
// +kubebuilder:validation:XValidation:rule="has(self.storageClass) == has(oldSelf.storageClass) && (!has(self.storageClass) || self.storageClass == oldSelf.storageClass)",message="storageClass is immutable, as that of a PersistentVolumeClaim is"
// +kubebuilder:validation:XValidation:rule="has(self.dataSource) == has(oldSelf.dataSource) && (!has(self.dataSource) || self.dataSource == oldSelf.dataSource)",message="dataSource is immutable, as that of a PersistentVolumeClaim is"
// +kubebuilder:validation:XValidation:rule="has(self.snapshotOf) == has(oldSelf.snapshotOf) && (!has(self.snapshotOf) || self.snapshotOf == oldSelf.snapshotOf)",message="snapshotOf is immutable: another snapshot needs another ShadowClaim"
// +kubebuilder:validation:XValidation:rule="!has(self.snapshotOf) || self.storage == oldSelf.storage",message="storage of a snapshot is immutable: a snapshot does not grow"
// +kubebuilder:validation:XValidation:rule="!(has(self.snapshotOf) && has(self.dataSource))",message="snapshotOf: a snapshot begins with no other: give snapshotOf or dataSource, not both"
type ShadowClaimSpec struct {
	// homeUID is the UID of the consumer's PersistentVolumeClaim or VolumeSnapshot that the storage is for. It cannot change.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	HomeUID types.UID `json:"homeUID"`

	// storage is how much room is asked for, such as 10Gi. It may grow where the class of the provider lets it. It has at most 32
	// characters, and an exponent of at most two digits: to decode a larger one, such as 1e-999999999, takes minutes.
	// +required
	// +kubebuilder:validation:XValidation:rule="string(self).size() <= 32 && string(self).matches('^[0-9.]+([numkMGTPE]|[KMGTPE]i|[eE]-?[0-9]{1,2})?$')",message="storage must be a quantity of at most 32 characters, without a sign and with an exponent of at most two digits, such as 10Gi"
	Storage resource.Quantity `json:"storage"`

	// accessModes are those of the claim. They cannot change.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=ReadWriteOnce;ReadOnlyMany;ReadWriteMany;ReadWriteOncePod
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes"`

	// volumeMode says whether pods see a file system or a device. Default Filesystem. It cannot change.
	// +optional
	// +kubebuilder:validation:Enum=Filesystem;Block
	VolumeMode corev1.PersistentVolumeMode `json:"volumeMode,omitempty"`

	// storageClass is one of the classes that the provider's advertisement names. By default the first of them. It cannot
	// change.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	StorageClass string `json:"storageClass,omitempty"`

	// dataSource names the ShadowClaim, one with snapshotOf, whose snapshot the volume begins as a copy of. By default the volume is
	// empty. It cannot change.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	DataSource string `json:"dataSource,omitempty"`

	// snapshotOf names the ShadowClaim whose volume a snapshot is taken of. The provider makes a VolumeSnapshot then, and no claim:
	// storage is the room that the snapshot may need, and the other fields say what they say of its volume. It cannot change.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	SnapshotOf string `json:"snapshotOf,omitempty"`
}

// ShadowClaimStatus is what the provider tells of the storage.
type ShadowClaimStatus struct {
	// conditions: Ready says whether the provider keeps the storage. It is true from when there is a claim there, which gets its
	// volume with the first pod that uses it.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase is that of the provider's claim: Pending, Bound or Lost. A snapshot is Bound when volumes can begin as copies of it.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Phase string `json:"phase,omitempty"`

	// capacity is how much room the volume has, or one that begins as a copy of the snapshot needs. It is there from when the claim is
	// bound.
	// +optional
	Capacity *resource.Quantity `json:"capacity,omitempty"`

	// snapshotTime is when the snapshot was taken, by the provider's clock.
	// +optional
	SnapshotTime *metav1.Time `json:"snapshotTime,omitempty"`

	// events are what happened to the provider's claim, as far as the provider shows it: the latest of each kind.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Events []RemoteEvent `json:"events,omitempty"`
}

// ShadowClaim keeps storage at a provider for a claim of the consumer's, or for a snapshot of one. The provider makes a
// PersistentVolumeClaim of the same name, which pods of the namespace can use, or a VolumeSnapshot. That is deleted with the
// ShadowClaim, and its data with it as the provider's class says. The consumer sees no more of it than is told here: the claim itself
// names a node of the provider.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=hpvc,categories=hanse
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Storage",type=string,JSONPath=`.spec.storage`
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=`.spec.storageClass`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ShadowClaim struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the storage to keep, by the consumer.
	// +required
	Spec ShadowClaimSpec `json:"spec"`
	// status is what the provider tells of it.
	// +optional
	Status ShadowClaimStatus `json:"status,omitempty"`
}

// ShadowClaimList is a list of shadow claims.
// +kubebuilder:object:root=true
type ShadowClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ShadowClaim `json:"items"`
}

// Waits says whether the provider has yet to make room for the claim: all of it, or more of it.
func (c *ShadowClaim) Waits() bool {
	return c.Status.Phase == string(corev1.ClaimPending) || c.Status.Capacity != nil && c.Status.Capacity.Cmp(c.Spec.Storage) < 0
}
