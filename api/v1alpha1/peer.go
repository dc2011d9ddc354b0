// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PeerRole says what a peer is to this cluster.
// +kubebuilder:validation:Enum=Provider;Consumer;Broker;Member
type PeerRole string

const (
	// RoleProvider means that this cluster may run pods in the peer.
	RoleProvider PeerRole = "Provider"
	// RoleConsumer means that the peer may run pods in this cluster.
	RoleConsumer PeerRole = "Consumer"
	// RoleBroker means that this cluster is known to other members of the peer, and they to this cluster. Such a peer is a Provider too.
	RoleBroker PeerRole = "Broker"
	// RoleMember means that the peer is known to other members through this cluster. Such a peer is a Consumer too.
	RoleMember PeerRole = "Member"
)

// PeerMode says what runs in a peer.
// +kubebuilder:validation:Enum=Hanse;Agentless
type PeerMode string

const (
	// ModeHanse means that Hanse runs in the peer.
	ModeHanse PeerMode = "Hanse"
	// ModeAgentless means that the peer is a cluster without Hanse, in which we have rights in some namespaces.
	ModeAgentless PeerMode = "Agentless"
)

// PeerCopies says what of this cluster is copied into the namespaces of an Agentless peer.
// +kubebuilder:validation:Enum=None;Configuration
type PeerCopies string

const (
	// CopiesNone means that nothing is copied there.
	CopiesNone PeerCopies = "None"
	// CopiesConfiguration means that ConfigMaps and Secrets are copied there, as to peers with Hanse.
	CopiesConfiguration PeerCopies = "Configuration"
)

// PeerAccess says what a peer may do here as a consumer.
// +kubebuilder:validation:Enum=Open;Cordoned;Draining;Suspended
type PeerAccess string

const (
	// AccessOpen means that the peer may run pods here.
	AccessOpen PeerAccess = "Open"
	// AccessCordoned means that the pods that the peer has here stay, and that it gets no more.
	AccessCordoned PeerAccess = "Cordoned"
	// AccessDraining means Cordoned, and that the peer is asked to move its pods away.
	AccessDraining PeerAccess = "Draining"
	// AccessSuspended means Cordoned, and that the peer may not even read: its rights are taken back until this changes.
	AccessSuspended PeerAccess = "Suspended"
)

// PodSecurityLevel is a level of the Pod Security Standards.
// +kubebuilder:validation:Enum=Baseline;Restricted
type PodSecurityLevel string

const (
	// PodSecurityBaseline keeps pods from everything that is known to give power over a node.
	PodSecurityBaseline PodSecurityLevel = "Baseline"
	// PodSecurityRestricted is Baseline, and pods that run as root or have any capability are refused too.
	PodSecurityRestricted PodSecurityLevel = "Restricted"
)

// PeerLimits bound what a consumer may have here.
type PeerLimits struct {
	// resources are how much the pods and claims of the peer may ask for, all namespaces together: cpu, memory, pods,
	// ephemeral-storage, or any other resource, such as nvidia.com/gpu. A pod counts by what it asks for (sidecars and
	// overhead included) until it has completed. storage is what the peer's claims may ask for. What is not named is not
	// limited. If the peer is a broker, they also bound what all members together have reserved through it.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(name, !name.startsWith('requests.') && !name.startsWith('limits.'))",message="name the resource itself, such as cpu: it is what pods ask for that is limited"
	Resources corev1.ResourceList `json:"resources,omitempty"`

	// namespaces is how many namespaces the peer may have here. Default 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Namespaces *int32 `json:"namespaces,omitempty"`

	// objects is how many objects of one kind the peer may have in each of its namespaces. Default 10000.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Objects *int32 `json:"objects,omitempty"`

	// nodePorts is how many ports of this cluster's nodes the peer's Services may have in each of its namespaces. Default 0.
	// Load balancers they never have.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	NodePorts *int32 `json:"nodePorts,omitempty"`

	// mebibytes is how much room the API server has for the peer's ShadowPods, again for its ShadowEndpointSlices, again for its
	// ShadowObjects, and again for its copies of ConfigMaps, Secrets and Services, all namespaces together. Each of 2, 4, 8 and so on namespaces has an equal
	// part. An object is refused if there would be no room were all of its kind in the namespace of its size. Default 32.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1024
	Mebibytes *int32 `json:"mebibytes,omitempty"`
}

