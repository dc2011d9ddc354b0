// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/local"
)

// networkFor returns what the peer is told of our network, nil if that is not known (yet).
func (c *Config) networkFor(ctx context.Context, reader client.Reader, peer *v1alpha1.Peer) (*v1alpha1.Network, error) {
	key := client.ObjectKey{Namespace: c.Namespace, Name: v1alpha1.OwnNetwork}
	kept, err := local.Find(ctx, reader, key, &corev1.ConfigMap{}, client.UnsafeDisableDeepCopy)
	if err != nil || kept == nil {
		return nil, err
	}
	own, err := exchange.ParseNetwork(kept.Data)
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	network := exchange.NetworkFor(own, &peer.Spec, peer.Status.Mappings)
	if network.Gateway != nil {
		network.Direct = peer.Status.Direct
	}
	return network, nil
}

func (c *Config) isOwnNetwork(object client.Object) bool {
	return object.GetNamespace() == c.Namespace && object.GetName() == v1alpha1.OwnNetwork
}

// allWith has all peers of the role looked at.
func allWith(reader client.Reader, roles ...v1alpha1.PeerRole) func(context.Context, client.Object) []reconcile.Request {
	return func(ctx context.Context, _ client.Object) []reconcile.Request { return peersWith(ctx, reader, roles) }
}

// seenElsewhere passes on that we see the peer in other ranges than before.
var seenElsewhere = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, was := e.ObjectOld.(*v1alpha1.Peer)
	after, is := e.ObjectNew.(*v1alpha1.Peer)
	return was && is && (!slices.Equal(before.Status.Mappings, after.Status.Mappings) || !slices.Equal(before.Status.Direct, after.Status.Direct))
}}
