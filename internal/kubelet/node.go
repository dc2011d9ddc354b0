// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
)

const (
	// annotationPeerLabels lists the labels of the Node that came from the peer, so that one that the peer no longer
	// advertises goes, and one that an administrator added stays.
	annotationPeerLabels = v1alpha1.AnnotationPeerLabels
	// annotationNoScaleDown keeps the cluster autoscaler from counting a virtual node as one to save.
	annotationNoScaleDown = "cluster-autoscaler.kubernetes.io/scale-down-disabled"

	providerIDPrefix = "hanse://"
	reasonServing    = "AdvertisementAccepted"
)

// endpoint is where the kubelet API of a virtual node listens.
type endpoint struct {
	address string
	port    int32
}

// desiredNode returns the Node that stands for the peer as long as it offers what ad says, closed to new pods if it takes
// none. Its conditions carry no times; the caller adds those.
func desiredNode(peer *v1alpha1.Peer, ad *v1alpha1.AdvertisementSpec, at endpoint) *corev1.Node {
	name := v1alpha1.VirtualNodeName(peer.Name)
	foreign := offload.PeerLabels(peer.Name, ad.Labels)
	offered := exchange.Offered(ad)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: labels.Merge(foreign, ownLabels(peer, ad)),
			Annotations: map[string]string{
				annotationPeerLabels:  strings.Join(slices.Sorted(maps.Keys(foreign)), ","),
				annotationNoScaleDown: "true",
			},
		},
		Spec: corev1.NodeSpec{
			ProviderID: providerID(peer),
			Taints:     openTaints(peer, ad),
		},
		Status: corev1.NodeStatus{
			Capacity:    offered.DeepCopy(),
			Allocatable: offered.DeepCopy(),
			Conditions:  append(nodeConditions(), networkCondition(peer)),
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: at.address},
				{Type: corev1.NodeHostName, Address: name},
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{
				KubeletEndpoint: corev1.DaemonEndpoint{Port: at.port},
			},
			NodeInfo: corev1.NodeSystemInfo{
				Architecture:            architecture(ad),
				OperatingSystem:         "linux",
				OSImage:                 "Hanse",
				KubeletVersion:          ad.KubernetesVersion,
				ContainerRuntimeVersion: providerID(peer),
			},
			Images: nodeImages(ad.Images),
		},
	}
}

func providerID(peer *v1alpha1.Peer) string { return providerIDPrefix + peer.Spec.ClusterID }

// takesPods says whether the peer takes more pods than it has: it says so, and understands what we would say.
func takesPods(peer *v1alpha1.Peer, ad *v1alpha1.AdvertisementSpec) bool {
	incompatible := meta.IsStatusConditionFalse(peer.Status.Conditions, v1alpha1.ConditionCompatible)
	return !incompatible && exchange.Phase(ad) == v1alpha1.OfferOpen
}

// withdrawnTaint closes a virtual node to new pods.
var withdrawnTaint = corev1.Taint{Key: v1alpha1.TaintWithdrawn, Value: "true", Effect: corev1.TaintEffectNoSchedule}

// ownTaints keep pods off every virtual node that do not ask for one, and behind real nodes those that may use both.
var ownTaints = []corev1.Taint{
	{Key: v1alpha1.TaintVirtualNode, Value: "true", Effect: corev1.TaintEffectNoSchedule},
	{Key: v1alpha1.TaintVirtualNode, Value: "true", Effect: corev1.TaintEffectPreferNoSchedule},
}

// closedTaints are those of a virtual node that takes no more pods.
func closedTaints() []corev1.Taint { return append(slices.Clone(ownTaints), withdrawnTaint) }

// openTaints are those of a virtual node as long as the peer offers what ad says.
func openTaints(peer *v1alpha1.Peer, ad *v1alpha1.AdvertisementSpec) []corev1.Taint {
	switch {
	case !takesPods(peer, ad):
		return closedTaints()
	case exchange.Scattered(ad):
		return append(slices.Clone(ownTaints), corev1.Taint{Key: v1alpha1.TaintFull, Value: peer.Name, Effect: corev1.TaintEffectNoSchedule})
	default:
		return slices.Clone(ownTaints)
	}
}

