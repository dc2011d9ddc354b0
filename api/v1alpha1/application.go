// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReservationTime is for how long an Application asks providers for room. When half of it is over it asks for as much again.
const ReservationTime = time.Hour

// ApplicationPhase says in one word how an Application stands.
// +kubebuilder:validation:Enum=Pending;Requested;Placed;Unplaced;Released
type ApplicationPhase string

const (
	// ApplicationPending means that nothing was decided yet.
	ApplicationPending ApplicationPhase = "Pending"
	// ApplicationRequested means that clusters were chosen, and that not all of them have answered.
	ApplicationRequested ApplicationPhase = "Requested"
	// ApplicationPlaced means that every component has its room.
	ApplicationPlaced ApplicationPhase = "Placed"
	// ApplicationUnplaced means that no set of clusters takes it at present. It is tried again when offers change.
	ApplicationUnplaced ApplicationPhase = "Unplaced"
	// ApplicationReleased means that it is deleted, and that a peer that does not answer has yet to be told.
	ApplicationReleased ApplicationPhase = "Released"
)

// ApplicationSpec says what is to be placed as a whole, and how.
// +kubebuilder:validation:XValidation:rule="!has(self.placement) || (!has(self.placement.together) || self.placement.together.all(g, g.components.all(n, self.components.exists(c, c.name == n)))) && (!has(self.placement.apart) || self.placement.apart.all(g, g.components.all(n, self.components.exists(c, c.name == n)))) && (!has(self.placement.talkative) || self.placement.talkative.all(g, g.components.all(n, self.components.exists(c, c.name == n))))",message="together, apart and talkative name components of this Application"
type ApplicationSpec struct {
	// components are the parts of the application. Each runs in one cluster.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=24
	Components []ApplicationComponent `json:"components"`

	// placement says which clusters may be chosen, and what makes one better than another. What the NamespaceOffloading of the
	// namespace and the administrator's policies exclude is excluded in any case.
	// +optional
	Placement *ApplicationPlacement `json:"placement,omitempty"`

	// auction says when clusters are asked for offers. By default when what they advertise leads to no set of clusters.
	// +optional
	Auction *ApplicationAuctionSpec `json:"auction,omitempty"`

	// timeToLive is for how long a place is looked for, from the creation of the application, or from when it lost its place. After that it
	// stays Unplaced. By default it is looked for as long as the application exists.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('8760h')",message="timeToLive must be at least 10s and at most 8760h, such as 10m"
	TimeToLive *metav1.Duration `json:"timeToLive,omitempty"`
}

// ApplicationComponent is a part of an application: pods of one kind. Workloads are not changed: their pods are known by their labels.
// +kubebuilder:validation:XValidation:rule="!has(self.weights) || !has(self.maxPrice)",message="a component with weights has no maxPrice of its own: set the one of placement"
type ApplicationComponent struct {
	// name tells the component from others.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// podLabels are the labels, with their values, that the pods of the component have. Pods that are created from now on wait until
	// the application is placed, and go where its component is.
	// +required
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.size() <= 317 && !format.qualifiedName().validate(key).hasValue())",message="every key must be a label key, such as app.kubernetes.io/name"
	PodLabels map[string]LabelValue `json:"podLabels"`

	// replicas is for how many pods there must be room. By default for as many as the Deployments and StatefulSets of the namespace ask
	// for whose pods have podLabels, also when they are scaled.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Replicas int32 `json:"replicas,omitempty"`

	// resources are what one of its pods asks for, such as cpu: "2". That it is a pod counts by itself. If replicas is not set, they are
	// by default what the template of the workload asks for.
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(name, name.size() <= 100 && name != 'pods' && !name.startsWith('requests.') && !name.startsWith('limits.'))",message="name what a pod asks for, such as cpu, in at most 100 characters: pods are counted by replicas"
	Resources corev1.ResourceList `json:"resources,omitempty"`

	// images are those of its containers. Of clusters that cost the same, one that has them already is chosen. If replicas is not set,
	// they are by default those of the template of the workload.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=512
	Images []string `json:"images,omitempty"`

	// maxPrice is the most that all its replicas may cost for an hour. With weights, set the one of placement instead.
	// +optional
	MaxPrice *Price `json:"maxPrice,omitempty"`

	// weights are the clusters that share its replicas, and how much each takes. Without them all replicas run in one cluster. A cluster
	// that refuses, has no room, or is cut off for longer than replaceAfter of placement, leaves its share to the others until it is back.
	// All components and their shares are 30 at most.
	// +optional
	// +listType=map
	// +listMapKey=peer
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Weights []ClusterWeight `json:"weights,omitempty"`
}

