// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClaimPhase says whether a consumer stays.
// +kubebuilder:validation:Enum=Joined;Leaving
type ClaimPhase string

const (
	// ClaimJoined means that the consumer is here to stay.
	ClaimJoined ClaimPhase = "Joined"
	// ClaimLeaving means that the consumer has ended all that it had at the provider, and parts from it.
	ClaimLeaving ClaimPhase = "Leaving"
)

// PeeringClaimSpec is what a consumer says of itself to a provider that has invited it.
// +kubebuilder:validation:XValidation:rule="self.invitation == oldSelf.invitation && self.clusterID == oldSelf.clusterID && self.publicKey == oldSelf.publicKey && self.sealingKey == oldSelf.sealingKey && self.proof == oldSelf.proof && has(self.invitationBack) == has(oldSelf.invitationBack) && (!has(self.invitationBack) || self.invitationBack == oldSelf.invitationBack)",message="who claims an invitation cannot change"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.phase) || oldSelf.phase != 'Leaving' || has(self.phase) && self.phase == 'Leaving'",message="a peer that has left must be invited again"
type PeeringClaimSpec struct {
	// invitation is the id of the invitation that is claimed.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Invitation string `json:"invitation"`

	// clusterID is the id of the consumer.
	// +required
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	ClusterID string `json:"clusterID"`

	// publicKey is the Ed25519 key of the consumer, in base64.
	// +required
	// +kubebuilder:validation:MaxLength=44
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{43}=$`
	PublicKey string `json:"publicKey"`

	// sealingKey is an X25519 key, in base64, that the consumer made for this claim alone. The session is sealed to it.
	// +required
	// +kubebuilder:validation:MaxLength=44
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{43}=$`
	SealingKey string `json:"sealingKey"`

	// proof is the signature by publicKey, in base64, of the provider's public key, invitation, clusterID, sealingKey and
	// invitationBack.
	// +required
	// +kubebuilder:validation:MaxLength=88
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{86}==$`
	Proof string `json:"proof"`

	// invitationBack is an invitation for the provider to become a consumer of this consumer, sealed to the key that
	// the claimed invitation names.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	InvitationBack string `json:"invitationBack,omitempty"`

	// version is the version of Hanse that the consumer runs.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`

	// phase is Leaving when the consumer parts from the provider. Default Joined.
	// +optional
	Phase ClaimPhase `json:"phase,omitempty"`

	// tombstone is a statement signed by the consumer that it has parted by force, while the provider was gone.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Tombstone string `json:"tombstone,omitempty"`
}

// SealedSession is the credentials of a consumer, for nobody else to read.
type SealedSession struct {
	// sealed is the session, sealed to the claim's sealingKey, in base64.
	// +required
	// +kubebuilder:validation:MaxLength=32768
	Sealed string `json:"sealed"`

	// signature is that of sealed by the provider's public key, in base64.
	// +required
	// +kubebuilder:validation:MaxLength=88
	Signature string `json:"signature"`
}

// PeeringClaimStatus is the provider's answer.
type PeeringClaimStatus struct {
	// conditions: Accepted (the provider takes the consumer as its peer).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the answer speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// session is what the consumer gets.
	// +optional
	Session *SealedSession `json:"session,omitempty"`
}

// PeeringClaim is how a consumer uses an invitation: it says who it is and gets its session in return. It lives in the
// consumer's tenant namespace at the provider for as long as the two are peers, and there the consumer says that it
// leaves.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=hclaim,categories=hanse
// +kubebuilder:printcolumn:name="Cluster ID",type=string,JSONPath=`.spec.clusterID`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.spec.phase`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`
// +kubebuilder:printcolumn:name="Version",type=string,priority=1,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'claim'",message="the only name that a PeeringClaim may have is claim"
type PeeringClaim struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the consumer says.
	// +required
	Spec PeeringClaimSpec `json:"spec"`
	// status is the provider's answer.
	// +optional
	Status PeeringClaimStatus `json:"status,omitempty"`
}

// PeeringClaimList is a list of claims.
// +kubebuilder:object:root=true
type PeeringClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PeeringClaim `json:"items"`
}
