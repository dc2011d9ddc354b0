// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// OffloadingStrategy says where the pods of a namespace may run.
// +kubebuilder:validation:Enum=Local;Remote;LocalAndRemote
type OffloadingStrategy string

const (
	// StrategyLocal runs pods on the nodes of this cluster only.
	StrategyLocal OffloadingStrategy = "Local"
	// StrategyRemote runs pods on virtual nodes only.
	StrategyRemote OffloadingStrategy = "Remote"
	// StrategyLocalAndRemote runs pods on the nodes of this cluster while they have room, then on virtual nodes.
	StrategyLocalAndRemote OffloadingStrategy = "LocalAndRemote"
)

// NamespaceOffloadingSpec says how the pods of a namespace are offloaded.
type NamespaceOffloadingSpec struct {
	// strategy says where new pods of the namespace may run. By default LocalAndRemote: on the nodes of this cluster
	// while they have room, then on virtual nodes.
	// +optional
	// +kubebuilder:default=LocalAndRemote
	Strategy OffloadingStrategy `json:"strategy,omitempty"`

	// clusterSelector selects, by the labels of their virtual nodes, the clusters that pods may be offloaded to. By
	// default all.
	// +optional
	ClusterSelector *ClusterSelector `json:"clusterSelector,omitempty"`

	// placement says which of the selected clusters are preferred, and which must not be used. By default home comes first,
	// then what the administrator's policy says.
	// +optional
	Placement *NamespacePlacement `json:"placement,omitempty"`

	// onDisconnect says what becomes of pods whose provider is cut off. With Wait, the default, they stay for as long as it
	// takes. With Replace their controller starts others after replaceAfter, and the older ones end when the provider
	// answers again.
	// +optional
	// +kubebuilder:default=Wait
	OnDisconnect DisconnectionMode `json:"onDisconnect,omitempty"`

	// replaceAfter is for how long a provider may be cut off before its pods are replaced. It counts with onDisconnect
	// Replace alone. By default 5m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('720h')",message="replaceAfter must be at least 1s and at most 720h, such as 5m"
	ReplaceAfter *metav1.Duration `json:"replaceAfter,omitempty"`

	// placementTimeout is for how long the provider may look for room for a pod before another node gets the pod. By default
	// 30s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="placementTimeout must be at least 1s and at most 24h, such as 30s"
	PlacementTimeout *metav1.Duration `json:"placementTimeout,omitempty"`

	// scaleUpTimeout is the same after the provider's autoscaler said that it makes room for the pod. By default 10m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="scaleUpTimeout must be at least 1s and at most 24h, such as 10m"
	ScaleUpTimeout *metav1.Duration `json:"scaleUpTimeout,omitempty"`

	// twin says what the namespace is called at the providers. By default the provider makes the name.
	// +optional
	Twin *TwinNaming `json:"twin,omitempty"`

	// onChange says what becomes of pods that run where the spec, after a change, would not let new pods run. With Keep,
	// the default, they stay. With Evict they are evicted, as their PodDisruptionBudgets allow, and their controllers start
	// others where they may run now; pods without a controller get a PodMove.
	// +optional
	// +kubebuilder:default=Keep
	OnChange ChangeMode `json:"onChange,omitempty"`

	// overrides change pods for the clusters that they select, when the pods go out. All that match are applied, in order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Overrides []ClusterOverride `json:"overrides,omitempty"`
}

// DisconnectionMode says what becomes of pods whose provider is cut off.
// +kubebuilder:validation:Enum=Wait;Replace
type DisconnectionMode string

const (
	// DisconnectionWait lets pods stay for as long as it takes.
	DisconnectionWait DisconnectionMode = "Wait"
	// DisconnectionReplace lets their controllers start others after a time.
	DisconnectionReplace DisconnectionMode = "Replace"
)

// ChangeMode says what becomes of pods that run where new ones may not.
// +kubebuilder:validation:Enum=Keep;Evict
type ChangeMode string

const (
	// ChangeKeep lets them stay.
	ChangeKeep ChangeMode = "Keep"
	// ChangeEvict evicts them, as their PodDisruptionBudgets allow.
	ChangeEvict ChangeMode = "Evict"
)