// ClusterWeight is how much of a component a cluster takes.
type ClusterWeight struct {
	// peer is whose cluster it is. It is empty for this cluster.
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=40
	Peer string `json:"peer"`

	// weight says how many of the replicas it takes: this many out of the sum of all weights.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Weight int32 `json:"weight"`
}

// ApplicationPlacement says which clusters an application may use, and which are better.
type ApplicationPlacement struct {
	// clusters are the only peers that may be chosen, besides this cluster. By default all that the namespace may use.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=40
	Clusters []string `json:"clusters,omitempty"`

	// exclude names peers that must not be chosen.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=40
	Exclude []string `json:"exclude,omitempty"`

	// prefer says what makes one set of clusters better than another. By default Price: the cheapest, and of these the nearest. With
	// Latency the nearest, and of these the cheapest.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self != 'Spread'",message="prefer Price or Latency: an application is not spread"
	// +kubebuilder:default=Price
	Prefer PlacementPreference `json:"prefer,omitempty"`

	// maxPrice is the most that the application may cost for an hour, in all.
	// +optional
	// +kubebuilder:validation:XValidation:rule="string(self.amount).size() <= 32 && string(self.amount).matches('^[0-9.]+([numkMGTPE]|[KMGTPE]i|[eE]-?[0-9]{1,2})?$')",message="amount must be a quantity of at most 32 characters, without a sign and with an exponent of at most two digits, such as 0.25"
	MaxPrice *Price `json:"maxPrice,omitempty"`

	// maxLatency excludes clusters whose measured round-trip time is longer, or is not known yet.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('1h')",message="maxLatency must be above 0s and at most 1h, such as 50ms"
	MaxLatency *metav1.Duration `json:"maxLatency,omitempty"`

	// minBandwidth excludes clusters to which fewer bytes per second pass, such as 10M, or of which that is not known yet. What
	// passes is the larger of bandwidth and throughput in the status of the Peer.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="minBandwidth must be above 0 bytes per second, such as 10M"
	MinBandwidth *resource.Quantity `json:"minBandwidth,omitempty"`

	// replaceAfter is for how long the cluster of a component may be cut off before the component is placed elsewhere, and its pods there
	// are evicted, so that their owners make others. By default a component waits for its cluster: its pods go on running there.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('168h')",message="replaceAfter must be at least 10s and at most 168h, such as 5m"
	ReplaceAfter *metav1.Duration `json:"replaceAfter,omitempty"`

	// together are groups of components that must run in one cluster.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Together []ComponentGroup `json:"together,omitempty"`

	// apart are groups of components of which no two may run in one cluster.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Apart []ComponentGroup `json:"apart,omitempty"`

	// talkative are groups of components that talk to each other a lot. Of sets of clusters that cost the same, one that separates few
	// of them is chosen.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Talkative []ComponentGroup `json:"talkative,omitempty"`
}

// ComponentGroup is some of the components of an application.
type ComponentGroup struct {
	// components are their names.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=2
	// +kubebuilder:validation:MaxItems=24
	// +kubebuilder:validation:items:MaxLength=63
	Components []string `json:"components"`
}

