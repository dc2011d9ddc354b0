// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/overlay"
)

// A networkKeeper keeps ConfigMap v1alpha1.OwnNetwork, which has what this cluster tells of its network, and the key of the
// gateway. There is one request for all of it.
type networkKeeper struct{ *deps }

// Reconcile makes the ConfigMap say what there is.
func (k *networkKeeper) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	seen, err := k.observe(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	data, err := exchange.NetworkData(k.config.network(seen))
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("encode the network: %w", err)
	}
	kept := configMap(k.config.Namespace, v1alpha1.OwnNetwork)
	if err := k.put(ctx, kept, func() { kept.Data = data }); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: localPeriod}, nil // the key and the ranges of Services are not watched
}

// surroundings are what the network of this cluster consists of.
type surroundings struct {
	nodes    []*corev1.Node // real ones, sorted by name
	services []netip.Prefix
	dns      []netip.Addr // of the DNS Service
	relayed  relayed
	key      string          // the public one of the gateway
	gateway  *corev1.Service // nil if there is none
}

func (k *networkKeeper) observe(ctx context.Context) (surroundings, error) {
	var s surroundings
	var nodes, services, dns, key, gateway, peers error
	s.nodes, nodes = k.realNodes(ctx)
	s.services, services = k.serviceRanges(ctx)
	s.dns, dns = k.nameservers(ctx)
	if k.config.Gateway {
		s.key, key = k.gatewayKey(ctx)
		s.gateway, gateway = existing(ctx, k.client, named(&corev1.Service{}, v1alpha1.NetworkNamespace(k.config.Namespace), v1alpha1.GatewayName))
		s.relayed, peers = k.peerRanges(ctx)
	}
	return s, errors.Join(nodes, services, dns, key, gateway, peers)
}

// network returns what this cluster knows of its network.
func (c *Config) network(s surroundings) *exchange.OwnNetwork {
	n := &exchange.OwnNetwork{
		Network: v1alpha1.Network{
			PodCIDRs: written[v1alpha1.CIDR](c.podRanges(s.nodes, s.services), v1alpha1.MaxCIDRs), RelayedCIDRs: seenOf(s.relayed.behind), Behind: s.relayed.ofOurs(),
			ServiceCIDRs: written[v1alpha1.CIDR](s.services, v1alpha1.MaxCIDRs), Nameservers: written[v1alpha1.IP](s.dns, maxNameservers),
		},
		ConsumerCIDRs: s.relayed.consumers, Homes: s.relayed.homes, SendsOn: c.SendOn,
	}
	if c.Gateway {
		n.Gateway = &v1alpha1.Gateway{
			PublicKey: s.key, Protocols: []string{v1alpha1.ProtocolWireGuard},
			Endpoints: c.endpoints(s.gateway, s.nodes), Addresses: written[v1alpha1.IP](overlay.GatewayAddresses(s.services), maxNameservers),
		}
	}
	return n
}

// maxNameservers is how many addresses of DNS are told, and of the gateway in the tunnel: one of each family.
const maxNameservers = 2

// written returns the values as objects have them, at most that many.
func written[Text ~string, T fmt.Stringer](values []T, most int) []Text {
	var texts []Text
	for _, value := range values[:min(len(values), most)] {
		texts = append(texts, Text(value.String()))
	}
	return texts
}

// podRanges returns the ranges of our own pods: as the administrator says, else guessed from the real nodes and the ranges of Services.
func (c *Config) podRanges(nodes []*corev1.Node, services []netip.Prefix) []netip.Prefix {
	if len(c.PodCIDRs) > 0 {
		return c.PodCIDRs
	}
	return overlay.Ranges(exchange.PodCIDRs(nodes, services))
}

// realNodes returns the nodes of this cluster but for virtual ones, sorted by name. They are only read.
func (d *deps) realNodes(ctx context.Context) ([]*corev1.Node, error) {
	list := &corev1.NodeList{}
	if err := d.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	var nodes []*corev1.Node
	for i := range list.Items {
		if !isOfType(&list.Items[i], v1alpha1.TypeVirtualNode) {
			nodes = append(nodes, &list.Items[i])
		}
	}
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) }) // a cache lists them in any order
	return nodes, nil
}

