// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// debounce is how long something that is not urgent waits, so that what comes together is looked at once.
const debounce = 200 * time.Millisecond

// together is how long what waits for others, as a Service does for its endpoints, waits for more of them: of many, one look is enough.
const together = 50 * time.Millisecond

// copies are what is followed in twins of each kind that is not listed: the metadata of the objects, and of messages what the
// provider answers.
var copies = subjects(reflection.Kinds(true))

func subjects(kinds []reflection.Kind) map[reflection.Kind]*peers.Subject {
	found := map[reflection.Kind]*peers.Subject{}
	for _, kind := range kinds {
		found[kind] = subject(kind)
	}
	return found
}

func subject(kind reflection.Kind) *peers.Subject {
	switch {
	case kind == reflection.EndpointSlice:
		return &peers.Subject{Example: &v1alpha1.ShadowEndpointSlice{}, Trim: withoutSpec}
	case !kind.ByProvider():
		return &peers.Subject{Example: local.Metadata(kind.Twin())}
	}
	return &peers.Subject{
		Example: &v1alpha1.ShadowObject{}, Trim: trimShadowObject,
		Labels: labels.SelectorFromSet(labels.Set{v1alpha1.LabelKind: string(kind)}),
	}
}

// trimShadowObject drops what we know, and what we have not asked for.
func trimShadowObject(object client.Object) {
	object.SetManagedFields(nil)
	if shadow, ok := object.(*v1alpha1.ShadowObject); ok {
		shadow.Spec.Object = ""
		if !shadow.Spec.StatusBack || len(shadow.Status.Object) > v1alpha1.MaxShadowStatusBytes {
			shadow.Status.Object = ""
		}
	}
}

// twinOf returns the link to the peer, and what is seen of the twin of the place there, or nil if there is no twin, as far as
// is known. It is followed from now on if pods need what is in it, and otherwise only as long as there may be copies to remove.
func (c *copier) twinOf(ctx context.Context, req request, needed bool) (*peers.Link, *peers.Mirror, error) {
	link, spoken, err := c.linkTo(ctx, req.Peer)
	if link == nil || err != nil || !takes(spoken, req.Kind) {
		return nil, nil, err
	}
	if needed {
		return link, link.FollowTwin(c.copies[req.Kind], req.Namespace), nil
	}
	return link, link.Followed(c.copies[req.Kind], req.Namespace), nil
}

// takes says whether a peer with which that is spoken takes copies of objects of the kind.
func takes(spoken v1alpha1.Protocol, kind reflection.Kind) bool {
	return spoken.Copies && (kind.ByPods() || spoken.Objects)
}

// linkTo returns the link to the peer and what is spoken over it, or nil if there is none or no twins are made for us there. What is
// there of copies goes with the twins.
func (c *copier) linkTo(ctx context.Context, name string) (*peers.Link, v1alpha1.Protocol, error) {
	link, open := c.Links.Get(name)
	if !open {
		return nil, v1alpha1.Protocol{}, nil
	}
	peer, err := local.Find(ctx, c.Client, client.ObjectKey{Name: name}, &v1alpha1.Peer{}, client.UnsafeDisableDeepCopy)
	if err != nil || peer == nil {
		return nil, v1alpha1.Protocol{}, err
	}
	if !peer.HasRole(v1alpha1.RoleProvider) || !peer.Protocol().Copies || !peer.DeletionTimestamp.IsZero() {
		return nil, v1alpha1.Protocol{}, nil
	}
	return link, peer.Protocol(), nil
}

// leave ends what is followed of the twin of the place at the peer, unless tokens are there.
func (c *copier) leave(ctx context.Context, req request) {
	if link, open := c.Links.Get(req.Peer); open && !c.keepsTokens(ctx, link, req) {
		link.Unfollow(c.copies[req.Kind], req.Namespace)
	}
}

// linkChanged follows our mappings over a new link. What they tell asks for what there is to do. Where there is none any more,
// Ingresses are looked at that still say where they are reached at the peer.
func (c *copier) linkChanged(ctx context.Context, peer string, queue peers.Queue[request]) {
	link, _, err := c.linkTo(ctx, peer)
	switch {
	case err != nil:
		ctrl.LoggerFrom(ctx).Error(err, "Cannot read Peer from the cache", "Peer", peer)
	case link != nil:
		link.Mappings()
	case c.Network:
		for _, req := range c.addressedAt(ctx, peer) {
			queue.Add(req)
		}
	}
}

// mappingChanged has the namespace looked at whose twin may have come, gone, or got another name. When the mappings of a new
// link are known, that is done for all namespaces, and their twins are followed until it is known that there are no copies
// that nobody needs any more. Namespaces that no pods leave from are passed over: we have not asked for twins of them.
func (c *copier) mappingChanged(ctx context.Context, change peers.Change, queue peers.Queue[request]) {
	peer := change.Link.Peer()
	link, spoken, err := c.linkTo(ctx, peer)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot read Peer from the cache", "Peer", peer)
	}
	for _, namespace := range c.namespacesOf(ctx, change) {
		for _, kind := range c.kinds() {
			if change.Name == "" && link == change.Link && takes(spoken, kind) {
				link.FollowTwin(c.copies[kind], namespace)
			}
			queue.Add(request{Peer: peer, place: place{Namespace: namespace, Kind: kind}})
		}
	}
}

// namespacesOf returns our namespaces that the change of a mapping is about: all if the mappings are known now, with those of which
// there is something at a peer without Hanse.
func (c *copier) namespacesOf(ctx context.Context, change peers.Change) []string {
	namespaces := &corev1.NamespaceList{}
	var found []string
	var err error
	if change.Name == "" {
		found = change.Link.Leftovers()
		err = c.Client.List(ctx, namespaces, client.UnsafeDisableDeepCopy)
	} else {
		namespaces.Items = make([]corev1.Namespace, 1)
		err = client.IgnoreNotFound(c.Client.Get(ctx, client.ObjectKey{Name: change.Name}, &namespaces.Items[0]))
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot read namespaces from the cache")
	}
	for i := range namespaces.Items {
		name := namespaces.Items[i].Name
		if namespaces.Items[i].Labels[v1alpha1.LabelOffloads] == "true" && !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	return found
}

// copyChanged returns what has the twin looked at when its objects of the kind change. Services wait for their endpoints, and Secrets
// come and go with the Ingresses that name them.
func copyChanged(kind reflection.Kind) func(context.Context, peers.Change, peers.Queue[request]) {
	return func(_ context.Context, change peers.Change, queue peers.Queue[request]) {
		req := request{Peer: change.Link.Peer(), place: place{Namespace: change.Home(), Kind: kind}}
		if also, ok := map[reflection.Kind]reflection.Kind{
			reflection.EndpointSlice: reflection.Service, reflection.Ingress: reflection.Secret,
		}[kind]; ok {
			wait := together
			if change.Name == "" { // all are seen now
				wait = 0
			}
			queue.AddAfter(request{Peer: req.Peer, place: place{Namespace: req.Namespace, Kind: also}}, wait)
		}
		if change.Name == "" {
			queue.Add(req)
			return
		}
		// Most changes there are our own. If they are not, a peer that undoes what we do must not keep us busy.
		queue.AddAfter(req, debounce)
	}
}
