package kubelet

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
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
	foreign := peerLabels(peer.Name, ad.Labels)
	labels := ownLabels(peer, ad)
	offered := exchange.Offered(ad)
	for key, value := range foreign {
		if _, ours := labels[key]; !ours {
			labels[key] = value
		}
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: labels,
			Annotations: map[string]string{
				annotationPeerLabels:  strings.Join(slices.Sorted(maps.Keys(foreign)), ","),
				annotationNoScaleDown: "true",
			},
		},
		Spec: corev1.NodeSpec{
			ProviderID: providerID(peer),
			Taints:     nodeTaints(takesPods(peer, ad)),
		},
		Status: corev1.NodeStatus{
			Capacity:    offered.DeepCopy(),
			Allocatable: offered.DeepCopy(),
			Conditions:  nodeConditions(),
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

func nodeTaints(open bool) []corev1.Taint {
	if open {
		return offerTaints()
	}
	return append(offerTaints(), withdrawnTaint())
}

// isClosed says whether the node takes no more pods, because we have closed it.
func isClosed(node *corev1.Node) bool {
	return slices.Contains(node.Spec.Taints, withdrawnTaint())
}

// offerTaints keep pods off the virtual node that do not ask for it, and behind real nodes those that may use both.
func offerTaints() []corev1.Taint {
	return []corev1.Taint{
		{Key: v1alpha1.TaintVirtualNode, Value: "true", Effect: corev1.TaintEffectNoSchedule},
		{Key: v1alpha1.TaintVirtualNode, Value: "true", Effect: corev1.TaintEffectPreferNoSchedule},
	}
}

func withdrawnTaint() corev1.Taint {
	return corev1.Taint{Key: v1alpha1.TaintWithdrawn, Value: "true", Effect: corev1.TaintEffectNoSchedule}
}

func architecture(ad *v1alpha1.AdvertisementSpec) string {
	if len(ad.Architectures) == 0 {
		return ""
	}
	return ad.Architectures[0]
}

func nodeConditions() []corev1.NodeCondition {
	return []corev1.NodeCondition{
		readyNode(),
		unpressed(corev1.NodeMemoryPressure),
		unpressed(corev1.NodeDiskPressure),
		unpressed(corev1.NodePIDPressure),
	}
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
		c.Message = "Nothing more is taken from the peer, so nobody knows how its pods are: " + over.Error()
	}
	return c
}

// linkConditions returns what the link says about conditions that are to be. While nobody knows, the node stays as ready
// as it is shown.
func linkConditions(link peers.State, over error, desired []corev1.NodeCondition, isNew bool) []corev1.NodeCondition {
	switch {
	case link == peers.Cut:
		return replaceNodeCondition(desired, cutOffNode(over))
	case link == peers.Unknown && !isNew:
		return slices.DeleteFunc(desired, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	default:
		return desired
	}
}

func replaceNodeCondition(conditions []corev1.NodeCondition, c corev1.NodeCondition) []corev1.NodeCondition {
	for i := range conditions {
		if conditions[i].Type == c.Type {
			conditions[i] = c
		}
	}
	return conditions
}

func unpressed(kind corev1.NodeConditionType) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: kind, Status: corev1.ConditionFalse,
		Reason: reasonServing, Message: "The peer's own nodes see to it",
	}
}

func nodeImages(images []v1alpha1.Image) []corev1.ContainerImage {
	var result []corev1.ContainerImage
	for _, image := range images {
		result = append(result, corev1.ContainerImage{Names: slices.Clone(image.Names), SizeBytes: image.SizeBytes})
	}
	return result
}
