package namespaces

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// mapper sees to it that one peer has a NamespaceMapping for one namespace exactly while it is needed. A request has
// the namespace, and as its name that of the Peer.
type mapper struct {
	client  client.Client
	live    client.Reader
	remotes *remotes
	queue   doorbell
}

// Reconcile asks the peer for a twin of the namespace, or takes the request back.
func (m *mapper) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	namespace, peer := request.Namespace, request.Name
	connection, ok := m.remotes.usable(peer)
	if !ok || !connection.asks() {
		return reconcile.Result{}, nil // when there is a link, the connector asks again
	}
	seen, decision, err := m.need(ctx, m.client, namespace, peer)
	if err != nil {
		return reconcile.Result{}, err
	}
	mapping, exists := connection.mapping(namespace)
	stays := exists && mapping.DeletionTimestamp.IsZero()
	switch {
	case decision == needed && !exists:
		return reconcile.Result{}, ask(ctx, connection.remote, namespace, twinName(seen.offloading))
	case decision == needed && stays && misnamed(seen.offloading, mapping):
		return reconcile.Result{}, m.rename(ctx, connection.remote, mapping, peer)
	case decision == notNeeded && stays:
		return reconcile.Result{}, m.release(ctx, connection.remote, mapping, peer)
	}
	return reconcile.Result{}, nil
}

// need looks at what a decision rests on, and decides.
func (m *mapper) need(ctx context.Context, reader client.Reader, namespace, peer string) (situation, need, error) {
	var seen situation
	var err error
	seen.offloading, err = find(ctx, reader, offloadingIn(namespace).NamespacedName, &v1alpha1.NamespaceOffloading{})
	if err != nil {
		return seen, unknown, err
	}
	if seen.peer, err = find(ctx, reader, types.NamespacedName{Name: peer}, &v1alpha1.Peer{}); err != nil {
		return seen, unknown, err
	}
	node := types.NamespacedName{Name: v1alpha1.VirtualNodeName(peer)}
	if seen.node, err = find(ctx, reader, node, &corev1.Node{}); err != nil {
		return seen, unknown, err
	}
	decision, err := decide(seen)
	if err != nil {
		return seen, unknown, nil //nolint:nilerr // the reporter tells the user; trying again cannot help
	}
	return seen, decision, nil
}

func ask(ctx context.Context, remote Remote, namespace, twin string) error {
	mapping := &v1alpha1.NamespaceMapping{
		ObjectMeta: metav1.ObjectMeta{Namespace: remote.TenantNamespace(), Name: namespace},
		Spec:       v1alpha1.NamespaceMappingSpec{HomeNamespace: namespace, Twin: twin},
	}
	err := remote.Client().Create(ctx, mapping)
	if apierrors.IsAlreadyExists(err) {
		return nil // the mirror is behind, and wakes us when it is not
	}
	if err != nil {
		return fmt.Errorf("create namespace mapping %s: %w", namespace, err)
	}
	ctrl.LoggerFrom(ctx).Info("Asked for a twin namespace", "HomeNamespace", namespace)
	return nil
}

// release takes the request for a twin back. That ends every pod in the twin, so nothing cached is believed.
func (m *mapper) release(ctx context.Context, remote Remote, mapping *v1alpha1.NamespaceMapping, peer string) error {
	_, decision, err := m.need(ctx, m.live, mapping.Name, peer)
	if err != nil || decision != notNeeded {
		return err
	}
	inUse, err := m.hasPods(ctx, mapping.Name, v1alpha1.VirtualNodeName(peer))
	if err != nil || inUse {
		return err // each pod that goes asks again
	}
	err = remote.Client().Delete(ctx, mapping, client.Preconditions{UID: &mapping.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete namespace mapping %s: %w", mapping.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Gave up a twin namespace", "HomeNamespace", mapping.Name)
	return nil
}

func (m *mapper) hasPods(ctx context.Context, namespace, node string) (bool, error) {
	pods := &corev1.PodList{}
	err := m.live.List(ctx, pods, client.InNamespace(namespace),
		client.MatchingFields{"spec.nodeName": node}, client.Limit(1))
	if err != nil {
		return false, fmt.Errorf("list pods of namespace %s on node %s: %w", namespace, node, err)
	}
	return len(pods.Items) > 0, nil
}

// pairsOfNamespace are the namespace and each peer that there is a link to.
func (m *mapper) pairsOfNamespace(_ context.Context, offloading client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, peer := range m.remotes.peers() {
		requests = append(requests, pair(offloading.GetNamespace(), peer))
	}
	return requests
}

// pairsOfNode is pairsOfPeer for a virtual node.
func (m *mapper) pairsOfNode(ctx context.Context, node client.Object) []reconcile.Request {
	return m.pairsOfPeer(ctx, &v1alpha1.Peer{ObjectMeta: named(node.GetLabels()[v1alpha1.LabelPeer])})
}

// pairsOfPeer are the peer and each namespace that is offloaded here or that it has a mapping of.
func (m *mapper) pairsOfPeer(ctx context.Context, peer client.Object) []reconcile.Request {
	connection, ok := m.remotes.get(peer.GetName())
	if !ok {
		return nil
	}
	offloaded, err := offloadedNamespaces(ctx, m.client)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing offloaded namespaces", "Peer", peer.GetName())
	}
	seen := map[string]bool{}
	var requests []reconcile.Request
	add := func(namespace string) {
		if !seen[namespace] {
			seen[namespace] = true
			requests = append(requests, pair(namespace, peer.GetName()))
		}
	}
	for _, namespace := range offloaded {
		add(namespace)
	}
	for _, mapping := range connection.mirror.List() {
		add(mapping.GetName())
	}
	return requests
}

// find reads an object into the given one and returns it, or nil if there is none.
func find[T client.Object](ctx context.Context, reader client.Reader, key types.NamespacedName, into T) (T, error) {
	var none T
	err := reader.Get(ctx, key, into)
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("read %T %s: %w", into, key, err)
	}
	return into, nil
}
