// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/overlay"
)

// A Reader reads from a cache that was made with Cache.
type Reader struct {
	Client    client.Reader
	Namespace string // Hanse's own
}

// A Network is what the objects of this cluster say of its network.
type Network struct {
	// State has no public key of our gateway, and of peers only the endpoints that are addresses.
	overlay.State

	Own         *exchange.OwnNetwork // nil while the manager has not written it
	Connections map[string]*v1alpha1.Connection
	Active      Active // not set while none is
}

// Read returns what there is. Nothing in it may be changed.
func (r *Reader) Read(ctx context.Context) (Network, error) {
	var n Network
	found := objects{own: r.Namespace}
	for _, list := range []client.ObjectList{&found.nodes, &found.connections, &found.namespaces, &found.pods, &found.services} {
		if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return n, fmt.Errorf("list %T: %w", list, err)
		}
	}
	own, err := r.configMap(ctx, r.Namespace, v1alpha1.OwnNetwork)
	if err != nil {
		return n, err
	}
	if n.Active, err = r.Active(ctx); err != nil {
		return n, err
	}
	if own != nil {
		if n.Own, err = exchange.ParseNetwork(own.Data); err != nil {
			return n, fmt.Errorf("read ConfigMap %s: %w", client.ObjectKeyFromObject(own), err)
		}
	}
	n.Connections = found.byPeer()
	n.State = found.state(n.Own, n.Connections)
	n.Gateway = n.Active.gateway()
	return n, nil
}

// Active returns which gateway nodes are told of, an empty one while none is.
func (r *Reader) Active(ctx context.Context) (Active, error) {
	object, err := r.configMap(ctx, v1alpha1.NetworkNamespace(r.Namespace), v1alpha1.GatewayName)
	if object == nil || err != nil {
		return Active{}, err
	}
	return activeIn(object)
}

// configMap returns the ConfigMap of that name, nil if there is none.
func (r *Reader) configMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	object := &corev1.ConfigMap{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", namespace, name, err)
	}
	return object, nil
}
