// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
)

// usable returns the link to a provider if what is known of our mappings there can be believed. A provider without Hanse has
// none, so its link alone is enough.
func usable(links *peers.Links, peer string, agentless bool) (*peers.Link, bool) {
	link, ok := links.Get(peer)
	return link, ok && (agentless || link.Mappings().HasSynced())
}

// mappings sees to it that one peer has a NamespaceMapping for one namespace exactly while it is needed. A request has
// the namespace, and as its name that of the Peer.
type mappings struct {
	Config

	placements placements
}

// Reconcile asks the peer for a twin of the namespace, or takes the request back.
func (m *mappings) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	namespace, peer := request.Namespace, request.Name
	seen, err := m.observe(ctx, m.Client, namespace, peer)
	if err != nil || (seen.peer != nil && !seen.peer.Protocol().Mappings) {
		return reconcile.Result{}, err
	}
	link, ok := usable(m.Links, peer, false)
	if answers := ok && link.Err() == nil; !answers {
		return reconcile.Result{}, nil // when the link can be used again, a change of it asks for another look
	}
	err = m.act(ctx, link, namespace, seen)
	var busy *peers.BusyError
	if errors.As(err, &busy) {
		return reconcile.Result{RequeueAfter: busy.After}, nil
	}
	return reconcile.Result{}, err
}

// act asks for a twin, or takes the request for one back. Few workers take back, since a peer may invent as many as it likes.
func (m *mappings) act(ctx context.Context, link *peers.Link, namespace string, seen situation) error {
	mapping := link.Mapping(namespace)
	switch {
	case mapping == nil && seen.need() == needed:
		return ask(ctx, link, namespace, twinName(seen.offloading))
	case mapping != nil && mapping.DeletionTimestamp.IsZero() && seen.supersedes(mapping):
		end, err := link.Aside()
		if err != nil {
			return err
		}
		defer end()
		return m.takeBack(ctx, link, mapping, seen)
	}
	return nil
}

// observe looks at what a decision rests on. What is found is the cache's own: a NamespaceOffloading says something of each
// peer, and is looked at for each peer.
func (m *mappings) observe(ctx context.Context, reader client.Reader, namespace, peer string) (situation, error) {
	shared := client.UnsafeDisableDeepCopy
	offloading, err := local.Find(ctx, reader, offloadingIn(namespace).NamespacedName, &v1alpha1.NamespaceOffloading{}, shared)
	partner, peerErr := local.Find(ctx, reader, types.NamespacedName{Name: peer}, &v1alpha1.Peer{}, shared)
	node, nodeErr := local.Find(ctx, reader, types.NamespacedName{Name: v1alpha1.VirtualNodeName(peer)}, &corev1.Node{}, shared)
	seen := situation{offloading: offloading, peer: partner, node: node}
	seen.placement, seen.invalid = m.placements.of(namespace, offloading)
	return seen, errors.Join(err, peerErr, nodeErr)
}

func ask(ctx context.Context, link *peers.Link, namespace, twin string) error {
	mapping := &v1alpha1.NamespaceMapping{
		ObjectMeta: metav1.ObjectMeta{Namespace: link.TenantNamespace(), Name: namespace},
		Spec:       v1alpha1.NamespaceMappingSpec{HomeNamespace: namespace, Twin: twin},
	}
	err := link.Client().Create(ctx, mapping)
	if apierrors.IsAlreadyExists(err) {
		return nil // the mirror is behind, and wakes us when it is not
	}
	if err != nil {
		return fmt.Errorf("create namespace mapping %s: %w", namespace, err)
	}
	ctrl.LoggerFrom(ctx).Info("Asked for a twin namespace", "HomeNamespace", namespace)
	return nil
}