// TwinNamingMode says where the name of a twin namespace comes from.
// +kubebuilder:validation:Enum=Generated;SameName;Chosen
type TwinNamingMode string

const (
	// TwinGenerated lets the provider make a name, which nothing else has.
	TwinGenerated TwinNamingMode = "Generated"
	// TwinSameName asks for the name that the namespace has here.
	TwinSameName TwinNamingMode = "SameName"
	// TwinChosen asks for the name in spec.twin.name.
	TwinChosen TwinNamingMode = "Chosen"
)

// TwinNaming says what a namespace is called at providers. A provider gives a name that it did not make itself only where
// its administrator lets this cluster choose (Peer.spec.twinNames there).
// +kubebuilder:validation:XValidation:rule="(self.naming == 'Chosen') == has(self.name)",message="name is needed with naming Chosen, and with no other"
type TwinNaming struct {
	// naming says where the name comes from. By default Generated.
	// +optional
	// +kubebuilder:default=Generated
	Naming TwinNamingMode `json:"naming,omitempty"`

	// name is the name to ask for, with naming Chosen.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
}

// ClusterOverride changes the pods that go out to some clusters.
type ClusterOverride struct {
	// clusterSelector selects the clusters, by the labels of their virtual nodes. By default all.
	// +optional
	ClusterSelector *ClusterSelector `json:"clusterSelector,omitempty"`

	// patch is what changes: operations of a JSON patch (RFC 6902) on the pod. It may change images, commands, arguments,
	// environment, resources, labels and annotations, and nothing else. A pod that it does not fit waits and says so.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Patch []PatchOperation `json:"patch"`
}

// PatchOperation is one operation of a JSON patch.
type PatchOperation struct {
	// op is what to do.
	// +required
	// +kubebuilder:validation:Enum=add;replace;remove
	Op string `json:"op"`

	// path is the field, as a JSON pointer, such as /spec/containers/0/image.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^/(metadata/(labels|annotations)(/[^/]+)?|spec/(containers|initContainers)/[0-9]+/(image|command|args|env|resources)(/.*)?)$')",message="path must lead to labels, annotations, or the image, command, args, env or resources of a container"
	Path string `json:"path"`

	// value is the new value, as JSON of at most 4 KiB. add and replace need it.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Value *runtime.RawExtension `json:"value,omitempty"`
}

// PlacementPreference says what makes one cluster better than another.
// +kubebuilder:validation:Enum=Price;Latency;Spread
type PlacementPreference string

const (
	// PreferPrice prefers the cluster that asks the least.
	PreferPrice PlacementPreference = "Price"
	// PreferLatency prefers the cluster that is the nearest, by the measured round-trip time.
	PreferLatency PlacementPreference = "Latency"
	// PreferSpread prefers no cluster, so that the scheduler spreads pods over all.
	PreferSpread PlacementPreference = "Spread"
)

// NamespacePlacement says which clusters the pods of a namespace prefer, and which they must not run in. Annotations of a
// pod override it: hanse.dev/prefer (Price, Latency or Spread) and hanse.dev/exclude (names of peers, separated by commas).
type NamespacePlacement struct {
	Placement `json:",inline"`

	// classes say it for some of the pods. A pod belongs to the first class in the list whose labels it has.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Classes []PlacementClass `json:"classes,omitempty"`
}

// PlacementClass says where the pods with some labels go. Fields that it leaves out are those of the namespace; what it
// excludes is excluded besides what the namespace excludes, and strict is what either says is strict.
type PlacementClass struct {
	// name tells the class from the others, to policies too.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// podLabels are the labels, with their values, that pods of the class have.
	// +required
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.size() <= 317 && !format.qualifiedName().validate(key).hasValue())",message="every key must be a label key, such as app.kubernetes.io/name"
	PodLabels map[string]LabelValue `json:"podLabels"`

	Placement `json:",inline"`
}

