// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"encoding/base64"
	"net/netip"
	"slices"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Ranges returns what the texts mean. One that means nothing becomes the zero range, which Allocate refuses.
func Ranges(texts []v1alpha1.CIDR) []netip.Prefix {
	var ranges []netip.Prefix
	for _, text := range texts {
		p, _ := netip.ParsePrefix(string(text))
		ranges = append(ranges, p)
	}
	return ranges
}

// Mappings returns what the texts mean. One that means nothing has a zero range, and is never used.
func Mappings(texts []v1alpha1.RangeMapping) []Mapping {
	var mappings []Mapping
	for _, text := range texts {
		own, _ := netip.ParsePrefix(string(text.Own))
		seen, _ := netip.ParsePrefix(string(text.Seen))
		mappings = append(mappings, Mapping{own, seen})
	}
	return mappings
}

// Written returns the mappings as objects have them.
func Written(mappings []Mapping) []v1alpha1.RangeMapping {
	var texts []v1alpha1.RangeMapping
	for _, m := range mappings {
		texts = append(texts, v1alpha1.RangeMapping{Own: v1alpha1.CIDR(m.Own.String()), Seen: v1alpha1.CIDR(m.Seen.String())})
	}
	return texts
}

// ClusterRanges returns what the texts mean, as Mappings does.
func ClusterRanges(texts []v1alpha1.ClusterRange) []ClusterRange {
	var ranges []ClusterRange
	for _, text := range texts {
		ranges = append(ranges, ClusterRange{text.ClusterID, Mappings([]v1alpha1.RangeMapping{text.RangeMapping})[0]})
	}
	return ranges
}

// WrittenRanges returns the ranges as objects have them.
func WrittenRanges(ranges []ClusterRange) []v1alpha1.ClusterRange {
	var texts []v1alpha1.ClusterRange
	for _, r := range ranges {
		texts = append(texts, v1alpha1.ClusterRange{ClusterID: r.ClusterID, RangeMapping: Written([]Mapping{r.Mapping})[0]})
	}
	return texts
}

// Connect returns what our gateway must know of a peer, from what the peer tells of its network, what Allocate granted it, our
// own ranges, and those in which we see others to which we relay; or why there can be no connection. Openings are for the caller
// to add. Addresses of the peer's gateway and of its name servers that are not within its ranges are left out, and those of a
// family that we do not have, unless there are no others.
func Connect(g Grant, own, relayed []netip.Prefix, network *v1alpha1.Network) (*v1alpha1.ConnectionSpec, *Conflict) {
	if network == nil || network.Gateway == nil {
		return nil, &Conflict{g.Peer, v1alpha1.ReasonNoPeerGateway, "The peer has told of no gateway"}
	}
	gateway := network.Gateway
	if len(gateway.Protocols) > 0 && !slices.Contains(gateway.Protocols, v1alpha1.ProtocolWireGuard) {
		return nil, &Conflict{g.Peer, v1alpha1.ReasonNoPeerGateway, "The peer's gateway does not speak " + v1alpha1.ProtocolWireGuard}
	}
	if _, ok := ParseKey(gateway.PublicKey); !ok {
		return nil, refuse(g.Peer, "the key of its gateway is none")
	}
	if conflict := unlike(g.Peer, own, Ranges(slices.Concat(network.PodCIDRs, network.ServiceCIDRs))); conflict != nil {
		return nil, conflict
	}
	ours, conflict := Ours(g.Peer, own, relayed, Mappings(network.Mappings))
	if conflict != nil {
		return nil, conflict
	}
	return &v1alpha1.ConnectionSpec{
		PublicKey: gateway.PublicKey, Endpoints: gateway.Endpoints, Theirs: Written(g.Mappings), Ours: Written(ours),
		GatewayAddresses: seenHere(g.Mappings, usable(own, gateway.Addresses)), Nameservers: seenHere(g.Mappings, usable(own, network.Nameservers)),
		Behind: network.Behind, TheirDirect: WrittenRanges(g.Direct), OurDirect: network.Direct,
		Relays: slices.Contains(gateway.Protocols, v1alpha1.ProtocolRelay),
	}, nil
}

// seenHere returns those of a peer's addresses that lie within its ranges, as this cluster sees them.
func seenHere(theirs []Mapping, texts []v1alpha1.IP) []v1alpha1.IP {
	var all []v1alpha1.IP
	for _, address := range parsed(texts) {
		if seen, ok := Seen(theirs, address); ok {
			all = append(all, v1alpha1.IP(seen.String()))
		}
	}
	return all
}

// PeerOf returns the peer of a plan as its Connection has it. Pods, the measured path, and endpoints that are names and not
// addresses are for the caller to add.
func PeerOf(name string, spec *v1alpha1.ConnectionSpec) Peer {
	p := Peer{
		Name: name, ClusterID: spec.ClusterID, Theirs: Mappings(spec.Theirs), Ours: Mappings(spec.Ours), Probes: parsed(spec.GatewayAddresses),
		TheirDirect: ClusterRanges(spec.TheirDirect), OurDirect: ClusterRanges(spec.OurDirect), Behind: ClusterRanges(spec.Behind),
		Resolvers: parsed(spec.Nameservers), Openings: spec.Openings, Exported: spec.Exported, Imported: spec.Imported, Relays: spec.Relays,
	}
	if spec.RelayBandwidth != nil {
		p.RelayBandwidth = spec.RelayBandwidth.Value()
	}
	p.PublicKey, _ = ParseKey(spec.PublicKey)
	for _, text := range spec.Endpoints {
		if endpoint, err := netip.ParseAddrPort(string(text)); err == nil {
			p.Endpoints = append(p.Endpoints, endpoint)
		}
	}
	return p
}

func parsed(texts []v1alpha1.IP) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		if address, err := netip.ParseAddr(string(text)); err == nil {
			all = append(all, address)
		}
	}
	return all
}

// ParseKey returns the key of Curve25519 that the text holds in base64, and whether it holds one.
func ParseKey(text string) (key [32]byte, ok bool) {
	bytes, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(bytes) != len(key) {
		return key, false
	}
	return [32]byte(bytes), true
}