// takeBack takes the request for a twin back, because nothing needs the twin any more or because it is to get another name,
// which the next look then asks for. That ends every pod in the twin, so it waits for them. The cache is believed where it
// shows one, and not where it shows none.
func (m *mappings) takeBack(ctx context.Context, link *peers.Link, mapping *v1alpha1.NamespaceMapping, seen situation) error {
	node := v1alpha1.VirtualNodeName(link.Peer())
	if seen.waitsForPods(mapping) {
		shown, err := m.showsPods(ctx, mapping.Name, node)
		if err != nil || shown {
			return err // each pod that goes asks again
		}
	}
	now, err := m.observe(ctx, m.Live, mapping.Name, link.Peer())
	if err != nil || !now.supersedes(mapping) {
		return err
	}
	if kept, err := m.keepsVolumes(ctx, mapping.Name, link.Peer()); err != nil || kept {
		return err // each volume and snapshot that goes asks again
	}
	if now.waitsForPods(mapping) {
		inUse, err := m.hasPods(ctx, mapping.Name, node)
		if err != nil || inUse {
			return err // each pod that goes asks again
		}
	}
	// The peer may have made the twin since we looked, and a pod may be in it.
	err = link.Client().Delete(ctx, mapping,
		client.Preconditions{UID: &mapping.UID, ResourceVersion: &mapping.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete namespace mapping %s: %w", mapping.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Gave up a twin namespace", "HomeNamespace", mapping.Name)
	return nil
}

// showsPods reports whether the cache shows a pod of the namespace on the node.
func (m *mappings) showsPods(ctx context.Context, namespace, node string) (bool, error) {
	pods := &corev1.PodList{}
	if err := m.Client.List(ctx, pods, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list pods of namespace %s: %w", namespace, err)
	}
	return slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return pod.Spec.NodeName == node }), nil
}

func (m *mappings) hasPods(ctx context.Context, namespace, node string) (bool, error) {
	pods := &corev1.PodList{}
	err := m.Live.List(ctx, pods, client.InNamespace(namespace),
		client.MatchingFields{"spec.nodeName": node}, client.Limit(1))
	if err != nil {
		return false, fmt.Errorf("list pods of namespace %s on node %s: %w", namespace, node, err)
	}
	return len(pods.Items) > 0, nil
}

// twinName is the name that a peer is asked for: none where the peer makes one.
func twinName(offloading *v1alpha1.NamespaceOffloading) string {
	naming := ptr.Deref(offloading.Spec.Twin, v1alpha1.TwinNaming{})
	switch naming.Naming {
	case v1alpha1.TwinSameName:
		return offloading.Namespace
	case v1alpha1.TwinChosen:
		return naming.Name
	default:
		return ""
	}
}

// A need says whether a peer should have a twin of a namespace.
type need int

const (
	// notNeeded: nothing that the user or the administrator wrote asks for the twin.
	notNeeded need = iota
	// unknown: what there is stays, and nothing is asked for.
	unknown
	// needed: the twin must exist.
	needed
)

// placements keeps what cluster selectors say: to parse one takes far longer than to ask it, and each is asked about all peers.
type placements struct {
	mu          sync.Mutex
	byNamespace map[string]parsed
}

type parsed struct {
	uid       types.UID
	version   string
	placement offload.Placement
	err       error
}

// of returns the placement of the namespace.
func (p *placements) of(namespace string, offloading *v1alpha1.NamespaceOffloading) (offload.Placement, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if offloading == nil {
		delete(p.byNamespace, namespace)
		return offload.Placement{}, nil
	}
	known, found := p.byNamespace[namespace]
	if !found || known.uid != offloading.UID || known.version != offloading.ResourceVersion {
		known = parsed{uid: offloading.UID, version: offloading.ResourceVersion}
		known.placement, known.err = offload.NewPlacement(offloading)
		if p.byNamespace == nil {
			p.byNamespace = map[string]parsed{}
		}
		p.byNamespace[namespace] = known
	}
	return known.placement, known.err
}

// situation is what a decision about one namespace and one peer rests on. What does not exist is nil.
type situation struct {
	offloading *v1alpha1.NamespaceOffloading
	peer       *v1alpha1.Peer
	node       *corev1.Node // the virtual node of the peer
	placement  offload.Placement
	invalid    error // there is no placement: the cluster selector makes no sense
}

