// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/overlay"
)

// objects are those of this cluster that say something of its network.
type objects struct {
	own         string // Hanse's own namespace
	nodes       corev1.NodeList
	connections v1alpha1.ConnectionList
	namespaces  corev1.NamespaceList
	pods        corev1.PodList
	services    corev1.ServiceList
}

// byPeer returns the Connections of peers, by the names of their Peers. Only the manager writes any in a tenant namespace.
func (o *objects) byPeer() map[string]*v1alpha1.Connection {
	found := map[string]*v1alpha1.Connection{}
	for i := range o.connections.Items {
		c := &o.connections.Items[i]
		peer, ok := strings.CutPrefix(c.Namespace, v1alpha1.TenantNamespacePrefix)
		if ok && c.Name == v1alpha1.ConnectionName && c.DeletionTimestamp.IsZero() {
			found[peer] = c
		}
	}
	return found
}

// state returns what the objects say, but for the gateway.
func (o *objects) state(own *exchange.OwnNetwork, connections map[string]*v1alpha1.Connection) overlay.State {
	s := overlay.State{Nodes: o.hosts()}
	if own != nil {
		s.Pods, s.Services = overlay.Ranges(own.PodCIDRs), overlay.Ranges(own.ServiceCIDRs)
		for _, text := range own.Nameservers {
			s.Nameservers = appendAddress(s.Nameservers, string(text))
		}
	}
	peers := map[string]*overlay.Peer{}
	for name, c := range connections {
		p := overlay.PeerOf(name, &c.Spec)
		p.Connected = meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionConnected)
		peers[name] = &p
	}
	o.addPods(&s, peers)
	o.addServices(peers)
	for _, p := range peers {
		s.Peers = append(s.Peers, *p)
	}
	slices.SortFunc(s.Peers, func(a, b overlay.Peer) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// addPods says of each pod whose it is: of a peer if its namespace is that peer's twin, else ours. Ours run at a peer if their
// node stands for it. A pod of a peer that was sent on to another one is none of ours there.
func (o *objects) addPods(s *overlay.State, peers map[string]*overlay.Peer) {
	twins := o.twins()
	virtual := map[string]string{} // node → peer
	for name := range peers {
		virtual[v1alpha1.VirtualNodeName(name)] = name
	}
	opened := openedTo(peers)
	for i := range o.pods.Items {
		pod := &o.pods.Items[i]
		peer, away := virtual[pod.Spec.NodeName]
		twin, isGuest := twins[pod.Namespace]
		switch {
		case isGuest && away:
			if p := peers[twin.peer]; p != nil {
				p.SentOn = append(p.SentOn, addressesOf(pod)...)
			}
		case isGuest:
			if p := peers[twin.peer]; p != nil {
				p.Guests = append(p.Guests, podsAt(twin.home, pod)...)
			}
		case away:
			peers[peer].There = append(peers[peer].There, addressesOf(pod)...)
		case opened[pod.Namespace]:
			s.OurPods = append(s.OurPods, podsAt(pod.Namespace, pod)...)
		}
	}
}

// addServices says of each copy of a Service whose it is.
func (o *objects) addServices(peers map[string]*overlay.Peer) {
	twins := o.twins()
	for i := range o.services.Items {
		s := &o.services.Items[i]
		p := peers[twins[s.Namespace].peer]
		if p == nil || s.Labels[v1alpha1.LabelReflected] != "true" {
			continue
		}
		found := overlay.Service{Home: overlay.HomeService{Namespace: twins[s.Namespace].home, Name: s.Name}, Twin: s.Namespace}
		for _, text := range s.Spec.ClusterIPs {
			found.Addresses = appendAddress(found.Addresses, text) // a headless one has None
		}
		p.Services = append(p.Services, found)
	}
}

// A twin says whose namespace one here stands for.
type twin struct{ peer, home string }

func (o *objects) twins() map[string]twin {
	found := map[string]twin{}
	for i := range o.namespaces.Items {
		n := &o.namespaces.Items[i]
		if peer := v1alpha1.TwinPeer(n); peer != "" && n.Name != o.own {
			found[n.Name] = twin{peer, n.Annotations[v1alpha1.AnnotationHomeNamespace]}
		}
	}
	return found
}

// openedTo returns our namespaces that openings name.
func openedTo(peers map[string]*overlay.Peer) map[string]bool {
	opened := map[string]bool{}
	for _, p := range peers {
		for _, o := range p.Openings {
			opened[o.From.Namespace], opened[o.To.Namespace] = true, true
		}
		for _, path := range p.Exported {
			opened[path.Namespace] = true
		}
	}
	delete(opened, "")
	return opened
}

func podsAt(namespace string, pod *corev1.Pod) []overlay.Pod {
	var pods []overlay.Pod
	for _, address := range addressesOf(pod) {
		pods = append(pods, overlay.Pod{Namespace: namespace, Address: address})
	}
	return pods
}

// addressesOf returns those that are the pod's alone, as long as it has them.
func addressesOf(pod *corev1.Pod) []netip.Addr {
	if pod.Spec.HostNetwork || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	var addresses []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		addresses = appendAddress(addresses, ip.IP)
	}
	return addresses
}

func appendAddress(to []netip.Addr, text string) []netip.Addr {
	if address, err := netip.ParseAddr(text); err == nil {
		return append(to, address.Unmap())
	}
	return to
}

// hosts returns the real nodes. At addresses inside other nodes reach them.
func (o *objects) hosts() []overlay.Host {
	var hosts []overlay.Host
	for i := range o.nodes.Items {
		node := &o.nodes.Items[i]
		if node.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode {
			continue
		}
		h := overlay.Host{Name: node.Name}
		for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
			for _, a := range node.Status.Addresses {
				if a.Type == kind {
					h.Addresses = appendAddress(h.Addresses, a.Address)
				}
			}
		}
		for _, text := range node.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				h.PodCIDRs = append(h.PodCIDRs, p)
			}
		}
		hosts = append(hosts, h)
	}
	return hosts
}
