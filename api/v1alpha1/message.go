// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxMessages is how many Messages may lie in a tenant namespace: those of the member, and those that are relayed to it.
const MaxMessages = 200

// MessageIntroduction is the name of the Message by which a member introduces itself to all others.
const MessageIntroduction = "introduction"

// SignedStatement is what one cluster says to another, to the letter, and its signature.
type SignedStatement struct {
	// statement is what is said, to the letter as it was signed: a JSON text with type, from, key, to, sequence, expires and body.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Statement string `json:"statement"`

	// signature is that of the cluster that says it, over the bytes of the statement: Ed25519, in base64.
	// +required
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{86}==$`
	// +kubebuilder:validation:MaxLength=88
	Signature string `json:"signature"`
}

// MessageSpec is a statement of one cluster to another, or to all members of a broker.
type MessageSpec struct {
	// to is the id of the cluster that the statement is for. Without it, it is for all members, and the Message is called introduction.
	// +optional
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	To string `json:"to,omitempty"`

	SignedStatement `json:",inline"`
}

// MessageStatus says what has become of a Message.
type MessageStatus struct {
	// conditions: Relayed (the broker has brought the statement to whom it is for; if not, the message says why) and Ready, which is
	// the same.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// Message is what one member of a broker says to another, or to all. Each member writes its own into its tenant namespace at the broker,
// which copies them to the others, word for word: statements for one member into that one's tenant namespace, and those for all
// into namespace hanse-members, which all members read. Whoever takes in a statement checks its signature by the key that is pinned for
// its sender: a broker is believed nothing.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=hmsg,categories=hanse
// +kubebuilder:printcolumn:name="From",type=string,JSONPath=`.metadata.labels.hanse\.dev/from`
// +kubebuilder:printcolumn:name="To",type=string,JSONPath=`.spec.to`
// +kubebuilder:printcolumn:name="Relayed",type=string,JSONPath=`.status.conditions[?(@.type=="Relayed")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Relayed")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Relayed")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Message struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the statement.
	// +required
	// +structType=atomic
	Spec MessageSpec `json:"spec"`
	// status says what has become of it.
	// +optional
	// +structType=atomic
	Status MessageStatus `json:"status,omitempty"`
}

// Relayed reports whether the Message is the broker's copy of one.
func (m *Message) Relayed() bool { return m.Labels[LabelFrom] != "" }

// RelayedName is the name that what the member of that id calls so has in another cluster to which it was relayed.
func RelayedName(member, name string) string { return member + "." + name }

// OwnName is how whoever has asked by the object calls it: a member has asked through a broker, and not by this name.
func OwnName(asked metav1.Object) string {
	return strings.TrimPrefix(asked.GetName(), RelayedName(asked.GetLabels()[LabelFrom], ""))
}

// MessageList is a list of messages.
// +kubebuilder:object:root=true
type MessageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Message `json:"items"`
}
