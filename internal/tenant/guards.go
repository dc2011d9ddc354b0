package tenant

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// guardName is what every ResourceQuota, LimitRange and NetworkPolicy of Hanse's is called.
const guardName = "hanse"

// countedKinds are those of which a twin may hold only so many objects.
var countedKinds = []corev1.ResourceName{
	"count/services", "count/configmaps", "count/secrets", "count/persistentvolumeclaims",
}

// countShadowPods is counted like countedKinds, but not from the beginning.
const countShadowPods = corev1.ResourceName("count/shadowpods.hanse.dev")

// quotaOf bounds the objects in one twin, Hanse's own included if they can be counted, and what its pods ask for. The
// latter stands behind the keeper's ledger, which counts all twins of the peer together.
func quotaOf(limits *v1alpha1.PeerLimits, ownKinds bool) corev1.ResourceQuotaSpec {
	objects := int64(ptr.Deref(limits.Objects, v1alpha1.DefaultLimitObjects))
	hard := corev1.ResourceList{}
	for _, kind := range countedKinds {
		hard[kind] = *resource.NewQuantity(objects, resource.DecimalSI)
	}
	if ownKinds {
		hard[countShadowPods] = *resource.NewQuantity(objects, resource.DecimalSI)
	}
	for name, limit := range limits.Resources {
		if counted := quotaName(name); counted != "" {
			hard[counted] = limit
		}
	}
	return corev1.ResourceQuotaSpec{Hard: hard}
}

// quotaName returns under which name quotas count the requests for a resource, and "" if they cannot.
func quotaName(name corev1.ResourceName) corev1.ResourceName {
	switch {
	case name == corev1.ResourcePods:
		return name
	case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage,
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix), strings.Contains(string(name), "/"):
		return corev1.DefaultResourceRequestsPrefix + name
	default:
		return ""
	}
}

// leastRequests returns what a container counts for that asks for nothing of a resource that is limited.
func leastRequests(limits corev1.ResourceList) corev1.ResourceList {
	least := corev1.ResourceList{}
	if _, limited := limits[corev1.ResourceCPU]; limited {
		least[corev1.ResourceCPU] = resource.MustParse("100m")
	}
	if _, limited := limits[corev1.ResourceMemory]; limited {
		least[corev1.ResourceMemory] = resource.MustParse("128Mi")
	}
	return least
}

// limitRangeOf gives containers the least requests that come into a twin by another way than Hanse's.
func limitRangeOf(limits *v1alpha1.PeerLimits) corev1.LimitRangeSpec {
	return corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, DefaultRequest: leastRequests(limits.Resources),
	}}}
}

// networkPolicy lets the pods of a peer reach each other, the cluster's DNS, and the world outside; and nobody else here
// reach them.
func (t twinOf) networkPolicy(here ranges) networkingv1.NetworkPolicySpec {
	siblings := networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelPeer: t.peer,
	}}}
	dns := networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
		corev1.LabelMetadataName: metav1.NamespaceSystem,
	}}}
	outside := []networkingv1.NetworkPolicyPeer{
		{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: here.inside(privateIPv4)}},
		{IPBlock: &networkingv1.IPBlock{CIDR: "::/0", Except: here.inside(privateIPv6)}},
	}
	return networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{siblings}}},
		Egress: []networkingv1.NetworkPolicyEgressRule{
			{To: []networkingv1.NetworkPolicyPeer{siblings}},
			{To: []networkingv1.NetworkPolicyPeer{dns}, Ports: dnsPorts()},
			{To: outside},
		},
	}
}

func dnsPorts() []networkingv1.NetworkPolicyPort {
	port := func(protocol corev1.Protocol) networkingv1.NetworkPolicyPort {
		return networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: ptr.To(intstr.FromInt32(53))}
	}
	return []networkingv1.NetworkPolicyPort{port(corev1.ProtocolUDP), port(corev1.ProtocolTCP)}
}

// counted says whether the quota is in force: before it is, the API server takes nothing that it counts.
func counted(quota *corev1.ResourceQuota) bool {
	for name := range quota.Spec.Hard {
		_, hard := quota.Status.Hard[name]
		_, used := quota.Status.Used[name]
		if !hard || !used {
			return false
		}
	}
	return true
}