// isClosed says whether the node takes no more pods, because we have closed it.
func isClosed(node *corev1.Node) bool {
	return slices.Contains(node.Spec.Taints, withdrawnTaint)
}

func architecture(ad *v1alpha1.AdvertisementSpec) string {
	if len(ad.Architectures) == 0 {
		return ""
	}
	return ad.Architectures[0]
}

func nodeConditions() []corev1.NodeCondition {
	conditions := []corev1.NodeCondition{readyNode()}
	for _, pressure := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		conditions = append(conditions, corev1.NodeCondition{
			Type: pressure, Status: corev1.ConditionFalse, Reason: reasonServing, Message: "The peer's own nodes see to it",
		})
	}
	return conditions
}

// networkCondition says whether there ought to be a network to the peer and is none. Kubernetes puts the taint
// node.kubernetes.io/network-unavailable on the node then: pods that it has stay, and it gets no more. Where the two clusters have
// no gateways, pods run there that need no network.
func networkCondition(peer *v1alpha1.Peer) corev1.NodeCondition {
	c := corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse}
	switch down := peer.NetworkDown(); {
	case down != nil:
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, down.Reason, down.Message
	case peer.Connected():
		c.Reason, c.Message = v1alpha1.ReasonReady, "Pods of this cluster and of the peer reach each other, as far as that is allowed"
	default:
		c.Reason, c.Message = v1alpha1.ReasonNoNetworkFabric, "The clusters have no network between them, and pods that need none run at the peer"
	}
	return c
}

func readyNode() corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		Reason: reasonServing, Message: "The peer's advertisement is accepted",
	}
}

// cutOffNode is the Ready condition of a node whose peer does not answer. Unknown, as that of a node whose kubelet is not
// heard of: Kubernetes puts the taint node.kubernetes.io/unreachable on the node for it, and takes it off again. Its lease
// goes on, which says that we are alive.
func cutOffNode(over error) corev1.NodeCondition {
	c := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: v1alpha1.ReasonDisconnected,
		Message: "The peer does not answer, so nobody knows how its pods are: see the conditions of the Peer",
	}
	if over != nil {
		c.Reason = v1alpha1.ReasonOverBudget
		c.Message = "Nothing more is taken from the peer, so nobody knows how its pods are: " + over.Error()
	}
	return c
}

// unlinkedNode is the Ready condition of a node whose peer cannot be asked, since there are no credentials for that.
func unlinkedNode() corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: v1alpha1.ReasonDisconnected,
		Message: "There are no credentials for the peer: see the conditions of the Peer",
	}
}

// linkConditions returns what the link says about conditions that are to be. While nobody knows, the node stays as ready
// as it is shown.
func linkConditions(link peers.State, over error, desired []corev1.NodeCondition, isNew bool) []corev1.NodeCondition {
	isReady := func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady }
	switch {
	case link == peers.Cut:
		return append(slices.DeleteFunc(desired, isReady), cutOffNode(over))
	case link == peers.Unlinked:
		return append(slices.DeleteFunc(desired, isReady), unlinkedNode())
	case link == peers.Unknown && !isNew:
		return slices.DeleteFunc(desired, isReady)
	default:
		return desired
	}
}

// flapsOf is a condition of a virtual node: whether its peer changes what it tells of pods too often. A node of a peer that never
// did has no such condition.
func flapsOf(flaps bool, node *corev1.Node) *corev1.NodeCondition {
	switch {
	case flaps:
		return &corev1.NodeCondition{
			Type: v1alpha1.NodeFlaps, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonFlaps,
			Message: "The peer changes what it tells of pods so often that each is written once a second at most: ask its administrator why",
		}
	case node != nil && nodeCondition(node, v1alpha1.NodeFlaps) != nil:
		return &corev1.NodeCondition{
			Type: v1alpha1.NodeFlaps, Status: corev1.ConditionFalse, Reason: reasonServing, Message: "What the peer tells of pods is written at once",
		}
	default:
		return nil
	}
}