// need says whether the peer should have a twin of the namespace, pods that already run there aside.
func (s situation) need() need {
	switch {
	case s.peer != nil && !s.peer.DeletionTimestamp.IsZero():
		return unknown // the twins go with the peering, in its order
	case s.peer != nil && meta.IsStatusConditionFalse(s.peer.Status.Conditions, v1alpha1.ConditionAuthenticated):
		return unknown // the mappings there may be those of another Peer
	case s.offloading == nil, !s.offloading.DeletionTimestamp.IsZero(), s.offloading.Spec.Strategy == v1alpha1.StrategyLocal,
		s.peer == nil, !s.peer.HasRole(v1alpha1.RoleProvider):
		return notNeeded
	case s.node == nil:
		// Somebody deleted the Node, or it is not made yet. Its labels are not known, and pods may be running there.
		return unknown
	}
	switch {
	case s.invalid != nil:
		return unknown // the status of the NamespaceOffloading tells the user
	case s.placement.Selects(s.node):
		return needed
	default:
		return notNeeded
	}
}

// supersedes reports whether the mapping is to be taken back: nobody needs it, or its twin has another name than is wanted.
func (s situation) supersedes(mapping *v1alpha1.NamespaceMapping) bool {
	need := s.need()
	return need == notNeeded || need == needed && mapping.Spec.Twin != twinName(s.offloading)
}

// waitsForPods reports whether pods may run in the twin, which must go before it does.
func (s situation) waitsForPods(mapping *v1alpha1.NamespaceMapping) bool {
	return s.need() == notNeeded || mapping.Status.Twin != ""
}

// pairsOfNamespace are the namespace and each peer that there is a link to.
func (m *mappings) pairsOfNamespace(ctx context.Context, offloading client.Object) []reconcile.Request {
	list := &v1alpha1.PeerList{}
	if err := m.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing peers", "namespace", offloading.GetNamespace())
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if _, linked := m.Links.Get(list.Items[i].Name); linked {
			requests = append(requests, pair(offloading.GetNamespace(), list.Items[i].Name))
		}
	}
	return requests
}

// pairsOfPeer are those of a Peer, or of its virtual node.
func (m *mappings) pairsOfPeer(ctx context.Context, object client.Object) []reconcile.Request {
	return m.pairsOf(ctx, cmp.Or(object.GetLabels()[v1alpha1.LabelPeer], object.GetName()))
}

// pairsOf are the peer and each namespace that is offloaded here or that the peer has a mapping of.
func (m *mappings) pairsOf(ctx context.Context, name string) []reconcile.Request {
	peer, err := local.Find(ctx, m.Client, types.NamespacedName{Name: name}, &v1alpha1.Peer{})
	link, linked := m.Links.Get(name)
	if err != nil || peer == nil || !linked || !peer.Protocol().Mappings {
		return nil // nothing can be asked of it
	}
	requests, err := offloaded(ctx, m.Client)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing offloaded namespaces", "Peer", name)
	}
	namespaces := sets.New[string]()
	for _, request := range requests {
		namespaces.Insert(request.Namespace)
	}
	for _, mapping := range link.Mappings().List() {
		namespaces.Insert(mapping.GetName())
	}
	pairs := make([]reconcile.Request, 0, len(namespaces))
	for namespace := range namespaces {
		pairs = append(pairs, pair(namespace, name))
	}
	return pairs
}

func (m *mappings) mappingChanged(ctx context.Context, change peers.Change, queue peers.Queue[reconcile.Request]) {
	if change.Name == "" {
		m.linkChanged(ctx, change.Link.Peer(), queue)
		return
	}
	queue.Add(pair(change.Name, change.Link.Peer()))
}

func (m *mappings) linkChanged(ctx context.Context, peer string, queue peers.Queue[reconcile.Request]) {
	for _, request := range m.pairsOf(ctx, peer) {
		queue.Add(request)
	}
}

// snapshotGone has all twins looked at: what is left of a snapshot does not say where it was.
func (m *mappings) snapshotGone(ctx context.Context, _ event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	peers := &v1alpha1.PeerList{}
	if err := m.Client.List(ctx, peers, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing peers")
	}
	for i := range peers.Items {
		for _, request := range m.pairsOf(ctx, peers.Items[i].Name) {
			queue.Add(request)
		}
	}
}
