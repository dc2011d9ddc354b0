// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/clusterset"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/overlay"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

const (
	// maxNote is how much is shown of what a peer says.
	maxNote = 512
	// maxBytes is how large one message of a peer may be. Its definition bounds it to about as much.
	maxBytes = 64 << 10
)

// exported are the ExportedServices in our tenant namespace at a provider: ours, and those of the provider.
var exported = &peers.Subject{
	Example: &v1alpha1.ExportedService{}, MostObjects: 2 * v1alpha1.MaxExportedServices, MostBytes: maxBytes,
}

// A partner is a peer with which this cluster shares namespaces, or has shared some.
type partner struct {
	peer       *v1alpha1.Peer
	connection *v1alpha1.Connection // an empty one where there is none
	link       *peers.Link          // nil without one
	over       *peers.Mirror        // of exported, nil without a link
}

// partners returns all peers that may tell us of Services, or be told.
func (c *Config) partners(ctx context.Context) ([]partner, error) {
	list := &v1alpha1.PeerList{}
	if err := c.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Peers: %w", err)
	}
	var all []partner
	for i := range list.Items {
		p, err := c.partner(ctx, &list.Items[i])
		if err != nil {
			return nil, err
		}
		if p != nil {
			all = append(all, *p)
		}
	}
	return all, nil
}

// partner returns the peer as a partner, and nil if it can be none. What it tells is followed from now on.
func (c *Config) partner(ctx context.Context, peer *v1alpha1.Peer) (*partner, error) {
	if peer.Spec.ClusterSet == nil || peer.Spec.ClusterID == "" || !peer.Protocol().Network || !peer.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer.Name), Name: v1alpha1.ConnectionName}
	connection, err := local.Find(ctx, c.Client, key, &v1alpha1.Connection{}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	p := &partner{peer: peer, connection: connection}
	if connection == nil {
		p.connection = &v1alpha1.Connection{}
	}
	if link, open := c.Links.Get(peer.Name); open && peer.HasRole(v1alpha1.RoleProvider) {
		p.link, p.over = link, link.Follow(exported, link.TenantNamespace())
	}
	return p, nil
}

// known says whether it is known what the peer tells.
func (p *partner) known() bool {
	return !p.peer.HasRole(v1alpha1.RoleProvider) || p.over != nil && p.over.HasSynced()
}

// connected says whether the tunnel works. The gateway says so in the Connection, before anybody else knows; but while there is no gateway,
// the Peer alone says that.
func (p *partner) connected() bool {
	return p.peer.Connected() && p.connection.Connected()
}

// telling returns by which role this cluster tells the peer: as the provider where it is one, since the peer reads here.
func (p *partner) telling() v1alpha1.ExportedBy {
	if p.peer.HasRole(v1alpha1.RoleConsumer) {
		return v1alpha1.ExportedByProvider
	}
	return v1alpha1.ExportedByConsumer
}

// object returns the ExportedService of the name, as the cache or the mirror has it, or nil.
func (c *Config) object(ctx context.Context, p *partner, by v1alpha1.ExportedBy, own bool, name string) (*v1alpha1.ExportedService, error) {
	if here := (by == v1alpha1.ExportedByProvider) == own; here {
		key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(p.peer.Name), Name: name}
		return local.Find(ctx, c.Client, key, &v1alpha1.ExportedService{}, client.UnsafeDisableDeepCopy)
	}
	if p.over == nil {
		return nil, nil
	}
	found, _ := p.over.Named(name)
	object, _ := found.(*v1alpha1.ExportedService)
	return object, nil
}

// received returns what the peer tells of the Service: as a provider, or else as a consumer. The objects must not be changed.
func (c *Config) received(ctx context.Context, p *partner, key clusterset.Key) ([]*v1alpha1.ExportedService, error) {
	for _, by := range []v1alpha1.ExportedBy{v1alpha1.ExportedByProvider, v1alpha1.ExportedByConsumer} {
		var parts []*v1alpha1.ExportedService
		for part := range v1alpha1.MaxExportedServices {
			object, err := c.object(ctx, p, by, false, v1alpha1.ExportedServiceName(by, key.Namespace, key.Name, part))
			if err != nil {
				return nil, err
			}
			if object == nil || !object.DeletionTimestamp.IsZero() {
				break
			}
			if object.Spec.By == by && object.Spec.Namespace == key.Namespace && object.Spec.Name == key.Name {
				parts = append(parts, object) // a hostile provider may have named it otherwise
			}
		}
		if len(parts) > 0 {
			return parts, nil
		}
	}
	return nil, nil
}