// Defaults of PeerLimits.
const (
	// DefaultLimitNamespaces is how many namespaces a peer may have unless its limits say otherwise.
	DefaultLimitNamespaces = 100
	// DefaultLimitObjects is how many objects of one kind a peer may have in a namespace unless its limits say otherwise.
	DefaultLimitObjects = 10000
	// DefaultLimitMebibytes is how much room a peer's ShadowPods have, and its copies, unless its limits say otherwise.
	DefaultLimitMebibytes = 32
)

// PeerInvitation asks for an invitation for a consumer. The manager puts it into Secret hanse-invitation of the peer's
// tenant namespace.
type PeerInvitation struct {
	// serial is the number of the invitation. A higher one asks for a new invitation of the same peer: after one that
	// has expired, or after an outage that outlived the peer's session. The peer's pods stay.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Serial int64 `json:"serial,omitempty"`

	// timeToLive is for how long the invitation can be used after it was made. Default 1h, at most 168h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('168h')",message="timeToLive must be between 1s and 168h"
	TimeToLive *metav1.Duration `json:"timeToLive,omitempty"`

	// servers are the addresses of this cluster's API server as the peer reaches them, such as
	// https://203.0.113.7:6443, the best first. By default those that the manager was told, or finds out.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^https://[^/?#@]+(/[^?#]*)?$`
	Servers []string `json:"servers,omitempty"`
}

// PartingMode says how two clusters part when the Peer is deleted.
// +kubebuilder:validation:Enum=Agreed;Forced;Forgotten
type PartingMode string

const (
	// PartingAgreed means that the other side is asked, and what it has here goes when it has answered.
	PartingAgreed PartingMode = "Agreed"
	// PartingForced means that nothing is waited for. A tombstone is kept for 30 days, for when the other side comes back.
	PartingForced PartingMode = "Forced"
	// PartingForgotten is Forced, and no tombstone is kept.
	PartingForgotten PartingMode = "Forgotten"
)

// DrainMethod says how pods are moved away.
// +kubebuilder:validation:Enum=Wait;Now
type DrainMethod string

const (
	// DrainWait means by eviction, which respects PodDisruptionBudgets, for as long as it takes.
	DrainWait DrainMethod = "Wait"
	// DrainNow means by deletion at once.
	DrainNow DrainMethod = "Now"
)

// PeerParting says how two clusters part when the Peer is deleted.
type PeerParting struct {
	// mode says whether the other side has a say. Default Agreed.
	// +optional
	Mode PartingMode `json:"mode,omitempty"`

	// drain says how our pods are moved away from the peer. Default Wait.
	// +optional
	Drain DrainMethod `json:"drain,omitempty"`

	// volumes says whether the end of the peering waits for the data of our claims and snapshots at the peer. With Keep, the
	// default, it waits until they are deleted. With Delete it does not wait, and their data is lost. Modes other than Agreed do
	// not wait either. Volumes of the peer's claims here never make it wait: they are deleted with the peer's namespaces.
	// +optional
	Volumes VolumeFate `json:"volumes,omitempty"`
}

// VolumeFate says what becomes of volumes.
// +kubebuilder:validation:Enum=Keep;Delete
type VolumeFate string

const (
	// KeepVolumes means that no data is lost.
	KeepVolumes VolumeFate = "Keep"
	// DeleteVolumes means that the data is lost.
	DeleteVolumes VolumeFate = "Delete"
)

