package kubelet

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// reservedDomains are those of Kubernetes and of Hanse: a peer's labels in them or below would speak for us, so all but
// the few of trustedKeys are left out. Labels of any other domain describe the peer and are harmless.
var reservedDomains = []string{"kubernetes.io", "k8s.io", v1alpha1.Domain}

// trustedKeys are the labels of reserved domains that a peer may set, and whether the value is prefixed with the peer's
// name: two providers' "zone-a" are not the same zone.
var trustedKeys = map[string]bool{ // key → prefixed
	corev1.LabelTopologyRegion:     true,
	corev1.LabelTopologyZone:       true,
	corev1.LabelInstanceTypeStable: false,
}

// labelExcludeDisruption keeps the node lifecycle controller from counting a virtual node when it measures whether a
// whole zone of the cluster is down.
const labelExcludeDisruption = "node.kubernetes.io/exclude-disruption"

// ownLabels are the labels of a virtual node that no peer can change.
func ownLabels(peer *v1alpha1.Peer, ad *v1alpha1.AdvertisementSpec) map[string]string {
	labels := map[string]string{
		v1alpha1.LabelType:               v1alpha1.TypeVirtualNode,
		v1alpha1.LabelPeer:               peer.Name,
		v1alpha1.LabelClusterID:          peer.Spec.ClusterID,
		"type":                           "virtual-kubelet",
		corev1.LabelHostname:             v1alpha1.VirtualNodeName(peer.Name),
		corev1.LabelOSStable:             "linux",
		corev1.LabelNodeExcludeBalancers: "",
		labelExcludeDisruption:           "",
	}
	if arch := architecture(ad); len(validation.IsValidLabelValue(arch)) == 0 && arch != "" {
		labels[corev1.LabelArchStable] = arch
	}
	return labels
}

// peerLabels are those of the advertised labels that the virtual node shows.
func peerLabels(peer string, advertised map[string]v1alpha1.Text) map[string]string {
	labels := map[string]string{}
	for key, text := range advertised {
		prefixed, trusted := trustedKeys[key]
		if !trusted && (reserved(key) || len(validation.IsQualifiedName(key)) > 0) {
			continue
		}
		value := string(text)
		if prefixed {
			value = peer + "-" + value
		}
		// A value that got too long by its prefix is left out: cut short, two zones could become one.
		if len(validation.IsValidLabelValue(value)) == 0 {
			labels[key] = value
		}
	}
	return labels
}

func reserved(key string) bool {
	domain, _, qualified := strings.Cut(key, "/")
	if !qualified {
		return false
	}
	for _, suffix := range reservedDomains {
		if domain == suffix || strings.HasSuffix(domain, "."+suffix) {
			return true
		}
	}
	return false
}