// sender returns the peer as one that exports Services of the namespace.
func (c *Config) sender(p *partner, namespace string) *clusterset.Sender {
	s := &clusterset.Sender{
		Name: p.peer.Name, Cluster: p.peer.Spec.ClusterID, Shares: p.peer.Shares(namespace, c.Namespace), Connected: p.connected(),
	}
	for _, m := range overlay.Mappings(p.connection.Spec.Theirs) {
		if m.Seen.IsValid() {
			s.Seen = append(s.Seen, m.Seen)
		}
	}
	return s
}

// refusal says why a message is not taken. Pods of the peer that run here are looked for only where it names something else than its own
// addresses.
func (c *Config) refusal(ctx context.Context, s *clusterset.Sender, spec *v1alpha1.ExportedServiceSpec) (string, error) {
	why := s.Refusal(spec)
	if why == "" || s.Guests != nil || !s.Shares {
		return why, nil
	}
	var err error
	if s.Guests, err = c.guests(ctx, s.Name); err != nil {
		return "", err
	}
	return s.Refusal(spec), nil
}

// guests returns the addresses of the peer's pods that run here.
func (c *Config) guests(ctx context.Context, peer string) (map[netip.Addr]bool, error) {
	twins := &corev1.NamespaceList{}
	labels := client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelPeer: peer}
	if err := c.Client.List(ctx, twins, labels, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list twin namespaces: %w", err)
	}
	guests := map[netip.Addr]bool{}
	for i := range twins.Items {
		if v1alpha1.TwinPeer(&twins.Items[i]) != peer {
			continue
		}
		pods := &corev1.PodList{}
		if err := c.Client.List(ctx, pods, client.InNamespace(twins.Items[i].Name), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list pods of peer %s: %w", peer, err)
		}
		for _, pod := range pods.Items {
			for _, ip := range pod.Status.PodIPs {
				if address, err := netip.ParseAddr(ip.IP); err == nil {
					guests[address] = true
				}
			}
		}
	}
	return guests, nil
}

// answer says in the status of a message why it is not taken. If it is taken the status says nothing, which costs no write.
func answer(ctx context.Context, writer client.Client, told *v1alpha1.ExportedService, why string) error {
	after := told.DeepCopy()
	v1alpha1.Answer(&after.Status.Conditions, v1alpha1.ReasonExportRefused, sanitize.Text(why, maxNote), told.Generation)
	if equality.Semantic.DeepEqual(told.Status, after.Status) {
		return nil
	}
	after.Status.ObservedGeneration = told.Generation
	if err := client.IgnoreNotFound(writer.Status().Patch(ctx, after, client.MergeFrom(told))); err != nil {
		return fmt.Errorf("answer ExportedService %s: %w", told.Name, err)
	}
	return nil
}

// standing returns how an export of ours stands at the peer.
func (c *Config) standing(ctx context.Context, p *partner, key clusterset.Key) (clusterset.Standing, error) {
	by := p.telling()
	object, err := c.object(ctx, p, by, true, v1alpha1.ExportedServiceName(by, key.Namespace, key.Name, 0))
	if err != nil || object == nil {
		return clusterset.Standing{}, err
	}
	return clusterset.Standing{Told: true, Refused: clusterset.Refused(object)}, nil
}

// here returns the ExportedServices in the peer's tenant namespace that the one has written, by name: the peer, or this cluster.
func (c *Config) here(ctx context.Context, p *partner, by v1alpha1.ExportedBy) (map[string]*v1alpha1.ExportedService, error) {
	list := &v1alpha1.ExportedServiceList{}
	if err := c.Client.List(ctx, list, client.InNamespace(v1alpha1.TenantNamespace(p.peer.Name)), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list ExportedServices: %w", err)
	}
	found := map[string]*v1alpha1.ExportedService{}
	for i := range list.Items {
		if e := &list.Items[i]; e.Spec.By == by {
			found[e.Name] = e
		}
	}
	return found, nil
}

// there returns those in our tenant namespace at the peer.
func (p *partner) there(by v1alpha1.ExportedBy) map[string]*v1alpha1.ExportedService {
	found := map[string]*v1alpha1.ExportedService{}
	if p.over == nil {
		return found
	}
	for _, object := range p.over.List() {
		if e, ok := object.(*v1alpha1.ExportedService); ok && e.Spec.By == by {
			found[e.Name] = e
		}
	}
	return found
}