func nodeImages(images []v1alpha1.Image) []corev1.ContainerImage {
	var result []corev1.ContainerImage
	for _, image := range images {
		result = append(result, corev1.ContainerImage{Names: slices.Clone(image.Names), SizeBytes: image.SizeBytes})
	}
	return result
}

// labelExcludeDisruption keeps the node lifecycle controller from counting a virtual node when it measures whether a
// whole zone of the cluster is down.
const labelExcludeDisruption = "node.kubernetes.io/exclude-disruption"

// ownLabels are the labels of a virtual node that no peer can change.
func ownLabels(peer *v1alpha1.Peer, ad *v1alpha1.AdvertisementSpec) map[string]string {
	own := map[string]string{
		v1alpha1.LabelType:               v1alpha1.TypeVirtualNode,
		v1alpha1.LabelPeer:               peer.Name,
		v1alpha1.LabelClusterID:          peer.Spec.ClusterID,
		"type":                           "virtual-kubelet",
		corev1.LabelHostname:             v1alpha1.VirtualNodeName(peer.Name),
		corev1.LabelOSStable:             "linux",
		corev1.LabelNodeExcludeBalancers: "",
		labelExcludeDisruption:           "",
		v1alpha1.LabelVolumes:            strconv.FormatBool(len(ad.StorageClasses) > 0),
	}
	if arch := architecture(ad); len(validation.IsValidLabelValue(arch)) == 0 && arch != "" {
		own[corev1.LabelArchStable] = arch
	}
	return own
}

// mergeNode returns the Node as it is, with what we keep of it made as desired. What others put on it stays: labels and
// annotations of the administrator, the cordon, taints and conditions of Kubernetes' own controllers. A capacity that
// moves a little stays as it is shown, so that the Node is not written with every pod that starts or ends at the peer.
func mergeNode(current, desired *corev1.Node, now metav1.Time) *corev1.Node {
	merged := current.DeepCopy()
	for _, key := range strings.Split(current.Annotations[annotationPeerLabels], ",") {
		delete(merged.Labels, key)
	}
	merged.Labels = labels.Merge(merged.Labels, desired.Labels)
	merged.Annotations = labels.Merge(merged.Annotations, desired.Annotations)
	merged.Spec.ProviderID = desired.Spec.ProviderID
	merged.Spec.Taints = mergeTaints(current.Spec.Taints, desired.Spec.Taints)

	capacity := exchange.Steady(current.Status.Capacity, desired.Status.Capacity)
	conditions := slices.Clone(current.Status.Conditions)
	for _, condition := range desired.Status.Conditions {
		conditions = setNodeCondition(conditions, condition, now)
	}
	desired.Status.DeepCopyInto(&merged.Status)
	merged.Status.Capacity, merged.Status.Allocatable = capacity, capacity.DeepCopy()
	merged.Status.Conditions = conditions
	merged.Status.VolumesAttached = current.Status.VolumesAttached
	merged.Status.VolumesInUse = current.Status.VolumesInUse
	return merged
}

// taintKeys are those of the taints that are ours.
var taintKeys = []string{v1alpha1.TaintVirtualNode, v1alpha1.TaintWithdrawn, v1alpha1.TaintFull}

// mergeTaints keeps the taints of others, in their order, behind ours.
func mergeTaints(current, ours []corev1.Taint) []corev1.Taint {
	merged := slices.Clone(ours)
	for _, taint := range current {
		if !slices.Contains(taintKeys, taint.Key) {
			merged = append(merged, taint)
		}
	}
	return merged
}

// setNodeCondition sets one condition. Its times move only when something else of it does: the lease is the heartbeat.
func setNodeCondition(conditions []corev1.NodeCondition, c corev1.NodeCondition, now metav1.Time) []corev1.NodeCondition {
	c.LastHeartbeatTime, c.LastTransitionTime = now, now
	at := slices.IndexFunc(conditions, func(was corev1.NodeCondition) bool { return was.Type == c.Type })
	if at < 0 {
		return append(conditions, c)
	}
	was := conditions[at]
	if was.Status == c.Status && was.Reason == c.Reason && was.Message == c.Message {
		return conditions
	}
	if was.Status == c.Status {
		c.LastTransitionTime = was.LastTransitionTime
	}
	conditions[at] = c
	return conditions
}
