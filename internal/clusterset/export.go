// SPDX-License-Identifier: Apache-2.0

package clusterset

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// maxMetadata is how many labels, and again annotations, of a ServiceExport go to ServiceImports.
const maxMetadata = 16

// An Export is a Service that one cluster exports, with the addresses that its endpoints have here.
type Export struct {
	Cluster             string // its id
	At                  time.Time
	Type                mcsv1beta1.ServiceImportType
	Ports               []mcsv1beta1.ServicePort
	SessionAffinity     corev1.ServiceAffinity
	AffinitySeconds     *int32
	Labels, Annotations map[string]string
	Slices              []Slice
}

// A Slice is some of the endpoints, all of one family and with the same ports.
type Slice struct {
	AddressType discoveryv1.AddressType
	Ports       []discoveryv1.EndpointPort
	Endpoints   []discoveryv1.Endpoint
}

// Invalid says by a reason of the condition Valid and a message why the Service, which may be nil, cannot be exported. It says nothing
// if it can.
func Invalid(service *corev1.Service) (mcsv1beta1.ServiceExportConditionReason, string) {
	switch {
	case service == nil || !service.DeletionTimestamp.IsZero():
		return mcsv1beta1.ServiceExportReasonNoService, "There is no Service of this name in the namespace"
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return mcsv1beta1.ServiceExportReasonInvalidServiceType, "A Service of type ExternalName cannot be exported"
	case service.Labels[v1alpha1.LabelClusterSet] == "true":
		return mcsv1beta1.ServiceExportReasonInvalidServiceType, "The Service stands for a ServiceImport: export the Service in its own cluster"
	default:
		return "", ""
	}
}

