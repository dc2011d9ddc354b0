// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"math"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// everyNamespace selects the guests of all namespaces.
const everyNamespace = v1alpha1.AllPeerNamespaces

// guests returns the addresses of the peer's pods that run here, of one of its namespaces or of all, sorted.
func (m *muster) guests(p *member, namespace string) []netip.Addr {
	var addresses []netip.Addr
	for _, pod := range p.Guests {
		if namespace == everyNamespace || pod.Namespace == namespace {
			addresses = append(addresses, pod.Address)
		}
	}
	return sortedWithin(m.Pods, addresses)
}

// A side returns what one of the peer's namespaces stands for at one place.
type side func(peerNamespace string) []netip.Prefix

// whole is the side at the gateway: what comes through the tunnel is of all namespaces or of none, and guests meet our own
// pods without the gateway.
func whole(p *member) side {
	return func(namespace string) []netip.Prefix {
		if namespace != everyNamespace {
			return nil
		}
		return p.seen
	}
}

// here is the side on nodes: the peer's pods that run here.
func (m *muster) here(p *member) side {
	return func(namespace string) []netip.Prefix { return single(m.guests(p, namespace)) }
}

// openings returns what the openings of the peer let pass at one place, in the order in which they are written. Those of which
// one side can never have pods there are left out. One that has none just now stays, so that rules do not come and go with pods.
func (m *muster) openings(p *member, theirs side) []Opening {
	var open []Opening
	resolve := func(s v1alpha1.OpeningSide) []netip.Prefix {
		if s.PeerNamespace != "" {
			return theirs(s.PeerNamespace)
		}
		return m.podsOf(s.Namespace)
	}
	for _, o := range p.Openings {
		if (o.From.PeerNamespace == "") == (o.To.PeerNamespace == "") {
			continue // which the API does not allow
		}
		from, to := resolve(o.From), resolve(o.To)
		ports, ok := portRanges(o.Ports)
		if from != nil && to != nil && ok {
			open = append(open, Opening{From: from, To: to, Ports: ports})
		}
	}
	return append(open, m.servicePaths(p, theirs)...)
}

// servicePaths returns what passes at one place because Services are exported: from everything of the peer to our pods of the namespace,
// and from our pods to those of the peer. What the peer lets in it decides itself.
func (m *muster) servicePaths(p *member, theirs side) []Opening {
	var open []Opening
	add := func(from, to []netip.Prefix, path v1alpha1.ServicePath) {
		if ports, ok := portRanges(path.Ports); ok && len(ports) > 0 && from != nil && to != nil {
			open = append(open, Opening{From: from, To: to, Ports: ports})
		}
	}
	for _, path := range p.Exported {
		add(theirs(everyNamespace), m.podsOf(path.Namespace), path)
	}
	for _, path := range p.Imported {
		to := theirs(path.Namespace)
		if to == nil { // nobody can tell namespaces apart there
			to = theirs(everyNamespace)
		}
		add(sortedRanges(m.Pods), to, path)
	}
	return open
}

// protocols are the numbers in IP of those that openings may name. The API sets TCP where none is named.
var protocols = map[corev1.Protocol]byte{"": 6, corev1.ProtocolTCP: 6, corev1.ProtocolUDP: 17, corev1.ProtocolSCTP: 132}

// portRanges returns what the ports of an opening mean, in the order in which they are written. It is not ok if one of them means
// nothing, which the API does not allow: what is left might be none, and that would be all.
func portRanges(ports []v1alpha1.OpeningPort) (ranges []PortRange, ok bool) {
	for _, p := range ports {
		first, last := p.Port, max(p.Port, p.EndPort)
		if first == 0 && last == 0 {
			last = math.MaxUint16
		}
		protocol := protocols[p.Protocol]
		if protocol == 0 || first < 0 || last > math.MaxUint16 {
			return nil, false
		}
		ranges = append(ranges, PortRange{Protocol: protocol, First: uint16(first), Last: uint16(last)}) //nolint:gosec // see above
	}
	return ranges, true
}

// podsOf returns the addresses of our own pods in the namespace, sorted.
func (m *muster) podsOf(namespace string) []netip.Prefix {
	var addresses []netip.Addr
	for _, pod := range m.OurPods {
		if pod.Namespace == namespace {
			addresses = append(addresses, pod.Address)
		}
	}
	return single(sortedWithin(m.Pods, addresses))
}
