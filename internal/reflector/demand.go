// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/overlay"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// A demand is what the twin of a place at one peer should have.
type demand struct {
	names map[string]bool
	// more is whether there may be more than these, as only a look at all objects tells.
	more bool
	// known are the sources, with the copies where our cache has the whole objects. Of what pods refer to it has not even the metadata.
	known map[string]reflection.Copy
	// parts are what a copy must not be without, by its name.
	parts map[string][]string
}

// demand returns what pods of the place on the peer's virtual node need.
func (c *copier) demand(ctx context.Context, req request) (demand, error) {
	pods, err := c.podsOf(ctx, req)
	if err != nil || len(pods) == 0 {
		return demand{}, err
	}
	if virtual, err := c.isVirtual(ctx, v1alpha1.VirtualNodeName(req.Peer)); err != nil || !virtual {
		return demand{}, err
	}
	switch listed := c.listed(req.Kind); {
	case listed != nil:
		return c.ofListed(ctx, req, listed)
	case req.Kind == reflection.Ingress:
		return c.ofIngresses(ctx, req)
	case !req.Kind.ByPods():
		return c.ofNamespace(ctx, req)
	}
	wanted := demand{names: namesIn(pods, req.Kind), more: c.Reach.Of(req.Kind).SeesAll()}
	if req.Kind == reflection.Secret && c.Network {
		return wanted, c.addOfIngresses(ctx, req, wanted.names)
	}
	return wanted, nil
}

// namesIn are those of the objects of the kind that the pods refer to.
func namesIn(pods []*corev1.Pod, kind reflection.Kind) map[string]bool {
	names := map[string]bool{}
	for _, pod := range pods {
		for _, reference := range needs(pod) {
			if reference.Kind == kind {
				names[reference.Name] = true
			}
		}
	}
	return names
}

// podsOf returns the pods of the namespace on the peer's node that have not ended. They are the cache's own and must not be changed.
func (c *copier) podsOf(ctx context.Context, req request) ([]*corev1.Pod, error) {
	pods := &corev1.PodList{}
	if err := c.Client.List(ctx, pods, client.InNamespace(req.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	node := v1alpha1.VirtualNodeName(req.Peer)
	var there []*corev1.Pod
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.Spec.NodeName == node && !offload.Terminal(pod.Status.Phase) {
			there = append(there, pod)
		}
	}
	return there, nil
}

// isVirtual says whether the Node is a virtual one, and not a real one whose name only looks like it. One that is gone was.
func (c *copier) isVirtual(ctx context.Context, name string) (bool, error) {
	node, err := local.Find(ctx, c.Client, client.ObjectKey{Name: name}, &corev1.Node{}, client.UnsafeDisableDeepCopy)
	return err == nil && (node == nil || node.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode), err
}

// ofNamespace returns the copies of Services, or of what their endpoints are, that the peer gets. Without a connection there are none,
// because nobody knows then how the peer sees an endpoint.
func (c *copier) ofNamespace(ctx context.Context, req request) (demand, error) {
	services, slices := &corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}
	connection, err := c.connection(ctx, req.Peer)
	if err != nil || connection == nil {
		return demand{}, err
	}
	for _, list := range []client.ObjectList{services, slices} {
		if err := c.Client.List(ctx, list, client.InNamespace(req.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return demand{}, fmt.Errorf("list Services and their endpoints: %w", err)
		}
	}
	ours, reach := overlay.Mappings(connection.Spec.Ours), c.Reach.Of(reflection.Service)
	copies := reflection.Services(services.Items, slices.Items, reflection.View{
		Node: v1alpha1.VirtualNodeName(req.Peer), Reach: reach, Only: req.Kind,
		Seen: func(home netip.Addr) (netip.Addr, bool) { return overlay.Seen(ours, home) },
	})
	if req.Kind == reflection.EndpointSlice {
		return demandOf(copies.Slices), nil
	}
	wanted := demandOf(copies.Services)
	wanted.parts = copies.Parts
	return wanted, nil
}

// connection returns ours to the peer, or nil if there is none.
func (c *copier) connection(ctx context.Context, peer string) (*v1alpha1.Connection, error) {
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer), Name: v1alpha1.ConnectionName}
	return local.Find(ctx, c.Client, key, &v1alpha1.Connection{}, client.UnsafeDisableDeepCopy)
}

// demandOf is for just those copies.
func demandOf(known map[string]reflection.Copy) demand {
	wanted := demand{names: map[string]bool{}, known: known}
	for name := range known {
		wanted.names[name] = true
	}
	return wanted
}

func (d demand) any() bool { return len(d.names) > 0 || d.more }

// sources are what the plan must know of the copies that are known.
func (d demand) sources() map[string]*reflection.Source {
	all := map[string]*reflection.Source{}
	for name, known := range d.known {
		all[name] = &known.Source
	}
	return all
}

// whole leaves out the Services to come whose endpoints are not all there yet: until then pods reach them at home, and with half of
// them they would reach nothing. When these come, the Services are looked at again.
func (d demand) whole(steps []reflection.Step, link *peers.Link, namespace string) []reflection.Step {
	if len(d.parts) == 0 {
		return steps
	}
	there := link.FollowTwin(copies[reflection.EndpointSlice], namespace)
	var due []reflection.Step
	for _, step := range steps {
		if step.Verb != reflection.Create || all(d.parts[step.Name], there) {
			due = append(due, step)
		}
	}
	return due
}

func all(names []string, there *peers.Mirror) bool {
	for _, name := range names {
		if there == nil {
			return false
		}
		if _, found := there.Named(name); !found {
			return false
		}
	}
	return true
}