// Own returns what this cluster exports. The slices are those of the Service.
func Own(cluster string, export *mcsv1beta1.ServiceExport, service *corev1.Service, parts []discoveryv1.EndpointSlice) *Export {
	own := &Export{
		Cluster: cluster, At: export.CreationTimestamp.Time, Type: mcsv1beta1.ClusterSetIP,
		Labels: metadataOf(export.Spec.ExportedLabels, isLabel), Annotations: metadataOf(export.Spec.ExportedAnnotations, isAnnotation),
	}
	for _, p := range service.Spec.Ports {
		own.Ports = append(own.Ports, mcsv1beta1.ServicePort{
			Name: p.Name, Protocol: cmp.Or(p.Protocol, corev1.ProtocolTCP), Port: p.Port, AppProtocol: p.AppProtocol,
		})
	}
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		own.Type = mcsv1beta1.Headless
	} else {
		own.SessionAffinity = cmp.Or(service.Spec.SessionAffinity, corev1.ServiceAffinityNone)
		if config := service.Spec.SessionAffinityConfig; config != nil && config.ClientIP != nil {
			own.AffinitySeconds = config.ClientIP.TimeoutSeconds
		}
	}
	slices.SortFunc(parts, func(a, b discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	for i := range parts {
		if part := &parts[i]; part.DeletionTimestamp.IsZero() && part.AddressType != discoveryv1.AddressTypeFQDN {
			own.Slices = append(own.Slices, Slice{part.AddressType, part.Ports, part.Endpoints})
		}
	}
	return own
}

// A View is how one peer sees what this cluster exports.
type View struct {
	// Peer is the virtual node of the peer, and Away says whether a node is that of any.
	Peer string
	Away func(node string) bool
	// Seen returns the address at which the peer sees one of ours, and There the own address of a pod of ours that runs at the peer.
	Seen, There func(netip.Addr) (netip.Addr, bool)
}

// Told returns what the peer is told of an export, by the part, and whether the endpoints are too many. Endpoints that the peer cannot
// reach are left out: such as run at other peers, and those without an address of a pod.
func (e *Export) Told(key Key, by v1alpha1.ExportedBy, view View) (parts []v1alpha1.ExportedServiceSpec, tooMany bool) {
	for _, slice := range e.Slices {
		ports := slice.Ports[:min(len(slice.Ports), maxPorts)]
		for chunk := range slices.Chunk(view.endpoints(slice.Endpoints), v1alpha1.MaxExportedEndpoints) {
			part := e.told(key, by, len(parts))
			part.AddressType, part.EndpointPorts, part.Endpoints = string(slice.AddressType), v1alpha1.ShadowPorts(ports), chunk
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 { // it has no endpoints, and a name
		part := e.told(key, by, 0)
		part.AddressType = string(discoveryv1.AddressTypeIPv4)
		parts = append(parts, part)
	}
	return parts[:min(len(parts), maxParts)], len(parts) > maxParts
}

func (e *Export) told(key Key, by v1alpha1.ExportedBy, part int) v1alpha1.ExportedServiceSpec {
	out := v1alpha1.ExportedServiceSpec{
		By: by, Namespace: key.Namespace, Name: key.Name, Part: strconv.Itoa(part), Type: string(e.Type),
		SessionAffinity: e.SessionAffinity, AffinitySeconds: e.AffinitySeconds, ExportedAt: metav1.NewTime(e.At),
		Labels: texts(e.Labels), Annotations: texts(e.Annotations),
	}
	for _, p := range e.Ports[:min(len(e.Ports), maxPorts)] {
		out.Ports = append(out.Ports, v1alpha1.ExportedPort{
			Name: p.Name, Protocol: string(p.Protocol), Port: p.Port, AppProtocol: ptr.Deref(p.AppProtocol, ""),
		})
	}
	return out
}

func (v View) endpoints(all []discoveryv1.Endpoint) []v1alpha1.ExportedEndpoint {
	var told []v1alpha1.ExportedEndpoint
	for _, e := range all {
		if len(e.Addresses) == 0 {
			continue
		}
		address, err := netip.ParseAddr(e.Addresses[0]) // all that Kubernetes itself uses
		if err != nil {
			continue
		}
		seen, ok := v.address(ptr.Deref(e.NodeName, ""), address)
		if !ok {
			continue
		}
		told = append(told, v1alpha1.ExportedEndpoint{
			Address: seen.String(), Ready: e.Conditions.Ready, Serving: e.Conditions.Serving, Terminating: e.Conditions.Terminating,
			Hostname: ptr.Deref(e.Hostname, ""), Zone: ptr.Deref(e.Zone, ""),
		})
	}
	return told
}

// address returns the address of the peer's view of an endpoint on the node.
func (v View) address(node string, own netip.Addr) (netip.Addr, bool) {
	switch {
	case node == v.Peer:
		return v.There(own)
	case node != "" && v.Away(node):
		return netip.Addr{}, false
	default:
		return v.Seen(own)
	}
}

// metadataOf returns those of the labels or annotations that may go to ServiceImports: none that mean something to Kubernetes or to us,
// and the first few by name.
func metadataOf(all map[string]string, fits func(key, value string) bool) map[string]string {
	kept := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if len(kept) < maxMetadata && !isReserved(key) && fits(key, all[key]) {
			kept[key] = all[key]
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}

func isReserved(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	return found && (v1alpha1.IsOwn(key) || slices.ContainsFunc([]string{"kubernetes.io", "k8s.io"}, func(theirs string) bool {
		return domain == theirs || strings.HasSuffix(domain, "."+theirs)
	}))
}

func isLabel(key, value string) bool {
	return len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0
}

func isAnnotation(key, value string) bool {
	return len(validation.IsQualifiedName(strings.ToLower(key))) == 0 && len(value) <= validation.DNS1123SubdomainMaxLength
}

func texts(from map[string]string) map[string]v1alpha1.Text {
	return convert(from, func(s string) v1alpha1.Text { return v1alpha1.Text(s) })
}

func convert[A, B any](from map[string]A, as func(A) B) map[string]B {
	if from == nil {
		return nil
	}
	to := map[string]B{}
	for key, value := range from {
		to[key] = as(value)
	}
	return to
}