// Placement says which clusters pods prefer, and which they must not run in.
type Placement struct {
	// prefer says what makes one cluster better than another, unless the administrator's policy says it. Where it is set,
	// real nodes of this cluster are not preferred to virtual ones.
	// +optional
	Prefer PlacementPreference `json:"prefer,omitempty"`

	// request is the pod that prices and room are compared by. By default one core and 1Gi of memory.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Request corev1.ResourceList `json:"request,omitempty"`

	// maxPrice is the most that such a pod may cost for an hour. A cluster that asks more, or asks in another currency, is
	// excluded.
	// +optional
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

	// exclude names peers that pods must not run in.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=40
	Exclude []string `json:"exclude,omitempty"`

	// strict lets pods run in the best cluster that such a pod fits in, and in no other.
	// +optional
	Strict bool `json:"strict,omitempty"`
}

// Price is an exact amount of money.
type Price struct {
	// amount is how much.
	// +required
	// +kubebuilder:validation:XValidation:rule="!string(self).startsWith('-')",message="amount must not be negative"
	Amount resource.Quantity `json:"amount"`

	// currency is the ISO 4217 code of the currency.
	// +required
	// +kubebuilder:validation:MaxLength=3
	// +kubebuilder:validation:Pattern=`^[A-Z]{3}$`
	Currency string `json:"currency"`
}

// ClusterSelector selects clusters by the labels of their virtual nodes. All of it must match.
type ClusterSelector struct {
	// matchLabels are labels with the values that they must have.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.size() <= 317 && !format.qualifiedName().validate(key).hasValue())",message="every key must be a label key, such as topology.kubernetes.io/region"
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`

	// matchExpressions are further requirements.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	MatchExpressions []ClusterSelectorRequirement `json:"matchExpressions,omitempty"`
}

// Selector returns the selector that the scheduler's node affinity amounts to: everything, of nil. It fails if a key or a
// value cannot be that of a label.
func (s *ClusterSelector) Selector() (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	translated := metav1.LabelSelector{}
	for key, value := range s.MatchLabels {
		metav1.AddLabelToSelector(&translated, key, string(value))
	}
	for _, requirement := range s.MatchExpressions {
		values := make([]string, 0, len(requirement.Values))
		for _, value := range requirement.Values {
			values = append(values, string(value))
		}
		translated.MatchExpressions = append(translated.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: requirement.Key, Operator: requirement.Operator, Values: values})
	}
	selector, err := metav1.LabelSelectorAsSelector(&translated)
	if err != nil {
		return nil, fmt.Errorf("read clusterSelector: %w", err)
	}
	return selector, nil
}

// LabelValue is the value of a label.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
type LabelValue string

// ClusterSelectorRequirement is a requirement on one label of a virtual node.
// +kubebuilder:validation:XValidation:rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",message="operators In and NotIn need values; Exists and DoesNotExist take none"
type ClusterSelectorRequirement struct {
	// key is the label.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="key must be a label key, such as topology.kubernetes.io/region"
	Key string `json:"key"`

	// operator says how the label's value and values relate.
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`

	// values are needed by In and NotIn, and by no other operator.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Values []LabelValue `json:"values,omitempty"`
}

// States of a ClusterOffloading. Refused does not change by waiting.
const (
	ClusterReady   = "Ready"
	ClusterPending = "Pending"
	ClusterRefused = "Refused"
)

