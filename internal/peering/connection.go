// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/overlay"
)

// networks are what is known of the networks of both clusters.
type networks struct {
	ours        *exchange.OwnNetwork // nil while it is not known
	theirs      *v1alpha1.Network    // as the peer tells, nil while that is not known
	unusable    error                // what is wrong with what the peer tells
	connection  *v1alpha1.Connection // nil if there is none
	gatewayRuns bool                 // ours
}

// wantsTunnel says whether both clusters have a gateway, as far as that is known, or had one until now.
func (n *networks) wantsTunnel() bool {
	return n.connection != nil || n.ours != nil && n.ours.Gateway != nil && n.theirs != nil && n.theirs.Gateway != nil
}

// observeNetworks reads what is known of both networks, as our cache shows it.
func (c *Controller) observeNetworks(ctx context.Context, o *observation) error {
	if o.namespace == nil {
		return nil
	}
	answer, answered := existing(ctx, c.client, named(&v1alpha1.Advertisement{}, o.namespace.Name, c.config.ClusterID), client.UnsafeDisableDeepCopy)
	if o.theirs = toldNetwork(o, answer); o.theirs != nil {
		o.unusable = exchange.JudgeAnswer(o.theirs)
	}
	connection, connected := existing(ctx, c.client, named(&v1alpha1.Connection{}, o.namespace.Name, v1alpha1.ConnectionName))
	o.connection = connection
	return errors.Join(answered, connected, c.observeOurs(ctx, o))
}

// observeOurs reads what this cluster tells of its own network, and whether its gateway runs.
func (c *Controller) observeOurs(ctx context.Context, o *observation) error {
	kept, err := existing(ctx, c.client, configMap(c.config.Namespace, v1alpha1.OwnNetwork), client.UnsafeDisableDeepCopy)
	if err != nil || kept == nil {
		return err
	}
	if o.ours, err = exchange.ParseNetwork(kept.Data); err != nil {
		return fmt.Errorf("read ConfigMap %s: %w", client.ObjectKeyFromObject(kept), err)
	}
	if o.ours.Gateway == nil {
		return nil
	}
	gateway, err := existing(ctx, c.client, named(&appsv1.Deployment{}, v1alpha1.NetworkNamespace(c.config.Namespace), v1alpha1.GatewayName), client.UnsafeDisableDeepCopy)
	o.gatewayRuns = gateway != nil && gateway.Status.ReadyReplicas > 0
	return err
}

// toldNetwork returns what the peer tells of its network: in its offer if we use that, else in its answer to ours. Before it has
// accepted, or while its answer is not known, that is nothing: what was told before stays in force.
func toldNetwork(o *observation, answer *v1alpha1.Advertisement) *v1alpha1.Network {
	if ad := advertised(o); ad != nil && ad.ok() {
		return ptr.To(networkOf(o.offer))
	}
	if answer == nil || !o.peer.HasRole(v1alpha1.RoleConsumer) {
		return nil
	}
	said := answer.Status.Acknowledgement
	if said == nil || said.State != v1alpha1.AcknowledgementAccepted {
		return nil
	}
	return ptr.To(ptr.Deref(answer.Status.Network, v1alpha1.Network{}))
}

// connectionStep keeps the Connection, which tells our gateway of the peer's.
type connectionStep struct{ *deps }

// Reconcile implements step.
func (c *connectionStep) Reconcile(ctx context.Context, o *observation) (result, error) {
	if o.deleted() || o.namespace == nil || o.ours == nil || !o.peer.Protocol().Network {
		return result{}, nil
	}
	others := &v1alpha1.ConnectionList{}
	if o.wantsTunnel() {
		if err := c.client.List(ctx, others, client.UnsafeDisableDeepCopy); err != nil {
			return result{}, fmt.Errorf("list Connections: %w", err)
		}
	}
	spec, conflict := connection(o, others.Items)
	o.unlinked = conflict
	switch {
	case conflict == nil:
		return result{}, c.connect(ctx, o, spec)
	case o.connection != nil && slices.Contains(passing, conflict.Reason):
		o.unlinked = nil // the gateway says how the tunnel is
		return result{}, nil
	case o.connection != nil:
		return result{}, c.removeExactly(ctx, o.connection)
	default:
		return result{}, nil
	}
}

