// SPDX-License-Identifier: Apache-2.0

package clusterset

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// maxPorts is how many ports a Service has that is exported.
	maxPorts = 32
	// maxParts is how many objects tell of one Service.
	maxParts = 50
)

// A Key names a Service, in all clusters.
type Key struct{ Namespace, Name string }

// A Sender is the peer that exports, and what it may say.
type Sender struct {
	// Name is that of its Peer, and Cluster its id.
	Name, Cluster string
	// Shares says whether its Peer shares the namespace.
	Shares bool
	// Seen are the ranges in which this cluster sees the peer, and Guests the addresses of its pods that run here.
	Seen   []netip.Prefix
	Guests map[netip.Addr]bool
	// Connected is whether the tunnel to it works.
	Connected bool
}

// Refusal says why what a peer exports is not imported, and nothing if it is. The peer may have written anything.
func (s *Sender) Refusal(spec *v1alpha1.ExportedServiceSpec) string {
	if !s.Shares {
		return fmt.Sprintf("namespace %q is not among spec.clusterSet.namespaces of Peer %q in this cluster, or one of its system", spec.Namespace, s.Name)
	}
	if len(validation.IsDNS1123Label(spec.Namespace)) > 0 || len(validation.IsDNS1035Label(spec.Name)) > 0 {
		return "spec: namespace and name must be those of a Service"
	}
	if spec.Type != string(mcsv1beta1.ClusterSetIP) && spec.Type != string(mcsv1beta1.Headless) {
		return "spec.type must be ClusterSetIP or Headless"
	}
	if why := badPorts(spec); why != "" {
		return why
	}
	if !slices.Contains([]corev1.ServiceAffinity{"", corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP}, spec.SessionAffinity) {
		return "spec.sessionAffinity must be None or ClientIP"
	}
	if seconds := spec.AffinitySeconds; seconds != nil && (*seconds < 1 || *seconds > 86400) {
		return "spec.affinitySeconds must be from 1 to 86400"
	}
	return s.badEndpoints(spec)
}

func badPorts(spec *v1alpha1.ExportedServiceSpec) string {
	if len(spec.Ports) > maxPorts || len(spec.EndpointPorts) > maxPorts {
		return fmt.Sprintf("spec: at most %d ports are taken", maxPorts)
	}
	names := map[string]bool{}
	for i, p := range spec.Ports {
		if names[p.Name] || len(spec.Ports) > 1 && p.Name == "" || !isPort(p.Name, p.Protocol, p.AppProtocol, p.Port) {
			return fmt.Sprintf("spec.ports[%d] is no port of a Service", i)
		}
		names[p.Name] = true
	}
	names = map[string]bool{}
	for i, p := range spec.EndpointPorts {
		if names[p.Name] || !isPort(p.Name, p.Protocol, p.AppProtocol, ptr.Deref(p.Port, 1)) {
			return fmt.Sprintf("spec.endpointPorts[%d] is no port of an endpoint", i)
		}
		names[p.Name] = true
	}
	return ""
}

func isPort(name, protocol, application string, number int32) bool {
	return number >= 1 && number <= 65535 && (name == "" || len(validation.IsDNS1123Label(name)) == 0) && (application == "" || len(validation.IsQualifiedName(application)) == 0) &&
		slices.Contains([]string{"", "TCP", "UDP", "SCTP"}, protocol)
}

// badEndpoints says which endpoint is not where this cluster sees the peer or a pod of it, and nothing if there is none.
func (s *Sender) badEndpoints(spec *v1alpha1.ExportedServiceSpec) string {
	if len(spec.Endpoints) > v1alpha1.MaxExportedEndpoints {
		return fmt.Sprintf("spec.endpoints: at most %d are taken in one object", v1alpha1.MaxExportedEndpoints)
	}
	if spec.AddressType != string(discoveryv1.AddressTypeIPv4) && spec.AddressType != string(discoveryv1.AddressTypeIPv6) {
		return "spec.addressType must be IPv4 or IPv6"
	}
	ipv4 := spec.AddressType == string(discoveryv1.AddressTypeIPv4)
	for i, e := range spec.Endpoints {
		address, err := netip.ParseAddr(e.Address)
		inside := func(p netip.Prefix) bool { return p.Contains(address) }
		if err != nil || address.Is4() != ipv4 || !s.Guests[address] && !slices.ContainsFunc(s.Seen, inside) {
			return fmt.Sprintf("spec.endpoints[%d]: %q is no %s address within the ranges in which this cluster sees the peer, nor one of a "+
				"pod of the peer here: %v", i, e.Address, spec.AddressType, s.Seen)
		}
		if e.Hostname != "" && len(validation.IsDNS1123Label(e.Hostname)) > 0 || len(validation.IsValidLabelValue(e.Zone)) > 0 {
			return fmt.Sprintf("spec.endpoints[%d]: hostname or zone is none", i)
		}
	}
	return ""
}

// Received returns what the peer exports, from the parts that are not refused, of which there must be one. While the tunnel to the peer
// does not work no endpoint is ready.
func (s *Sender) Received(parts []*v1alpha1.ExportedServiceSpec) *Export {
	first := parts[0]
	e := &Export{
		Cluster: s.Cluster, At: first.ExportedAt.Time, Type: mcsv1beta1.ServiceImportType(first.Type),
		SessionAffinity: first.SessionAffinity, AffinitySeconds: first.AffinitySeconds,
		Labels:      metadataOf(convert(first.Labels, func(t v1alpha1.Text) string { return string(t) }), isLabel),
		Annotations: metadataOf(convert(first.Annotations, func(t v1alpha1.Text) string { return string(t) }), isAnnotation),
	}
	for _, p := range first.Ports {
		e.Ports = append(e.Ports, mcsv1beta1.ServicePort{
			Name: p.Name, Protocol: protocol(p.Protocol), Port: p.Port, AppProtocol: optional(p.AppProtocol),
		})
	}
	for _, part := range parts {
		if len(part.Endpoints) > 0 {
			e.Slices = append(e.Slices, s.sliceOf(part))
		}
	}
	return e
}

func (s *Sender) sliceOf(part *v1alpha1.ExportedServiceSpec) Slice {
	slice := Slice{AddressType: discoveryv1.AddressType(part.AddressType), Ports: v1alpha1.EndpointPorts(part.EndpointPorts)}
	for _, e := range part.Endpoints {
		out := discoveryv1.Endpoint{
			Addresses:  []string{e.Address},
			Conditions: discoveryv1.EndpointConditions{Ready: e.Ready, Serving: e.Serving, Terminating: e.Terminating},
			Hostname:   optional(e.Hostname), Zone: optional(e.Zone),
		}
		if !s.Connected {
			out.Conditions.Ready, out.Conditions.Serving = new(false), new(false)
		}
		slice.Endpoints = append(slice.Endpoints, out)
	}
	return slice
}

func protocol(text string) corev1.Protocol {
	if text == "" {
		return corev1.ProtocolTCP
	}
	return corev1.Protocol(text)
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
