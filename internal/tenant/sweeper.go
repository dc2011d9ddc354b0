package tenant

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// sweeper removes twin namespaces that nobody asks for any more: their Peer is gone, or their NamespaceMapping went
// without its finalizer.
type sweeper struct {
	client client.Client
	live   client.Reader
}

// Reconcile looks at one twin namespace.
func (s *sweeper) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ns := &corev1.Namespace{}
	if err := s.client.Get(ctx, request.NamespacedName, ns); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	twin, ok := twinIn(ns)
	if !ok || !ns.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	needed, err := s.needed(ctx, twin)
	if err != nil || needed {
		return reconcile.Result{}, err
	}
	if err := hurry(ctx, s.client, ns.Name, partingGrace); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, deleteNamespace(ctx, s.client, ns)
}

// needed asks the API server itself, because a cache that is not there yet would cost running pods. A Peer that is being
// deleted still needs its twins: its parting takes the NamespaceMappings away when it is time.
func (s *sweeper) needed(ctx context.Context, twin twinOf) (bool, error) {
	peer := &v1alpha1.Peer{}
	err := s.live.Get(ctx, client.ObjectKey{Name: twin.peer}, peer)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read Peer %s: %w", twin.peer, err)
	}
	if !peer.HasRole(v1alpha1.RoleConsumer) || peer.Spec.ClusterID != twin.clusterID {
		return false, nil
	}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(twin.peer), Name: twin.home}
	mapping := &v1alpha1.NamespaceMapping{}
	err = s.live.Get(ctx, key, mapping)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read NamespaceMapping %s: %w", key, err)
	}
	// It may be another one of that name, which asks for another twin.
	return twinFor(twin.peer, twin.clusterID, mapping).name() == twin.name(), nil
}
