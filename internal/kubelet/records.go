package kubelet

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// records are what peers keep of our pods. They are followed in the twins of those namespaces that have pods at the peer,
// or had some until a moment ago.
var records = &peers.Subject{Example: &v1alpha1.ShadowPod{}, Trim: trimRecord}

// unfollowAfter is for how long nothing must happen in a twin without pods until it is not followed any more. To follow a
// twin again takes two requests, which a namespace whose pods come and go should not cost each time.
const unfollowAfter = 5 * time.Minute

// view is what is known of one pod at its peer.
type view struct {
	// answers says that the peer does, as far as the mirror of our mappings knows.
	answers bool
	// cut says that the peer has not answered for so long that nobody knows how its pods are.
	cut            bool
	mappingsSynced bool
	mapping        *v1alpha1.NamespaceMapping // nil if the peer has no twin of the namespace
	twin           string
	shadowsSynced  bool
	shadow         *v1alpha1.ShadowPod
}

// synced says whether the view is of all that the peer has.
func (v *view) synced() bool { return v.mappingsSynced && (v.twin == "" || v.shadowsSynced) }

// look returns what is known of the pod at the peer. What it returns must not be changed. Whoever finds that the peer does
// not answer is called again when it does. Until then nobody asks the peer: requests to a peer that is down would keep the
// workers from the pods of others.
func look(link *peers.Link, namespace, name string) view {
	mappings := link.Mappings()
	seen := view{
		answers: mappings.Err() == nil, cut: link.State() == peers.Cut,
		mappingsSynced: mappings.HasSynced(), mapping: link.Mapping(namespace), twin: link.Twin(namespace),
	}
	followed := link.Followed(records, namespace)
	if followed == nil || followed.Namespace() != seen.twin {
		return seen
	}
	seen.shadowsSynced = followed.HasSynced()
	if object, ok := followed.Named(name); ok {
		seen.shadow, _ = object.(*v1alpha1.ShadowPod)
	}
	return seen
}

// recordsAt returns the names of the records of the home namespace, or of all, as home pods have them.
func recordsAt(link *peers.Link, namespace string) []types.NamespacedName {
	var names []types.NamespacedName
	for home, mirror := range link.FollowedTwins(records) {
		if namespace != "" && namespace != home {
			continue
		}
		for _, record := range mirror.List() {
			names = append(names, types.NamespacedName{Namespace: home, Name: record.GetName()})
		}
	}
	return names
}

// followLeftovers follows the twins of all offloaded namespaces until it is known that they are empty: home may have
// forgotten pods while this process did not run or had no link. Mappings that we have not asked for are not followed.
func followLeftovers(ctx context.Context, reader client.Reader, link *peers.Link) error {
	offloadings := &v1alpha1.NamespaceOffloadingList{}
	if err := reader.List(ctx, offloadings, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range offloadings.Items {
		link.FollowTwin(records, offloadings.Items[i].Namespace)
	}
	for _, home := range link.Leftovers() {
		link.FollowTwin(records, home)
	}
	return nil
}

// unfollowIdle ends what is followed in twins in which there has been nothing of ours for long.
func unfollowIdle(ctx context.Context, reader client.Reader, link *peers.Link) error {
	for home, mirror := range link.FollowedTwins(records) {
		if mirror.Quiet() < unfollowAfter {
			continue
		}
		if err := unfollowUnused(ctx, reader, link, home, mirror); err != nil {
			return err
		}
	}
	return nil
}

// unfollowUnused ends what is followed in the twin of the home namespace if nothing of ours is there or is to go there.
func unfollowUnused(
	ctx context.Context, reader client.Reader, link *peers.Link, home string, mirror *peers.Mirror,
) error {
	if !mirror.HasSynced() || mirror.Len() > 0 {
		return nil
	}
	pods, err := podsOn(ctx, reader, v1alpha1.VirtualNodeName(link.Peer()), home)
	if err == nil && len(pods) == 0 {
		link.Unfollow(records, home)
	}
	return err
}
