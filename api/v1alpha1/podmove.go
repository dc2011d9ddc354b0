// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MoveMethod says how a pod is moved.
// +kubebuilder:validation:Enum=Surge;Steer;DeleteFirst
type MoveMethod string

const (
	// MoveSurge runs a copy at the destination first. The original goes when the copy is Ready.
	MoveSurge MoveMethod = "Surge"
	// MoveSteer evicts the original, and sends the pod that its owner makes in its place to the destination.
	MoveSteer MoveMethod = "Steer"
	// MoveDeleteFirst evicts the original, and makes it again at the destination, under the same name.
	MoveDeleteFirst MoveMethod = "DeleteFirst"
)

// MoveOnFailure says what becomes of a pod whose original is gone and that is not Ready at its destination in time.
// +kubebuilder:validation:Enum=Restore;Leave
type MoveOnFailure string

const (
	// OnFailureRestore takes the pod away from the destination, so that it may run where the original did.
	OnFailureRestore MoveOnFailure = "Restore"
	// OnFailureLeave leaves it as it is.
	OnFailureLeave MoveOnFailure = "Leave"
)

// MoveBinding says who binds the copy to its node.
// +kubebuilder:validation:Enum=Scheduler;AtCreation
type MoveBinding string

const (
	// BindScheduler has the scheduler do it, which sees to room, volumes and devices.
	BindScheduler MoveBinding = "Scheduler"
	// BindAtCreation creates the copy with the name of its node, past the scheduler.
	BindAtCreation MoveBinding = "AtCreation"
)

// MovePhase says how far a move has come.
// +kubebuilder:validation:Enum=Pending;Copying;Steering;Recreating;HandingOver;RollingBack;Succeeded;Failed
type MovePhase string

const (
	// MovePending means that nothing was touched yet: another move of the same owner comes first.
	MovePending MovePhase = "Pending"
	// MoveCopying means that a copy is made, and is to become Ready.
	MoveCopying MovePhase = "Copying"
	// MoveSteering means that the original is evicted, and that the pod which its owner makes in its place is waited for.
	MoveSteering MovePhase = "Steering"
	// MoveRecreating means that the original is evicted, and that it is made again when it is gone.
	MoveRecreating MovePhase = "Recreating"
	// MoveHandingOver means that the copy takes the place of the original.
	MoveHandingOver MovePhase = "HandingOver"
	// MoveRollingBack means that the move has failed, and what it did is undone.
	MoveRollingBack MovePhase = "RollingBack"
	// MoveSucceeded means that the copy has taken the place of the original.
	MoveSucceeded MovePhase = "Succeeded"
	// MoveFailed means that the move has come to nothing. The original was left as it was, unless it was evicted already: then
	// its owner has another pod, which runs where the scheduler puts it, or with DeleteFirst it was made again.
	MoveFailed MovePhase = "Failed"
)

// IsOver reports whether nothing more is done.
func (p MovePhase) IsOver() bool { return p == MoveSucceeded || p == MoveFailed }

