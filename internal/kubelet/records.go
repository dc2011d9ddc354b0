// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// records are what peers keep of our pods. They are followed in the twins of those namespaces that have pods at the peer,
// or had some until a moment ago.
// A trimmed record has about 3 KB. One of a pod with a hundred containers stays far below the bound.
var records = &peers.Subject{Example: &v1alpha1.ShadowPod{}, Trim: trimRecord, MostBytes: 256 << 10}

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
	twin           string                     // or the last one, while what was in it ends
	shadowsSynced  bool
	shadow         *v1alpha1.ShadowPod
}

// synced says whether the view is of all that the peer has. A twin that is being deleted may have pods that still end.
func (v *view) synced() bool {
	return v.mappingsSynced && (v.shadowsSynced || v.twin == "" && !v.twinEnds())
}

// twinEnds says whether the peer is deleting the twin.
func (v *view) twinEnds() bool { return v.mapping != nil && v.mapping.TwinEnds() }

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
	if followed == nil || seen.twin != "" && seen.twin != followed.Namespace() {
		return seen
	}
	seen.twin = followed.Namespace()
	seen.shadowsSynced = followed.HasSynced()
	if object, ok := followed.Named(name); ok {
		seen.shadow, _ = object.(*v1alpha1.ShadowPod)
	}
	return seen
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
	var errs []error
	for home, mirror := range link.FollowedTwins(records) {
		if mirror.Quiet() >= unfollowAfter {
			errs = append(errs, unfollowUnused(ctx, reader, link, home, mirror))
		}
	}
	return errors.Join(errs...)
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

// podEvents say which pods an event is about.
type podEvents struct {
	reader client.Reader
	links  *peers.Links
}

// A podQueue takes the pods that the pod controller is to look at.
type podQueue = peers.Queue[request]

// linkChanged has all pods of a peer looked at whose link was made, closed, cut off, or is back.
func (e podEvents) linkChanged(ctx context.Context, peer string, queue podQueue) {
	e.wake(ctx, peer, "", queue)
}

// mappingChanged has the pods of a namespace looked at whose twin may have come, gone or got another name.
func (e podEvents) mappingChanged(ctx context.Context, change peers.Change, queue podQueue) {
	if change.Name != "" {
		e.wake(ctx, change.Link.Peer(), change.Name, queue)
		return
	}
	if err := followLeftovers(ctx, e.reader, change.Link); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot read offloaded namespaces from the cache")
	}
}

// recordChanged has a pod looked at whose record has changed, or all of a namespace when their records are known. A record of
// no pod of ours comes last: a peer may invent as many as it likes.
func (e podEvents) recordChanged(ctx context.Context, change peers.Change, queue podQueue) {
	peer := change.Link.Peer()
	if change.Name != "" {
		record := request{Peer: peer, Namespace: change.Home(), Name: change.Name}
		if e.isOurs(ctx, record) {
			queue.Add(record)
		} else {
			queue.AddLow(record)
		}
		return
	}
	if err := unfollowUnused(ctx, e.reader, change.Link, change.Home(), change.Mirror); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot read pods from the cache")
	}
	e.wake(ctx, peer, change.Home(), queue)
}

// wake has the pods and records of that home namespace, or of all, looked at: first those pods that wait to be taken out.
func (e podEvents) wake(ctx context.Context, peer, namespace string, queue podQueue) {
	pods := e.list(ctx, client.MatchingFields{nodeNameField: v1alpha1.VirtualNodeName(peer)}, client.InNamespace(namespace))
	for i := range pods {
		if started(&pods[i]) {
			queue.AddLow(requestFor(&pods[i]))
		} else {
			queue.Add(requestFor(&pods[i]))
		}
	}
	link, linked := e.links.Get(peer)
	if !linked {
		return
	}
	for home, mirror := range link.FollowedTwins(records) {
		for _, record := range mirror.List() {
			if namespace == "" || namespace == home {
				queue.AddLow(request{Peer: peer, Namespace: home, Name: record.GetName()})
			}
		}
	}
}

// isOurs says whether home has the pod on the virtual node of the peer.
func (e podEvents) isOurs(ctx context.Context, record request) bool {
	pod := &corev1.Pod{}
	err := e.reader.Get(ctx, client.ObjectKey{Namespace: record.Namespace, Name: record.Name}, pod, client.UnsafeDisableDeepCopy)
	return err == nil && pod.Spec.NodeName == v1alpha1.VirtualNodeName(record.Peer)
}

func (e podEvents) list(ctx context.Context, options ...client.ListOption) []corev1.Pod {
	pods, err := listPods(ctx, e.reader, options...)
	if err != nil {
		// Our own cache answers, so this is a mistake in the wiring.
		ctrl.LoggerFrom(ctx).Error(err, "Cannot read pods from the cache")
	}
	return pods
}

func requestFor(pod *corev1.Pod) request {
	return request{Peer: peerOf(pod.Spec.NodeName), Namespace: pod.Namespace, Name: pod.Name}
}

func ofPod(_ context.Context, object client.Object) []request {
	pod, ok := object.(*corev1.Pod)
	if !ok || !maybeVirtual(pod.Spec.NodeName) {
		return nil
	}
	return []request{requestFor(pod)}
}

// of returns the pods on the virtual nodes of those peers that an object is about.
func (e podEvents) of(peersOf handler.MapFunc) handler.TypedMapFunc[client.Object, request] {
	return func(ctx context.Context, object client.Object) []request {
		var requests []request
		for _, peer := range peersOf(ctx, object) {
			pods := e.list(ctx, client.MatchingFields{nodeNameField: v1alpha1.VirtualNodeName(peer.Name)})
			for i := range pods {
				requests = append(requests, requestFor(&pods[i]))
			}
		}
		return requests
	}
}

func (e podEvents) ofNamespace(ctx context.Context, object client.Object) []request {
	var requests []request
	pods := e.list(ctx, client.InNamespace(object.GetNamespace()))
	for i := range pods {
		requests = append(requests, ofPod(ctx, &pods[i])...)
	}
	return requests
}