// passing are reasons for which no tunnel is made, and one that exists is left as it is.
var passing = []string{v1alpha1.ReasonPending, v1alpha1.ReasonNoAddressRange}

// connection returns what the Connection must say, or why there can be none.
func connection(o *observation, others []v1alpha1.Connection) (*v1alpha1.ConnectionSpec, *overlay.Conflict) {
	switch {
	case o.ours.Gateway == nil:
		return nil, conflict(o, v1alpha1.ReasonNoNetworkFabric, "")
	case len(o.peer.Spec.Roles) == 0:
		return nil, conflict(o, v1alpha1.ReasonNoPeerGateway, "The peer has no role here")
	case o.theirs == nil && o.connection != nil:
		return nil, conflict(o, v1alpha1.ReasonPending, "The peer has not told of its network yet")
	case o.unusable != nil:
		return nil, conflict(o, v1alpha1.ReasonNetworkRefused, "What the peer tells of its network cannot be used: %v", o.unusable)
	case o.addresses.conflict != nil:
		return nil, o.addresses.conflict
	}
	grant := overlay.Grant{Peer: o.peer.Name, Mappings: o.addresses.Mappings, Direct: o.addresses.Direct}
	own := overlay.Ranges(slices.Concat(o.ours.PodCIDRs, o.ours.ServiceCIDRs))
	relayed := overlay.Ranges(exchange.NetworkFor(o.ours, &o.peer.Spec, overlay.Written(grant.Mappings)).RelayedCIDRs)
	spec, refused := overlay.Connect(grant, own, relayed, o.theirs)
	if refused != nil {
		return nil, refused
	}
	if holder := keyHolder(o, spec.PublicKey, others); holder != "" {
		return nil, conflict(o, v1alpha1.ReasonKeyTaken, "The key of the peer's gateway is %s: one of the two is not who it says. "+
			"Ask both administrators, and have the wrong one make another key", holder)
	}
	asked := ptr.Deref(o.peer.Spec.Network, v1alpha1.PeerNetwork{})
	spec.ClusterID, spec.Openings, spec.RelayBandwidth = o.peer.Spec.ClusterID, asked.Open, asked.RelayBandwidth
	return spec, nil
}

func conflict(o *observation, reason, message string, args ...any) *overlay.Conflict {
	return &overlay.Conflict{Peer: o.peer.Name, Reason: reason, Message: fmt.Sprintf(message, args...)}
}

// keyHolder says who has the key of the peer's gateway, if that is not the peer: we ourselves, or another peer whose Connection has it.
// Where both have it, the older Connection keeps it.
func keyHolder(o *observation, key string, others []v1alpha1.Connection) string {
	if key == o.ours.Gateway.PublicKey {
		return "our own"
	}
	has := o.connection != nil && o.connection.Spec.PublicKey == key
	for i := range others {
		other := &others[i]
		if other.Namespace == o.namespace.Name || other.Spec.PublicKey != key || has && byAge(o.connection, other) < 0 {
			continue
		}
		return fmt.Sprintf("that of peer %q", other.Labels[v1alpha1.LabelPeer])
	}
	return ""
}

// connect writes the Connection if it does not say so yet.
func (c *connectionStep) connect(ctx context.Context, o *observation, spec *v1alpha1.ConnectionSpec) error {
	if o.connection != nil {
		now := o.connection.Spec
		if now.Exported, now.Imported = nil, nil; equality.Semantic.DeepEqual(now, *spec) { // which are not ours
			return nil
		}
	}
	object := named(&v1alpha1.Connection{}, o.namespace.Name, v1alpha1.ConnectionName)
	object.Labels = map[string]string{v1alpha1.LabelPeer: o.peer.Name, v1alpha1.LabelManaged: "true"}
	return local.ApplySpec(ctx, c.client, fieldOwner, object, spec)
}

// connected is whether pods of the two clusters reach each other: as our gateway says of the tunnel, if there can be one.
func connected(o *observation) *condition {
	switch {
	case !o.peer.Protocol().Network:
		return isFalse(v1alpha1.ReasonAgentless, "The peer runs no Hanse, so there will be no network "+
			"between its pods and ours: the addresses of pods that run there are not shown")
	case o.ours == nil, o.ours.Gateway == nil:
		return noFabric(o)
	case o.unlinked != nil:
		return isFalse(o.unlinked.Reason, "%s", o.unlinked.Message+remedies[o.unlinked.Reason])
	case !o.gatewayRuns:
		return isFalse(v1alpha1.ReasonNoGateway, "No gateway of this cluster is ready: look at the pods of Deployment %s/%s",
			v1alpha1.NetworkNamespace(o.config.Namespace), v1alpha1.GatewayName)
	default:
		return tunnel(o)
	}
}