// serviceRanges returns the ranges of our own Services, sorted.
func (d *deps) serviceRanges(ctx context.Context) ([]netip.Prefix, error) {
	list := &networkingv1.ServiceCIDRList{}
	if err := d.direct.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list ServiceCIDRs: %w", err)
	}
	var ranges []netip.Prefix
	for i := range list.Items {
		ranges = append(ranges, parseRanges(list.Items[i].Spec.CIDRs...)...)
	}
	slices.SortFunc(ranges, netip.Prefix.Compare)
	return ranges, nil
}

// labelDNS is on the Service of the cluster's DNS, whichever installer made it.
var labelDNS = client.MatchingLabels{"k8s-app": "kube-dns"}

// nameservers returns the addresses of the cluster's DNS.
func (k *networkKeeper) nameservers(ctx context.Context) ([]netip.Addr, error) {
	addresses := k.config.Nameservers
	if len(addresses) == 0 {
		list := &corev1.ServiceList{}
		if err := k.client.List(ctx, list, client.InNamespace(metav1.NamespaceSystem), labelDNS); err != nil {
			return nil, fmt.Errorf("list Services of DNS: %w", err)
		}
		slices.SortFunc(list.Items, func(a, b corev1.Service) int { return cmp.Compare(a.Name, b.Name) })
		for _, service := range list.Items[:min(len(list.Items), 1)] {
			addresses = service.Spec.ClusterIPs
		}
	}
	var servers []netip.Addr
	for _, text := range addresses {
		if address, err := netip.ParseAddr(text); err == nil { // a headless Service has "None"
			servers = append(servers, address)
		}
	}
	return servers, nil
}

// relayed are ranges in which we see peers, of the oldest Peers first: what was told stays when there are more than can be told.
type relayed struct {
	behind    []v1alpha1.ClusterRange // of pods at providers
	consumers []v1alpha1.CIDR         // of pods and Services of consumers, if we send pods on
	homes     []exchange.Home         // consumers that have pods at other providers, too
}