// ApplicationStatus says where the application runs, and what it costs.
type ApplicationStatus struct {
	// conditions: Placed (every component has its room; if not, the message says why) and Ready, which is the same.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase is Pending, Requested, Placed, Unplaced or Released.
	// +optional
	Phase ApplicationPhase `json:"phase,omitempty"`

	// components say where each runs: one with weights once for each cluster. They stay what they are while nothing better is agreed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=30
	Components []PlacedComponent `json:"components,omitempty"`

	// where says in words where the components are, such as "web at hamburg, database here, worker 2 at bremen, worker 1 here".
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Where string `json:"where,omitempty"`

	// price is what all of it costs for an hour. It is missing if it costs nothing.
	// +optional
	Price *Price `json:"price,omitempty"`

	// refusals are peers that have refused it, or have not answered in time. They are not asked again for a while.
	// +optional
	// +listType=map
	// +listMapKey=peer
	// +kubebuilder:validation:MaxItems=100
	Refusals []ApplicationRefusal `json:"refusals,omitempty"`

	// askedAt are the peers that may hold a Request of this application.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=40
	AskedAt []string `json:"askedAt,omitempty"`

	// unsuitable says, while the application is Unplaced, why components do not fit in clusters. At most 100 are listed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Unsuitable []UnsuitableCluster `json:"unsuitable,omitempty"`

	// auction is the last auction that was held for the application.
	// +optional
	Auction *ApplicationAuction `json:"auction,omitempty"`
}

// PlacedComponent says where a component runs.
type PlacedComponent struct {
	// name is that of the component.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// peer is whose cluster it runs in. It is empty for this cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=40
	Peer string `json:"peer,omitempty"`

	// replicas is for how many of its pods there is room.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// readyReplicas is how many of its pods there are Ready. It is looked at every 30 s.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// lostSince is since when the cluster is cut off. It is missing if it is not.
	// +optional
	LostSince *metav1.Time `json:"lostSince,omitempty"`

	// acknowledged says that the cluster has reserved the room, or that it is this cluster.
	// +optional
	Acknowledged bool `json:"acknowledged,omitempty"`

	// price is what its replicas cost for an hour. It is missing if they cost nothing.
	// +optional
	Price *Price `json:"price,omitempty"`

	// since is when the cluster was chosen, or asked again.
	// +required
	Since metav1.Time `json:"since"`
}

// ApplicationRefusal is the answer of a peer that does not take what it was asked for.
type ApplicationRefusal struct {
	// peer is who refused.
	// +required
	// +kubebuilder:validation:MaxLength=40
	Peer string `json:"peer"`

	// message is what it said.
	// +required
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message"`

	// until is when it may be asked again.
	// +required
	Until metav1.Time `json:"until"`
}

// UnsuitableCluster says why a component does not fit in a cluster.
type UnsuitableCluster struct {
	// component is its name.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Component string `json:"component"`

	// peer is whose cluster it is. It is empty for this cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=40
	Peer string `json:"peer,omitempty"`

	// message says why.
	// +required
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message"`
}

// Application has the components of an application placed as a whole: in the best set of clusters by price, latency and room, with
// this cluster as one of them, where the room is reserved before the first pod is created. It lives beside its pods, in a namespace
// that is offloaded.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=happ,categories=hanse
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Components",type=string,JSONPath=`.status.where`
// +kubebuilder:printcolumn:name="Price",type=string,JSONPath=`.status.price.amount`
// +kubebuilder:printcolumn:name="Currency",type=string,JSONPath=`.status.price.currency`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Placed")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Application struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what is to be placed.
	// +required
	Spec ApplicationSpec `json:"spec"`
	// status says where it runs.
	// +optional
	Status ApplicationStatus `json:"status,omitempty"`
}

// ApplicationList is a list of applications.
// +kubebuilder:object:root=true
type ApplicationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Application `json:"items"`
}