// PeerSpec says which cluster a peer is and what it is to us.
// +kubebuilder:validation:XValidation:rule="!has(self.roles) || !self.roles.exists(r, r == 'Broker') || self.roles.exists(r, r == 'Provider')",message="a Broker is a Provider too: add Provider to roles"
// +kubebuilder:validation:XValidation:rule="!has(self.roles) || !self.roles.exists(r, r == 'Member') || self.roles.exists(r, r == 'Consumer')",message="a Member is a Consumer too: add Consumer to roles"
// +kubebuilder:validation:XValidation:rule="!has(self.acceptMembers) || has(self.roles) && self.roles.exists(r, r == 'Broker')",message="acceptMembers is for a Broker alone: add Broker to roles"
// +kubebuilder:validation:XValidation:rule="!has(self.askMembers) || has(self.roles) && self.roles.exists(r, r == 'Broker')",message="askMembers is for a Broker alone: add Broker to roles"
// +kubebuilder:validation:XValidation:rule="!has(self.introducer) || has(self.clusterID) && has(self.roles) && self.roles.exists(r, r == 'Provider')",message="who is asked for an invitation through an introducer must be named by clusterID, and be a Provider"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.clusterID) || has(self.clusterID) && self.clusterID == oldSelf.clusterID",message="clusterID is immutable: make another Peer for another cluster"
// +kubebuilder:validation:XValidation:rule="!has(self.invitation) || has(self.roles) && self.roles.exists(r, r == 'Consumer')",message="only a peer of role Consumer is invited: add Consumer to roles"
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'Agentless' || has(self.namespaces) && self.namespaces.size() > 0 && has(self.roles) && self.roles.all(r, r == 'Provider')",message="an Agentless peer needs namespaces, and its only role is Provider"
// +kubebuilder:validation:XValidation:rule="!has(self.copies) || has(self.mode) && self.mode == 'Agentless'",message="copies is for Agentless peers alone: to peers with Hanse, ConfigMaps and Secrets always go with the pods"
type PeerSpec struct {
	// clusterID is the id of the foreign cluster, as its own administrator set it. Left out, Hanse sets it when the two
	// clusters become peers. It cannot change: a cluster with another id is another peer.
	// +optional
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	ClusterID string `json:"clusterID,omitempty"`

	// publicKey is the Ed25519 key of the foreign cluster, in base64. Left out, Hanse pins the one that the cluster
	// proves to have when the two become peers. A cluster of the same id and another key is not let in until an
	// administrator changes this.
	// +optional
	// +kubebuilder:validation:MaxLength=44
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{43}=$`
	PublicKey string `json:"publicKey,omitempty"`

	// mode says what runs in the peer: Hanse, or nothing of Hanse (Agentless). Default Hanse.
	// +optional
	Mode PeerMode `json:"mode,omitempty"`

	// namespaces are those of an Agentless peer in which we may run pods.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespaces []string `json:"namespaces,omitempty"`

	// copies says what of this cluster is copied into the namespaces of an Agentless peer: None, or Configuration, which are the
	// ConfigMaps and Secrets that pods there refer to, or those that the values reflection.* of the chart name. Whoever may read
	// Secrets in these namespaces reads those of this cluster then. Default None: pods that refer to ConfigMaps or Secrets do not go
	// there. To peers with Hanse they always go.
	// +optional
	Copies PeerCopies `json:"copies,omitempty"`

	// roles says what the peer is to this cluster: Provider (this cluster may run pods there), Consumer (it may run
	// pods here), or both. A Provider may be a Broker as well (its members and this cluster know of each other through it), and a
	// Consumer a Member (it and other members know of each other through this cluster). A cluster that was only discovered has none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	Roles []PeerRole `json:"roles,omitempty"`

	// invitation asks for an invitation for the peer, with which it becomes our consumer. With role Provider too, it
	// may bring an invitation for us along.
	// +optional
	Invitation *PeerInvitation `json:"invitation,omitempty"`

	// introducer is the Peer of role Broker through which an invitation of this peer is asked for. It must be known there, as a Member
	// (`kubectl get members`). When the two are peers, neither needs the broker any more.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Introducer string `json:"introducer,omitempty"`

	// acceptMembers are the ids of members, as patterns with *, that become consumers of this cluster when they ask for that through this
	// peer, a Broker. By default none do. Mind that with * the broker decides who they are.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=30
	// +kubebuilder:validation:items:Pattern=`^[-a-z0-9*]+$`
	AcceptMembers []string `json:"acceptMembers,omitempty"`

	// askMembers are the ids of members, as patterns with *, that are asked for offers through this peer, a Broker, in auctions of
	// Applications. One that wins becomes a provider of this cluster, if it accepts that, and may run pods of that Application. By default
	// none are asked. Mind that with * the broker decides who they are, and that it reads what is asked and offered.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=30
	// +kubebuilder:validation:items:Pattern=`^[-a-z0-9*]+$`
	AskMembers []string `json:"askMembers,omitempty"`

	// access says what the peer may do here as a consumer: Open, Cordoned (no more pods), Draining (and it is asked to
	// move those that it has), Suspended (and it may not even read). Default Open.
	// +optional
	Access PeerAccess `json:"access,omitempty"`

	// limits bound what the peer may have here as a consumer.
	// +optional
	Limits *PeerLimits `json:"limits,omitempty"`

	// guarantee is what is locked for the peer as a consumer from when it has accepted our advertisement: it is taken off
	// what all others are offered. Without it, what the peer is offered is best effort.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(name, !name.startsWith('requests.') && !name.startsWith('limits.'))",message="name the resource itself, such as cpu: it is what pods ask for that is guaranteed"
	Guarantee corev1.ResourceList `json:"guarantee,omitempty"`

	// podSecurity is the level of the Pod Security Standards that the peer's pods must meet here. Default Baseline.
	// +optional
	PodSecurity PodSecurityLevel `json:"podSecurity,omitempty"`

	// allowDebug lets the peer, as a consumer, add ephemeral containers to its running pods here (kubectl debug). Hanse's
	// manager alone adds them. By default false: the peer may open a shell in the containers that its pods have.
	// +optional
	AllowDebug bool `json:"allowDebug,omitempty"`

	// twinNames are the names that the peer, as a consumer, may choose for its twin namespaces here, as patterns with *.
	// By default none, since others may trust a namespace for its name: then this cluster makes the names. Namespaces that
	// exist and those of the system are never given.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[-a-z0-9*]+$`
	TwinNames []string `json:"twinNames,omitempty"`

	// ingress is which Ingresses the peer, as a consumer, may have here. By default none.
	// +optional
	Ingress *PeerIngress `json:"ingress,omitempty"`

	// objects are further kinds of which the peer, as a consumer, may have objects here, in its twin namespaces. The value
	// allowedKinds of the chart must name them too, since it gives Hanse the rights. Mind what their controllers do with them:
	// pods that these make are not checked as the peer's own are. By default none.
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=kind
	// +kubebuilder:validation:MaxItems=64
	Objects []AllowedKind `json:"objects,omitempty"`

	// parting says how the two clusters part when this Peer is deleted.
	// +optional
	Parting *PeerParting `json:"parting,omitempty"`

	// network is how the networks of the two clusters belong together: what is open, and in which ranges the peer is seen.
	// +optional
	Network *PeerNetwork `json:"network,omitempty"`

	// clusterSet says which Services the two clusters have in common, by the Multi-Cluster Services API.
	// +optional
	ClusterSet *PeerClusterSet `json:"clusterSet,omitempty"`
}