// ClusterOffloading says how the offloading of a namespace to one peer stands.
type ClusterOffloading struct {
	// peer is the name of the Peer.
	// +required
	// +kubebuilder:validation:MaxLength=40
	Peer string `json:"peer"`

	// twin is the namespace at the peer.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Twin string `json:"twin,omitempty"`

	// state is Ready when pods can be offloaded to that peer, else Pending or Refused.
	// +required
	// +kubebuilder:validation:Enum=Ready;Pending;Refused
	State string `json:"state"`

	// message explains a state that is not Ready.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// NamespacePlacementStatus is what was decided about where new pods of a namespace go. The admission policy follows it.
type NamespacePlacementStatus struct {
	PlacementStatus `json:",inline"`

	// classes are what was decided about the classes that spec.placement names, in their order, and what was agreed for the components
	// of Applications in the namespace; of these at most 64 are listed.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=72
	Classes []PlacementClassStatus `json:"classes,omitempty"`
}

// PlacementClassStatus is what was decided about the pods of a class, instead of what was decided about the namespace.
type PlacementClassStatus struct {
	// name is that of the class in spec.placement, or those of an Application and its component with a slash between them, and after
	// another one the cluster that takes a share of the component.
	// +required
	// +kubebuilder:validation:MaxLength=360
	Name string `json:"name"`

	// component says of which pods this is the class, and how they leave, if they are those of a component of an Application. It comes
	// before all that is said of other classes.
	// +optional
	Component *ComponentPlacement `json:"component,omitempty"`

	PlacementStatus `json:",inline"`
}

// ComponentPlacement says how the pods of a component of an Application leave.
type ComponentPlacement struct {
	// podLabels are the labels, with their values, that the pods have.
	// +required
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=8
	PodLabels map[string]LabelValue `json:"podLabels"`

	// strategy is Remote if the component is at a peer, or waits for a place, and Local if it is in this cluster.
	// +required
	Strategy OffloadingStrategy `json:"strategy"`

	// clusters are the only peers that the pods may run at, also where they are sent on. By default any.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=40
	Clusters []string `json:"clusters,omitempty"`

	// exclude names peers that the pods must not run at, also where they are sent on.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=40
	Exclude []string `json:"exclude,omitempty"`

	// maxLatency is how far away, by the round-trip time, a cluster may be that the pods run in, also where they are sent on.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	MaxLatency *metav1.Duration `json:"maxLatency,omitempty"`

	// minBandwidth is how many bytes per second must pass to it.
	// +optional
	MinBandwidth *resource.Quantity `json:"minBandwidth,omitempty"`

	// request is the name of the Request at the peer whose reservation the pods use.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Request string `json:"request,omitempty"`

	// share is set where several clusters share the pods of the component: only pods with this value of the annotation hanse.dev/share are
	// of this class. It is the name of the virtual node, or "home". Other pods of the component wait until the manager puts the
	// annotation on them.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Share string `json:"share,omitempty"`

	// replicas is how many of the pods are in this share.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
}

// PlacementStatus is what was decided about where new pods go.
type PlacementStatus struct {
	// prefersRemote says that virtual nodes come by their weights, and are not behind real nodes.
	// +optional
	PrefersRemote bool `json:"prefersRemote,omitempty"`

	// nodes are the virtual nodes that something was decided about, sorted by name; at most 200 are listed.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=200
	Nodes []NodePlacement `json:"nodes,omitempty"`

	// only are the virtual nodes that pods may run on, if placement is strict: the best one. It is empty, with strict set,
	// while no cluster fits.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	Only []string `json:"only,omitempty"`

	// strict says that no virtual nodes but those in only may be used.
	// +optional
	Strict bool `json:"strict,omitempty"`

	// excludedBehind are the ids of clusters behind providers, named by nested in their offers, that a policy excludes. Pods are
	// not sent on to them. At most 256 are listed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=30
	ExcludedBehind []string `json:"excludedBehind,omitempty"`

	// admission is what admission adds to new pods, so that the scheduler does all of this. As long as it is missing, pods go to
	// virtual nodes only under strategy Remote, by what the spec says.
	// +optional
	Admission *PodAdmission `json:"admission,omitempty"`
}

// Allows reports whether new pods may go to the node that this was decided about.
func (s *PlacementStatus) Allows(node NodePlacement) bool {
	return node.Excluded == "" && (!s.Strict || slices.Contains(s.Only, node.Name))
}

// AllowsAny reports whether there is a node that new pods may go to.
func (s *PlacementStatus) AllowsAny() bool {
	return len(s.Only) > 0 || !s.Strict && slices.ContainsFunc(s.Nodes, s.Allows)
}

// PodAdmission is what admission adds to new pods.
type PodAdmission struct {
	// required are the terms of the required node affinity: a node must meet one of them. If there are none, all nodes do.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	Required []NodeTerm `json:"required,omitempty"`

	// preferred are the terms of the preferred node affinity.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=101
	Preferred []WeightedNodeTerm `json:"preferred,omitempty"`

	// preferredByPrice are the same for pods that prefer Price by annotation.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=101
	PreferredByPrice []WeightedNodeTerm `json:"preferredByPrice,omitempty"`

	// preferredByLatency are the same for pods that prefer Latency by annotation.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=101
	PreferredByLatency []WeightedNodeTerm `json:"preferredByLatency,omitempty"`

	// gated says that no cluster takes pods now. Those that must leave this cluster wait behind the scheduling gate
	// hanse.dev/no-cluster-fits, which the manager takes off as soon as a cluster takes them.
	// +optional
	Gated bool `json:"gated,omitempty"`

	// tolerations let the pods go to virtual nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	Tolerations []PodToleration `json:"tolerations,omitempty"`
}

// NodeTerm is a term of a node affinity. A node must meet all of it.
type NodeTerm struct {
	// matchExpressions are requirements on the labels of the node.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	MatchExpressions []NodeRequirement `json:"matchExpressions,omitempty"`
}

// NodeRequirement is a requirement on one label of a node.
type NodeRequirement struct {
	// key is the label.
	// +required
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`

	// operator says how the label's value and values relate.
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator corev1.NodeSelectorOperator `json:"operator"`

	// values are needed by In and NotIn, and by no other operator.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	Values []LabelValue `json:"values,omitempty"`
}

// WeightedNodeTerm is a term of a preferred node affinity.
type WeightedNodeTerm struct {
	// weight is how much it counts.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight"`

	// preference says which nodes are preferred.
	// +required
	Preference NodeTerm `json:"preference"`
}

// PodToleration is a toleration of a taint of nodes.
type PodToleration struct {
	// key is that of the taint.
	// +required
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`

	// operator says how the taint's value is compared.
	// +required
	// +kubebuilder:validation:Enum=Exists
	Operator corev1.TolerationOperator `json:"operator"`

	// effect is that of the taint. It is empty for all effects.
	// +optional
	// +kubebuilder:validation:Enum=NoSchedule
	Effect corev1.TaintEffect `json:"effect,omitempty"`
}

// NodePlacement is what was decided about one virtual node.
type NodePlacement struct {
	// name is that of the virtual node.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// excluded is why none of the pods may run there. It is empty if they may.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Excluded string `json:"excluded,omitempty"`

	// weight is how much the node is preferred: 1 to 100, 0 not at all.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight,omitempty"`

	// largestPod is the largest pod that the provider can place now, rounded down. Larger ones do not tolerate the taint
	// hanse.dev/full of the node until they fit. Resources that it does not name are no limit.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	LargestPod corev1.ResourceList `json:"largestPod,omitempty"`

	// weightByPrice is the weight for pods that prefer Price by annotation.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	WeightByPrice int32 `json:"weightByPrice,omitempty"`

	// weightByLatency is the weight for pods that prefer Latency by annotation.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	WeightByLatency int32 `json:"weightByLatency,omitempty"`
}

// NamespaceOffloadingStatus says how the offloading of a namespace stands.
type NamespaceOffloadingStatus struct {
	// conditions: Ready (every selected peer has a twin of this namespace), Placed (it was decided where new pods go), and, only
	// while False, NetworkPoliciesKept (NetworkPolicies hold for pods at peers).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// clusters are the peers that the selector matches, sorted by name; at most 1,000 are listed.
	// +optional
	// +listType=map
	// +listMapKey=peer
	// +kubebuilder:validation:MaxItems=1000
	Clusters []ClusterOffloading `json:"clusters,omitempty"`

	// placement is what was decided about where new pods go.
	// +optional
	Placement *NamespacePlacementStatus `json:"placement,omitempty"`
}

// NamespaceOffloading lets the pods of its namespace run in other clusters. It must be called "offloading", so that a
// namespace has at most one.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=hoff,categories=hanse
// +kubebuilder:printcolumn:name="Strategy",type=string,JSONPath=`.spec.strategy`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'offloading'",message="a NamespaceOffloading must be called \"offloading\", so that a namespace has at most one"
type NamespaceOffloading struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says how the pods of the namespace are offloaded.
	// +optional
	// +kubebuilder:default={}
	Spec NamespaceOffloadingSpec `json:"spec,omitempty"`
	// status says how the offloading stands.
	// +optional
	Status NamespaceOffloadingStatus `json:"status,omitempty"`
}

// NamespaceOffloadingList is a list of namespace offloadings.
// +kubebuilder:object:root=true
type NamespaceOffloadingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NamespaceOffloading `json:"items"`
}