// remedies say what to do, where the message does not say it yet.
var remedies = map[string]string{ // reason → what
	v1alpha1.ReasonNoPeerGateway:  ": for a network, turn it on at the peer, with gateway.enabled of its Helm values",
	v1alpha1.ReasonPending:        ": it does so with one of its next messages",
	v1alpha1.ReasonNetworkRefused: ": ask its administrator",
}

func noFabric(o *observation) *condition {
	message := "There is no network between the pods of the two clusters"
	if o.peer.HasRole(v1alpha1.RoleProvider) {
		message += ": the addresses of pods that run at the peer do not route"
	}
	message += ". If pods need one, turn it on with gateway.enabled of the Helm values, here and at the peer"
	return isFalse(v1alpha1.ReasonNoNetworkFabric, "%s", message)
}

// tunnel is what our gateway says of the tunnel to the peer.
func tunnel(o *observation) *condition {
	c := ptr.Deref(o.connection, v1alpha1.Connection{})
	said := conditionOf(c.Status.Conditions, v1alpha1.ConditionConnected)
	switch {
	case said != nil && said.ok():
		return isTrue("Pods of the two clusters reach each other, as far as that is allowed")
	case said != nil && said.reason == v1alpha1.ReasonNoEndpoint:
		return isFalse(v1alpha1.ReasonNoEndpoint, "Neither of the two gateways can be reached by the other: make one reachable from "+
			"outside, with gateway.service.type or gateway.endpoints of the Helm values, here or at the peer, or ask the administrator of a "+
			"cluster that both reach to relay for both, with spec.network.relayBandwidth of its Peers")
	case said == nil:
		return isFalse(v1alpha1.ReasonPending, "The gateway has not said yet how the tunnel to the peer is")
	default:
		return isFalse(said.reason, "%s", said.message)
	}
}

// networkDown is the condition of a peer whose pods ours do not reach though both clusters have a gateway, nil of others.
func networkDown(o *observation) *condition {
	if c := connected(o); !c.ok() && v1alpha1.WantsNetwork(c.reason) {
		return c
	}
	return nil
}

// connectionChanges are those of a Connection that matter here: not the measurements.
var connectionChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*v1alpha1.Connection), e.ObjectNew.(*v1alpha1.Connection)
	return before.Generation != after.Generation || !ptr.Equal(
		conditionOf(before.Status.Conditions, v1alpha1.ConditionConnected), conditionOf(after.Status.Conditions, v1alpha1.ConditionConnected))
}}

// peersOfConnection finds the Peer of a Connection, and those for whose key another has had a Connection: it may be gone.
func (c *Controller) peersOfConnection(ctx context.Context, o client.Object) []reconcile.Request {
	return append(peersOf(ctx, o), c.peersThat(ctx, func(peer *v1alpha1.Peer) bool {
		c := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionConnected)
		return c != nil && c.Reason == v1alpha1.ReasonKeyTaken
	})...)
}

// everyPeer finds all Peers.
func (c *Controller) everyPeer(ctx context.Context, _ client.Object) []reconcile.Request {
	return c.peersThat(ctx, func(*v1alpha1.Peer) bool { return true })
}

func (c *Controller) peersThat(ctx context.Context, match func(*v1alpha1.Peer) bool) []reconcile.Request {
	list := &v1alpha1.PeerList{}
	if err := c.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache, which this event came from, can always be read
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if match(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// isOwnNetwork lets through what this cluster tells of its network.
func (d *deps) isOwnNetwork(o client.Object) bool {
	return o.GetNamespace() == d.config.Namespace && o.GetName() == v1alpha1.OwnNetwork
}

// gatewayTurned lets through that our gateway begins or ceases to run.
var gatewayTurned = predicate.And(
	predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == v1alpha1.GatewayName }),
	predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*appsv1.Deployment), e.ObjectNew.(*appsv1.Deployment)
		return (before.Status.ReadyReplicas > 0) != (after.Status.ReadyReplicas > 0)
	}},
)