// PodMoveSpec says which pod is to move, and where to.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec is immutable; delete the PodMove to abort the move, and create another one"
// +kubebuilder:validation:XValidation:rule="!has(self.bind) || self.bind != 'AtCreation' || has(self.destination.node) || has(self.destination.peer)",message="bind AtCreation needs a destination with node or peer, since nobody chooses among several nodes"
// +kubebuilder:validation:XValidation:rule="!has(self.bind) || self.bind != 'AtCreation' || !has(self.method) || self.method != 'Steer'",message="method Steer needs bind Scheduler, since the owner of the pod creates the one in its place"
// +kubebuilder:validation:XValidation:rule="!has(self.onFailure) || self.onFailure != 'Leave' || !has(self.method) || self.method != 'Surge'",message="onFailure Leave is for methods Steer and DeleteFirst, since with Surge the original runs on"
type PodMoveSpec struct {
	// pod is the pod to move, in the namespace of the PodMove.
	// +required
	Pod MovedPod `json:"pod"`

	// destination is where the pod is to run.
	// +required
	Destination MoveDestination `json:"destination"`

	// method is how to move the pod. By default the first that fits. Surge runs a copy at the destination first, and the original
	// goes when the copy is Ready. Steer evicts the original, and sends the pod that its owner makes in its place to the
	// destination: for pods of StatefulSets, Jobs and operators, volumes that one node alone can use, and where there is no quota
	// for one more pod. The pod is away in between. DeleteFirst evicts the original, and makes it again at the destination under
	// the same name: for pods without a controller, where no copy can run beside them, or that must keep their name.
	// +optional
	Method MoveMethod `json:"method,omitempty"`

	// bind says who binds the copy to its node. By default Scheduler. With AtCreation the copy has the name of its node from
	// the beginning: neither the scheduler nor a NamespaceOffloading has a say.
	// +optional
	// +kubebuilder:default=Scheduler
	Bind MoveBinding `json:"bind,omitempty"`

	// onFailure is what becomes of a pod whose original is gone and that is not Ready at the destination by the deadline. By default
	// Restore: it is deleted there. With DeleteFirst it is then made again, on the node of the original if there is room, and with
	// Steer its owner makes another one. Leave leaves it as it is. With Surge the original is there in any case.
	// +optional
	// +kubebuilder:default=Restore
	OnFailure MoveOnFailure `json:"onFailure,omitempty"`

	// deadline is how long after the creation of the PodMove the copy must be Ready. By default 10m. Then the move fails, and
	// what it did is undone, but for an eviction.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('5s') && duration(self) <= duration('24h')",message="deadline must be at least 5s and at most 24h, such as 10m"
	Deadline *metav1.Duration `json:"deadline,omitempty"`

	// ttlSecondsAfterFinished is for how many seconds the PodMove is kept when it is over. By default a day. Each one that is there
	// takes time of every pod that is created in its namespace.
	// +optional
	// +kubebuilder:default=86400
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// MovedPod names a pod.
type MovedPod struct {
	// name is the name of the pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// uid is the UID of the pod, so that no other pod of that name is moved in its stead.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID types.UID `json:"uid"`
}

// MoveElsewhere says which nodes a pod may go to that is only to leave its own.
// +kubebuilder:validation:Enum=AnyNode
type MoveElsewhere string

// ElsewhereAnyNode is any node but the one that the pod runs on.
const ElsewhereAnyNode MoveElsewhere = "AnyNode"

// MoveDestination is where a pod is to run: exactly one of node, peer, nodeSelector and elsewhere.
// +kubebuilder:validation:XValidation:rule="[has(self.node), has(self.peer), has(self.nodeSelector), has(self.elsewhere)].filter(x, x).size() == 1",message="destination needs exactly one of node, peer, nodeSelector and elsewhere"
type MoveDestination struct {
	// node is the name of a node, real or virtual.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`

	// peer is the name of a Peer. The pod moves to its virtual node.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=57
	Peer string `json:"peer,omitempty"`

	// nodeSelector has the labels of the nodes to choose from.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.size() <= 317 && !format.qualifiedName().validate(key).hasValue())",message="every key must be a label key, such as topology.kubernetes.io/zone"
	NodeSelector map[string]LabelValue `json:"nodeSelector,omitempty"`

	// elsewhere has the pod leave its node: with AnyNode for any other, as the scheduler and the NamespaceOffloading choose.
	// +optional
	Elsewhere MoveElsewhere `json:"elsewhere,omitempty"`
}

// NodeName returns the name of the one node that the destination is, or "".
func (d *MoveDestination) NodeName() string {
	if d.Peer != "" {
		return VirtualNodeName(d.Peer)
	}
	return d.Node
}

// PodMoveStatus says how far the move has come.
type PodMoveStatus struct {
	// conditions: Accepted (nothing stands against the move), Complete (the copy has taken the place of the original; False
	// with the cause of the failure), Restored (only where DeleteFirst has failed: whether there is such a pod again).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// phase is how far the move has come.
	// +optional
	Phase MovePhase `json:"phase,omitempty"`

	// method is how the pod is moved: the one of the spec, or the first that fitted.
	// +optional
	Method MoveMethod `json:"method,omitempty"`

	// owner is the controller of the original. A pod that was created by hand has none.
	// +optional
	Owner *MoveOwner `json:"owner,omitempty"`

	// original is the pod that moves.
	// +optional
	Original *MoveParty `json:"original,omitempty"`

	// copy is the pod that takes its place. With Steer its owner has made it, with DeleteFirst it has the name of the original.
	// +optional
	Copy *MoveParty `json:"copy,omitempty"`

	// gateUntil is until when a new pod of the owner is created with the scheduling gate hanse.dev/move. The manager sets it with
	// method Steer right before the eviction, and renews it while it waits for that pod.
	// +optional
	GateUntil *metav1.Time `json:"gateUntil,omitempty"`

	// record is the pod as it is made again with DeleteFirst, in JSON, without what says where it is to run. It is written before the
	// original is touched, and taken off when the pod has moved.
	// +optional
	// +kubebuilder:validation:MaxLength=262144
	Record string `json:"record,omitempty"`

	// finishedAt is when the move was over.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`

	// steps are what was done, the first first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Steps []MoveStep `json:"steps,omitempty"`
}

// MoveOwner is the controller of a pod that moves.
type MoveOwner struct {
	// apiVersion is the API version of the controller, such as apps/v1.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`

	// kind is the kind of the controller, such as ReplicaSet.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// name is its name.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// uid is its UID.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	UID types.UID `json:"uid"`
}

// MoveParty is one of the two pods of a move.
type MoveParty struct {
	// name is the name of the pod.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// uid is its UID.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	UID types.UID `json:"uid"`

	// node is the node that it runs on.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`

	// deletionCost is the pod-deletion-cost that the pod had before the move, which the one that stays gets again.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	DeletionCost string `json:"deletionCost,omitempty"`
}

// MoveAction is one step of a move.
// +kubebuilder:validation:Enum=Copied;CopyRefused;CostLowered;HandedOver;Evicted;Steered;Settled;CostRestored;CopyDeleted;CopyEvicted;Restored
type MoveAction string

const (
	// MoveCopied is the creation of the copy.
	MoveCopied MoveAction = "Copied"
	// MoveCopyRefused is that the API server has refused the copy for the first time after the original was gone.
	MoveCopyRefused MoveAction = "CopyRefused"
	// MoveCostLowered has the controller prefer the original when it deletes a pod.
	MoveCostLowered MoveAction = "CostLowered"
	// MoveHandedOver gives the copy its labels, by which its controller and its Services find it.
	MoveHandedOver MoveAction = "HandedOver"
	// MoveEvicted is the eviction of the original, as its PodDisruptionBudgets allow.
	MoveEvicted MoveAction = "Evicted"
	// MoveSteered sends the copy, which the owner has made, to the destination, and lifts its gate.
	MoveSteered MoveAction = "Steered"
	// MoveSettled takes off the copy what only the move needed.
	MoveSettled MoveAction = "Settled"
	// MoveCostRestored undoes CostLowered.
	MoveCostRestored MoveAction = "CostRestored"
	// MoveCopyDeleted undoes Copied.
	MoveCopyDeleted MoveAction = "CopyDeleted"
	// MoveCopyEvicted undoes Steered: the owner makes another pod, which may run anywhere.
	MoveCopyEvicted MoveAction = "CopyEvicted"
	// MoveRestored undoes Evicted: the original is made again.
	MoveRestored MoveAction = "Restored"
)

// MoveStep is something that was done, and when.
type MoveStep struct {
	// action is what was done. CostRestored, CopyDeleted, CopyEvicted and Restored roll back a move that failed.
	// +required
	Action MoveAction `json:"action"`

	// time is when that was.
	// +required
	Time metav1.Time `json:"time"`
}

// PodMove moves a running pod to another node, real or virtual. Where possible that is without a gap (method Surge): a copy starts
// at the destination, and when it is Ready the original goes. Otherwise the original is evicted first. Then the pod that its owner
// makes in its place is sent to the destination (method Steer), or, if it has no controller, it is made again there under the same
// name (method DeleteFirst). The author needs the right to delete the pod and to create pods. Deleting a
// PodMove aborts the move, as long as the copy has not taken over.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=hmove,categories=hanse
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.spec.pod.name`
// +kubebuilder:printcolumn:name="From",type=string,JSONPath=`.status.original.node`
// +kubebuilder:printcolumn:name="To",type=string,JSONPath=`.status.copy.node`
// +kubebuilder:printcolumn:name="Copy",type=string,JSONPath=`.status.copy.name`
// +kubebuilder:printcolumn:name="Method",type=string,JSONPath=`.status.method`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PodMove struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is which pod is to move, and where to. It cannot change.
	// +required
	Spec PodMoveSpec `json:"spec"`
	// status is how far the move has come.
	// +optional
	Status PodMoveStatus `json:"status,omitempty"`
}

// PodMoveList is a list of moves.
// +kubebuilder:object:root=true
type PodMoveList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodMove `json:"items"`
}
