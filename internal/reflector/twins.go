package reflector

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// debounce is how long something that is not urgent waits, so that what comes together is looked at once.
const debounce = 200 * time.Millisecond

// copies are what is followed in twins: the metadata of the objects of each kind.
var copies = map[reflection.Kind]*peers.Subject{}

func init() { //nolint:gochecknoinits // one for each kind
	for _, kind := range reflection.Kinds() {
		example := &metav1.PartialObjectMetadata{}
		example.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(string(kind)))
		copies[kind] = &peers.Subject{Example: example}
	}
}

// A twin shows the objects of one kind in the twin of one of our namespaces.
type twin struct {
	link   *peers.Link
	mirror *peers.Mirror
}

// answers says whether the peer does, as far as the watch of the twin knows.
func (t *twin) answers() bool { return t.mirror.Err() == nil }

// objects is the metadata of the objects in the twin, by their names.
func (t *twin) objects() map[string]metav1.Object {
	found := map[string]metav1.Object{}
	for _, object := range t.mirror.List() {
		found[object.GetName()] = object
	}
	return found
}

// twinOf returns what is seen of the twin of the place at the peer, or nil if there is no twin, as far as is known. It is
// followed from now on if pods need what is in it, and otherwise only as long as there may be copies to remove.
func (c *copier) twinOf(ctx context.Context, req request, needed bool) (*twin, error) {
	link, err := c.linkTo(ctx, req.Peer)
	if link == nil || err != nil {
		return nil, err
	}
	mirror := link.Followed(copies[req.Kind], req.Namespace)
	if needed {
		mirror = link.FollowTwin(copies[req.Kind], req.Namespace)
	}
	if mirror == nil {
		return nil, nil
	}
	return &twin{link, mirror}, nil
}

// linkTo returns the link to the peer, or nil if there is none or no twins are made for us there. What is there of copies
// goes with the twins.
func (c *copier) linkTo(ctx context.Context, name string) (*peers.Link, error) {
	link, open := c.links.Get(name)
	if !open {
		return nil, nil
	}
	peer := &v1alpha1.Peer{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: name}, peer, client.UnsafeDisableDeepCopy); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if !peer.HasRole(v1alpha1.RoleProvider) || !peer.Protocol().Copies || !peer.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	return link, nil
}

// isMarked says whether the namespace has the mark that pods leave from it.
func (c *copier) isMarked(ctx context.Context, name string) (bool, error) {
	namespace := &corev1.Namespace{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: name}, namespace, client.UnsafeDisableDeepCopy); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return namespace.Labels[v1alpha1.LabelOffloads] == "true", nil
}

// followed returns the twin of the place at the peer if it is followed and seen as it is, and nil otherwise.
func (c *copier) followed(req request) *twin {
	link, open := c.links.Get(req.Peer)
	if !open {
		return nil
	}
	mirror := link.Followed(copies[req.Kind], req.Namespace)
	if mirror == nil || mirror.Namespace() != link.Twin(req.Namespace) || !mirror.HasSynced() {
		return nil
	}
	return &twin{link, mirror}
}

// leave ends what is followed of the twin of the place at the peer.
func (c *copier) leave(req request) {
	if link, open := c.links.Get(req.Peer); open {
		link.Unfollow(copies[req.Kind], req.Namespace)
	}
}

// linkChanged follows our mappings over a new link. What they tell asks for what there is to do.
func (c *copier) linkChanged(ctx context.Context, peer string, _ peers.Queue[request]) {
	link, err := c.linkTo(ctx, peer)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot read Peer from the cache", "Peer", peer)
	} else if link != nil {
		link.Mappings()
	}
}

// mappingChanged has the namespace looked at whose twin may have come, gone, or got another name. When the mappings of a new
// link are known, that is done for all namespaces that pods leave from, and their twins are followed until it is known that
// there are no copies that nobody needs any more.
func (c *copier) mappingChanged(ctx context.Context, change peers.Change, queue peers.Queue[request]) {
	namespaces, err := c.marked(ctx, change.Name)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot read namespaces from the cache")
	}
	for _, namespace := range namespaces {
		for _, kind := range reflection.Kinds() {
			if change.Name == "" {
				change.Link.FollowTwin(copies[kind], namespace)
			}
			queue.Add(request{Peer: change.Link.Peer(), place: place{Namespace: namespace, Kind: kind}})
		}
	}
}

// marked returns the namespace of that name, or all, with the mark that pods leave from there: mappings that we have not
// asked for are passed over.
func (c *copier) marked(ctx context.Context, name string) ([]string, error) {
	if name != "" {
		marked, err := c.isMarked(ctx, name)
		if !marked {
			return nil, err
		}
		return []string{name}, err
	}
	list := &corev1.NamespaceList{}
	err := c.client.List(ctx, list, client.MatchingLabels{v1alpha1.LabelOffloads: "true"}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}

// copyChanged returns what has the twin looked at when its objects of the kind change.
func copyChanged(kind reflection.Kind) func(context.Context, peers.Change, peers.Queue[request]) {
	return func(_ context.Context, change peers.Change, queue peers.Queue[request]) {
		req := request{Peer: change.Link.Peer(), place: place{Namespace: change.Home(), Kind: kind}}
		if change.Name == "" {
			queue.Add(req)
			return
		}
		// Most changes there are our own. If they are not, a peer that undoes what we do must not keep us busy.
		queue.AddAfter(req, debounce)
	}
}