// peerRanges returns those of the peers that have a gateway, and a few more than can be told, since no peer is told its own.
func (k *networkKeeper) peerRanges(ctx context.Context) (relayed, error) {
	var found relayed
	list := &v1alpha1.PeerList{}
	if err := k.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return found, fmt.Errorf("list Peers: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.Peer) int { return byAge(&a, &b) })
	for i := range list.Items {
		peer := &list.Items[i]
		if len(peer.Status.Mappings) == 0 || !peer.DeletionTimestamp.IsZero() {
			continue
		}
		if err := k.addRanges(ctx, &found, peer); err != nil {
			return found, err
		}
	}
	return found, nil
}

const mostRanges = v1alpha1.MaxRelayedCIDRs + 2*v1alpha1.MaxCIDRs

// addRanges adds those of the peer, by what it tells in each of its roles.
func (k *networkKeeper) addRanges(ctx context.Context, to *relayed, peer *v1alpha1.Peer) error {
	if peer.HasRole(v1alpha1.RoleProvider) && len(to.behind) < mostRanges {
		offer, err := k.advertisementOf(ctx, peer, peer.Spec.ClusterID)
		if err != nil {
			return err
		}
		if network := networkOf(offer); network.Gateway != nil {
			to.behind = append(to.behind, behind(peer, network.PodCIDRs)...)
		}
	}
	if !peer.HasRole(v1alpha1.RoleConsumer) {
		return nil
	}
	answer, err := k.advertisementOf(ctx, peer, k.config.ClusterID)
	if err != nil || answer == nil || answer.Status.Network == nil || answer.Status.Network.Gateway == nil {
		return err
	}
	to.addConsumer(peer, answer.Status.Network, k.config.SendOn)
	return nil
}

// addConsumer adds what a consumer tells, and its ranges if pods are sent on.
func (r *relayed) addConsumer(peer *v1alpha1.Peer, network *v1alpha1.Network, sendOn bool) {
	if sendOn && len(r.consumers) < mostRanges {
		r.consumers = append(r.consumers, seenOf(behind(peer, slices.Concat(network.PodCIDRs, network.ServiceCIDRs)))...)
	}
	if len(network.Behind) > 0 {
		r.homes = append(r.homes, exchange.Home{ClusterID: peer.Spec.ClusterID, Providers: providersIn(network.Behind)})
	}
}

// ofOurs are the ranges in which we have pods at providers, and nobody else has: of the pods of a consumer that we send on, the
// consumer's own pods lie there too, and a provider that took them all for ours would send to them past us.
func (r *relayed) ofOurs() []v1alpha1.ClusterRange {
	return slices.DeleteFunc(slices.Clone(r.behind), func(b v1alpha1.ClusterRange) bool { return slices.Contains(r.consumers, b.Seen) })
}

// providersIn returns the ids of the clusters that ranges lie behind, each once.
func providersIn(ranges []v1alpha1.ClusterRange) []string {
	var ids []string
	for _, r := range ranges {
		ids = append(ids, r.ClusterID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// advertisementOf returns the advertisement of that cluster in the peer's tenant namespace, nil if there is none. It is the cache's own.
func (k *networkKeeper) advertisementOf(ctx context.Context, peer *v1alpha1.Peer, cluster string) (*v1alpha1.Advertisement, error) {
	return existing(ctx, k.client, named(&v1alpha1.Advertisement{}, v1alpha1.TenantNamespace(peer.Name), cluster), client.UnsafeDisableDeepCopy)
}

// behind returns in which ranges we see those of a peer.
func behind(peer *v1alpha1.Peer, own []v1alpha1.CIDR) []v1alpha1.ClusterRange {
	var ranges []v1alpha1.ClusterRange
	for _, m := range peer.Status.Mappings {
		if slices.Contains(own, m.Own) {
			ranges = append(ranges, v1alpha1.ClusterRange{ClusterID: peer.Spec.ClusterID, RangeMapping: m})
		}
	}
	return ranges
}

func seenOf(ranges []v1alpha1.ClusterRange) []v1alpha1.CIDR {
	var seen []v1alpha1.CIDR
	for _, r := range ranges {
		seen = append(seen, r.Seen)
	}
	return seen
}

// relayDelay is how long changes of peers are gathered before it is told what we relay.
const relayDelay = time.Second

func (k *networkKeeper) request() reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: k.config.Namespace, Name: v1alpha1.OwnNetwork}}
}

// setup registers the keeper with the manager.
func (k *networkKeeper) setup(mgr ctrl.Manager) error {
	all := func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{k.request()} }
	now := handler.EnqueueRequestsFromMapFunc(all)
	later := local.Later(relayDelay, all) // peers come in crowds, and what we relay to others is no hurry
	return ctrl.NewControllerManagedBy(mgr).
		Named("network").
		Watches(&corev1.ConfigMap{}, now, builder.WithPredicates(predicate.NewPredicateFuncs(k.isOwnNetwork))).
		Watches(&corev1.Service{}, now).
		Watches(&corev1.Node{}, now, builder.WithPredicates(rangesMoved)).
		Watches(&v1alpha1.Peer{}, later, builder.WithPredicates(mappingsMoved)).
		Watches(&v1alpha1.Advertisement{}, later, builder.WithPredicates(offerChanges)).
		Complete(k)
}

// rangesMoved passes on that there are nodes with other ranges or addresses than before.
var rangesMoved = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
	return before.Spec.PodCIDR != after.Spec.PodCIDR || !slices.Equal(before.Spec.PodCIDRs, after.Spec.PodCIDRs) ||
		!slices.Equal(before.Status.Addresses, after.Status.Addresses)
}}

// mappingsMoved passes on that a peer is seen in other ranges than before, or is no provider any more.
var mappingsMoved = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*v1alpha1.Peer), e.ObjectNew.(*v1alpha1.Peer)
	return !slices.Equal(before.Status.Mappings, after.Status.Mappings) || !slices.Equal(before.Spec.Roles, after.Spec.Roles)
}}
