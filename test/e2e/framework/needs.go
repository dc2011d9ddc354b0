// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"maps"
	"slices"
)

// Stories maps the name of each story of a package to what the story needs.
type Stories map[string]Needs

// Needs says on which clusters a story runs. The zero value is a story that runs beside others on lubeck and hamburg, which are peers of
// each other.
type Needs struct {
	// Clusters is how many clusters with Hanse the story uses, in the order lubeck, hamburg, bremen, wismar. 0 means 2. Four clusters
	// exchange offers faster than others, and two of them are brokers.
	Clusters int `json:"clusters,omitempty"`
	// Workers is how many real nodes each cluster has. 0 means 1.
	Workers int `json:"workers,omitempty"`
	// Network is true if gateways connect the pods of the clusters.
	Network bool `json:"network,omitempty"`
	// IPv6 is true if the story runs on stade (IPv4 and IPv6) and stralsund (IPv6 alone) instead of the usual clusters.
	IPv6 bool `json:"ipv6,omitempty"`
	// Alone is true if no other story may use the clusters at the same time.
	Alone bool `json:"alone,omitempty"`
	// Unpeered is true if lubeck and hamburg are not to be peers when the story begins: the story peers them.
	Unpeered bool `json:"unpeered,omitempty"`
	// Last is true if the story leaves its clusters without Hanse, so that it runs after all others.
	Last bool `json:"last,omitempty"`
	// OnRequest is true if the story runs only when it is selected by its name.
	OnRequest bool `json:"onRequest,omitempty"`
	// Core is true for the stories of `make test`.
	Core bool `json:"core,omitempty"`
	// With lists what the story needs besides the usual clusters.
	With []Extra `json:"with,omitempty"`
}

// An Extra is something that few stories need. It is built and started only for a selection that has such a story.
type Extra string

// The extras.
const (
	ControlPlane        Extra = "control-plane"         // rostock: an API server without workers and without Hanse
	ClusterBehindNAT    Extra = "cluster-behind-nat"    // visby: a cluster whose nodes take no connections from outside
	Metrics             Extra = "metrics"               // metrics-server
	Storage             Extra = "storage"               // a default StorageClass
	Snapshots           Extra = "snapshots"             // VolumeSnapshots, and a default StorageClass
	IngressController   Extra = "ingress-controller"    // Traefik
	MultiClusterDNS     Extra = "multi-cluster-dns"     // a DNS that answers for clusterset.local
	OrdersImage         Extra = "orders-image"          // the image of demo/orders
	OtherVersions       Extra = "other-versions"        // images of Hanse that claim to be other versions
	VirtualKubeletSuite Extra = "virtual-kubelet-suite" // the end-to-end suite of the library virtual-kubelet
)

// A Shape is a set of clusters with its settings. Stories of equal shape share clusters.
type Shape struct {
	Clusters, Workers int
	Network, IPv6     bool
}

// Shape returns the clusters that the story runs on.
func (n Needs) Shape() Shape {
	return Shape{Clusters: max(n.Clusters, 2), Workers: max(n.Workers, 1), Network: n.Network, IPv6: n.IPv6}
}

// String returns a short name, which is also the name of the folder of the state.
func (s Shape) String() string {
	switch {
	case s.IPv6:
		return "ipv6"
	case s.Network:
		return "network"
	case s.isMarket():
		return "market"
	default:
		return "pair"
	}
}

// isMarket reports whether the clusters exchange offers at the pace of stories.
func (s Shape) isMarket() bool { return s.Clusters > 3 }

// clusters returns the clusters of the shape that have Hanse.
func (s Shape) clusters() []*Cluster {
	if s.IPv6 {
		return []*Cluster{Stade, Stralsund}
	}
	return []*Cluster{Lubeck, Hamburg, Bremen, Wismar}[:s.Clusters]
}

// Names returns the names of all clusters that are started for the shape with these extras.
func (s Shape) Names(extras []Extra) []string {
	var names []string
	for _, c := range s.clusters() {
		names = append(names, c.ID)
	}
	if slices.Contains(extras, ControlPlane) {
		names = append(names, Rostock.ID)
	}
	if slices.Contains(extras, ClusterBehindNAT) {
		names = append(names, Visby.ID)
	}
	return names
}

// Extras returns what all the stories need besides the usual clusters, sorted and each once.
func (s Stories) Extras() []Extra {
	all := map[Extra]bool{}
	for _, needs := range s {
		for _, extra := range needs.With {
			all[extra] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}
