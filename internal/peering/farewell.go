package peering

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// clear takes away everything that was made for the peer in this cluster, one kind of thing after the other, and
// returns what it waits for, or "" when nothing is left. It never needs the peer's help. Messages and twin namespaces
// come first: the right to end them in good order is bound in the very namespaces that hold them.
func (t *tenants) clear(ctx context.Context, peer *v1alpha1.Peer) (string, error) {
	ns := &corev1.Namespace{}
	err := t.direct.Get(ctx, client.ObjectKey{Name: v1alpha1.TenantNamespace(peer.Name)}, ns)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read namespace: %w", err)
	}
	if !owns(peer, ns) {
		return "", nil
	}
	if waiting, err := t.clearTwins(ctx, peer, ns.Name); waiting != "" || err != nil {
		return waiting, err
	}
	if ns.DeletionTimestamp.IsZero() {
		uid := ns.UID
		err := t.direct.Delete(ctx, ns, client.Preconditions{UID: &uid})
		if client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("delete namespace %s: %w", ns.Name, err)
		}
	}
	return "namespace " + ns.Name, nil
}

func (t *tenants) clearTwins(ctx context.Context, peer *v1alpha1.Peer, namespace string) (string, error) {
	mappings := &v1alpha1.NamespaceMappingList{}
	if err := t.client.List(ctx, mappings, client.InNamespace(namespace)); err != nil {
		return "", fmt.Errorf("list NamespaceMappings: %w", err)
	}
	for i := range mappings.Items {
		mapping := &mappings.Items[i]
		if !mapping.DeletionTimestamp.IsZero() {
			continue
		}
		if err := client.IgnoreNotFound(t.client.Delete(ctx, mapping)); err != nil {
			return "", fmt.Errorf("delete NamespaceMapping %s: %w", mapping.Name, err)
		}
	}
	if len(mappings.Items) > 0 {
		return "the twin namespaces of the peer", nil
	}
	twins := &corev1.NamespaceList{}
	err := t.client.List(ctx, twins, client.MatchingLabels{
		v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelPeer: peer.Name,
	})
	if err != nil {
		return "", fmt.Errorf("list twin namespaces: %w", err)
	}
	if len(twins.Items) > 0 {
		return "the twin namespaces of the peer", nil
	}
	return "", nil
}