// PeerClusterSet says which Services this cluster and a peer have in common.
type PeerClusterSet struct {
	// namespaces are those, as patterns with *, that mean the same in both clusters: Services in them that are exported here are told to
	// the peer, and those that the peer exports are imported here. Pods reach the ports of what is exported. By default there
	// are none; namespaces of the system never are.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[-a-z0-9*]+$`
	Namespaces []string `json:"namespaces,omitempty"`
}

// PeerIngress is which Ingresses a consumer may have here.
type PeerIngress struct {
	// hosts are the host names that the peer's Ingresses may be for, as patterns: www.example.org stands for itself,
	// *.example.org for all names below example.org, and * for all names and for requests of any name. Of two Ingresses here in
	// different namespaces with the same host, the older one keeps it.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^(\*|(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)$`
	Hosts []string `json:"hosts,omitempty"`

	// className is the IngressClass of the peer's Ingresses. By default that of this cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	ClassName string `json:"className,omitempty"`

	// gateway is the Gateway (gateway.networking.k8s.io) to which the peer's HTTPRoutes are attached, whatever they say. Without
	// one the peer can have none.
	// +optional
	Gateway *GatewayReference `json:"gateway,omitempty"`
}

// GatewayReference names a Gateway.
type GatewayReference struct {
	// namespace of the Gateway.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// name of the Gateway.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// AllowedKind is a kind of which a consumer may have objects here.
// +kubebuilder:validation:XValidation:rule="self.group.contains('.') && self.group != 'hanse.dev' && !self.group.endsWith('.hanse.dev') && (!self.group.endsWith('.k8s.io') || self.group == 'gateway.networking.k8s.io' && self.kind == 'HTTPRoute')",message="kinds of Kubernetes itself, of *.k8s.io and of hanse.dev cannot be allowed, but for HTTPRoute: with them the peer could run pods, or give rights, past all checks. Ingresses are allowed by spec.ingress"
type AllowedKind struct {
	// group is the API group of the kind, such as example.org.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Group string `json:"group"`

	// kind is its name, such as Widget.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]+$`
	Kind string `json:"kind"`
}

// PeerNetwork is how the networks of this cluster and of a peer belong together.
type PeerNetwork struct {
	// open is what may be reached between this cluster's pods and those of the peer that run here, or the peer itself. By
	// default nothing is.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Open []Opening `json:"open,omitempty"`

	// mappings are the ranges in which this cluster shall see ranges of the peer. A seen range must not overlap any that this
	// cluster uses, or in which another peer is seen. By default Hanse picks them: status.mappings has those in force. One of
	// a range that the peer does not have means nothing.
	// +optional
	// +listType=map
	// +listMapKey=own
	// +kubebuilder:validation:MaxItems=32
	Mappings []RangeMapping `json:"mappings,omitempty"`

	// relayBandwidth is how many bytes a second, such as 10M, this cluster's gateway passes on between this peer and others that
	// have it too. Two of them whose gateways are both behind NAT reach each other that way. It cannot read what it passes on, and
	// what is more is dropped. By default nothing is passed on.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).isGreaterThan(quantity('0')) && quantity(string(self)).isLessThan(quantity('1T'))",message="relayBandwidth must be bytes a second, above 0 and less than 1T, such as 10M"
	RelayBandwidth *resource.Quantity `json:"relayBandwidth,omitempty"`
}

// InvitationStatus is how our invitation for the peer stands.
type InvitationStatus struct {
	// serial is that of the invitation.
	// +optional
	Serial int64 `json:"serial,omitempty"`

	// expires is when the invitation ends if it was not used.
	// +optional
	Expires *metav1.Time `json:"expires,omitempty"`
}

// SessionStatus is how our session at the peer stands.
type SessionStatus struct {
	// expires is when our credentials end unless they are renewed.
	// +optional
	Expires *metav1.Time `json:"expires,omitempty"`
}

// PeerServices are the multi-cluster Services that go between this cluster and a peer. Each counts once, however many endpoints it has.
type PeerServices struct {
	// exported is how many Services of this cluster the peer is told of and has not refused.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Exported int32 `json:"exported"`

	// refusedThere are Services of this cluster that the peer does not import, the first 16 by name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	RefusedThere []RefusedService `json:"refusedThere,omitempty"`

	// imported is how many Services of the peer are imported here.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Imported int32 `json:"imported"`

	// refusedHere are Services of the peer that are not imported here, the first 16 by name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	RefusedHere []RefusedService `json:"refusedHere,omitempty"`
}

// RefusedService is a Service that one cluster exports and the other does not import.
type RefusedService struct {
	// namespace of the Service.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// name of the Service.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// message says why it is refused.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// PeerStatus says how the relation with a peer stands.
type PeerStatus struct {
	// conditions: Reachable, Authenticated, Compatible, WithinBudget (the peer sends no more than is taken from one peer),
	// Advertised, Connected, Session (our credentials at the peer are renewed), Joined (the peer has used our invitation),
	// and Ready, which sums them up (Connected only where both clusters have a gateway).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// version is the version of Hanse that the peer runs.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`

	// mappings are the ranges of the peer, and in which this cluster sees them. They stay for as long as the peer has those
	// ranges and this cluster does not use the others for itself.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Mappings []RangeMapping `json:"mappings,omitempty"`

	// direct are ranges of the peer, and those from which this cluster takes in what pods of third clusters, their homes, send directly
	// that run there, to pods of the same home that run here. They stay for as long as the home has pods at both.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Direct []ClusterRange `json:"direct,omitempty"`

	// roundTripTime is how long a packet takes through the tunnel to the peer and back, or, where no network connects the pods of
	// the two clusters, how long a request to the peer's API server takes, rounded. It is written only when it moves by more than
	// a quarter and 5 ms, or, at most every ten minutes, by more than a quarter and 1 ms; that of a tunnel always by the latter.
	// +optional
	RoundTripTime *metav1.Duration `json:"roundTripTime,omitempty"`

	// roundTripDeviation is by how much that time varies: the smoothed mean deviation, rounded and written as the time is.
	// +optional
	RoundTripDeviation *metav1.Duration `json:"roundTripDeviation,omitempty"`

	// bandwidth is how fast data comes from the peer's API server, in bytes per second, rounded to two digits. It is
	// measured only if both clusters have that turned on, and written only when it moves by more than a quarter.
	// +optional
	Bandwidth *resource.Quantity `json:"bandwidth,omitempty"`

	// lossPercent is how many of a hundred echo requests through the tunnel to the peer were not answered lately, as its
	// Connection says. It is not there while there is no tunnel.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	LossPercent *int32 `json:"lossPercent,omitempty"`

	// throughput is the most that went through the tunnel to the peer within a second lately, one way, in bytes per second, as
	// its Connection says. So much passes at least: of a tunnel that nobody uses it says little.
	// +optional
	Throughput *resource.Quantity `json:"throughput,omitempty"`

	// services are the multi-cluster Services that go between the two clusters, where they share namespaces (spec.clusterSet).
	// +optional
	Services *PeerServices `json:"services,omitempty"`

	// invitation is how our invitation for the peer stands.
	// +optional
	Invitation *InvitationStatus `json:"invitation,omitempty"`

	// session is how our session at the peer stands.
	// +optional
	Session *SessionStatus `json:"session,omitempty"`

	// discoveredServers are the addresses of the peer's API server as the network told them. Nothing is believed of
	// them until the two clusters are peers.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=253
	DiscoveredServers []string `json:"discoveredServers,omitempty"`
}

// Peer is a foreign cluster that this one knows: which it is, and what it may do here or we may do there.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=hpeer,categories=hanse
// +kubebuilder:printcolumn:name="Cluster ID",type=string,JSONPath=`.spec.clusterID`
// +kubebuilder:printcolumn:name="Roles",type=string,JSONPath=`.spec.roles`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="RTT",type=string,priority=1,JSONPath=`.status.roundTripTime`
// +kubebuilder:printcolumn:name="Version",type=string,priority=1,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="the name of a Peer must be a DNS label of at most 40 characters"
type Peer struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which cluster the peer is and what it is to us.
	// +required
	Spec PeerSpec `json:"spec"`
	// status says how the relation with the peer stands.
	// +optional
	Status PeerStatus `json:"status,omitempty"`
}

// Connected says whether a network connects the pods of the two clusters. Only then can a Service at home reach pods there.
func (p *Peer) Connected() bool {
	return meta.IsStatusConditionTrue(p.Status.Conditions, ConditionConnected)
}

// HasNetwork says whether a network connects the pods of the two clusters, also while it is interrupted: the addresses by which
// this cluster knows pods there stay good.
func (p *Peer) HasNetwork() bool {
	c := meta.FindStatusCondition(p.Status.Conditions, ConditionConnected)
	return c != nil && (c.Status == metav1.ConditionTrue || c.Reason == ReasonTunnelDown || c.Reason == ReasonNoGateway)
}

// NetworkDown returns the condition Connected of a peer whose pods ours do not reach although both clusters have a gateway, and
// nil of any other.
func (p *Peer) NetworkDown() *metav1.Condition {
	c := meta.FindStatusCondition(p.Status.Conditions, ConditionConnected)
	if c == nil || c.Status == metav1.ConditionTrue || !WantsNetwork(c.Reason) {
		return nil
	}
	return c
}

// WantsNetwork says whether, by the reason of a condition Connected, both clusters have a gateway and a family of addresses in
// common, so that there ought to be a network between them.
func WantsNetwork(reason string) bool {
	return reason != ReasonNoNetworkFabric && reason != ReasonNoPeerGateway && reason != ReasonNoCommonFamily && reason != ReasonAgentless
}

// HasRole reports whether the peer has the role.
func (p *Peer) HasRole(role PeerRole) bool { return slices.Contains(p.Spec.Roles, role) }

// Agentless reports whether the peer is a cluster without Hanse.
func (p *Peer) Agentless() bool { return p.Spec.Mode == ModeAgentless }

// Access returns what the peer may do here as a consumer, the default included.
func (p *Peer) Access() PeerAccess { return cmp.Or(p.Spec.Access, AccessOpen) }

// OwnsTenantNamespace reports whether ns is the tenant namespace of exactly this peer. That of a former peer of the same
// name holds messages and credentials of another cluster. The cluster id tells, where it is known, and survives a
// restoration from a backup; before that the UID of the Peer does. An administrator may make the namespace beforehand.
func (p *Peer) OwnsTenantNamespace(ns metav1.Object) bool {
	labels := ns.GetLabels()
	if labels[LabelType] != TypeTenant || labels[LabelPeer] != p.Name || labels[LabelManaged] != "true" {
		return false
	}
	if id := labels[LabelClusterID]; id != "" {
		return id == p.Spec.ClusterID
	}
	madeFor := ns.GetAnnotations()[AnnotationPeerUID]
	return madeFor == "" || madeFor == string(p.UID)
}

// IsSecond reports whether an older Peer stands for the same cluster, as condition Authenticated says.
func (p *Peer) IsSecond() bool {
	c := meta.FindStatusCondition(p.Status.Conditions, ConditionAuthenticated)
	return c != nil && c.Reason == ReasonClusterIDTaken
}

// Shares says whether the namespace means the same in this cluster and the peer, so that Services in it are exported to and imported from
// the peer. Own is Hanse's own namespace.
func (p *Peer) Shares(namespace, own string) bool {
	if p.Spec.ClusterSet == nil || p.Agentless() || !p.DeletionTimestamp.IsZero() || IsSystemNamespace(namespace, own) {
		return false
	}
	return matchesAny(p.Spec.ClusterSet.Namespaces, namespace)
}

// AllowsTwinName reports whether the peer, a consumer, may choose the name for a twin namespace, as far as the Peer says.
func (p *Peer) AllowsTwinName(name string) bool { return matchesAny(p.Spec.TwinNames, name) }

// AcceptsMember reports whether the member of that id becomes a consumer when it asks for that through the peer, a Broker.
func (p *Peer) AcceptsMember(id string) bool { return matchesAny(p.Spec.AcceptMembers, id) }

// AsksMember reports whether the member of that id is asked for offers through the peer, a Broker.
func (p *Peer) AsksMember(id string) bool { return matchesAny(p.Spec.AskMembers, id) }

// AwaitsInvitation reports whether an invitation of the peer is still to come through its introducer.
func (p *Peer) AwaitsInvitation() bool {
	return p.Spec.Introducer != "" && !meta.IsStatusConditionTrue(p.Status.Conditions, ConditionSession)
}

// matchesAny reports whether one of the patterns, with * as in path.Match, is that of the name.
func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		matches, err := path.Match(pattern, name)
		return err == nil && matches
	})
}

// Parting returns how to part from the peer, with all defaults.
func (p *Peer) Parting() PeerParting {
	parting := PeerParting{}
	if p.Spec.Parting != nil {
		parting = *p.Spec.Parting
	}
	return PeerParting{
		Mode: cmp.Or(parting.Mode, PartingAgreed), Drain: cmp.Or(parting.Drain, DrainWait), Volumes: cmp.Or(parting.Volumes, KeepVolumes),
	}
}

// PeerList is a list of peers.
// +kubebuilder:object:root=true
type PeerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Peer `json:"items"`
}
