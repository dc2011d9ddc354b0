package namespaces

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
)

const fieldOwner = client.FieldOwner("hanse-namespaces")

// reporter tells in the status of a NamespaceOffloading how it stands at each peer.
type reporter struct {
	client  client.Client
	remotes *remotes
	clock   clock.PassiveClock
	queue   doorbell
}

// Reconcile compares what the user asks for with what the peers have answered.
func (r *reporter) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	offloading, err := find(ctx, r.client, request.NamespacedName, &v1alpha1.NamespaceOffloading{})
	if err != nil || offloading == nil || !offloading.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, err
	}
	seen, err := r.observe(ctx, offloading)
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, r.store(ctx, offloading, statusOf(seen, r.clock.Now()))
}

// observe gathers what each peer that the offloading selects has answered.
func (r *reporter) observe(ctx context.Context, offloading *v1alpha1.NamespaceOffloading) (facts, error) {
	seen := facts{offloading: offloading}
	peers := &v1alpha1.PeerList{}
	if err := r.client.List(ctx, peers, client.UnsafeDisableDeepCopy); err != nil {
		return facts{}, fmt.Errorf("list peers: %w", err)
	}
	nodes := &corev1.NodeList{}
	err := r.client.List(ctx, nodes, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return facts{}, fmt.Errorf("list virtual nodes: %w", err)
	}
	byName := make(map[string]*corev1.Node, len(nodes.Items)) // name of a virtual node → the node
	for i := range nodes.Items {
		byName[nodes.Items[i].Name] = &nodes.Items[i]
	}
	for i := range peers.Items {
		peer := &peers.Items[i]
		decision, err := decide(situation{
			offloading: offloading, peer: peer, node: byName[v1alpha1.VirtualNodeName(peer.Name)],
		})
		if err != nil {
			seen.invalid = err
			return seen, nil //nolint:nilerr // that the selector cannot be read is what there is to tell
		}
		if decision == needed {
			seen.answers = append(seen.answers, r.answer(peer.Name, offloading))
		}
	}
	return seen, nil
}

func (r *reporter) answer(peer string, offloading *v1alpha1.NamespaceOffloading) answer {
	connection, ok := r.remotes.usable(peer)
	if !ok {
		return answer{peer: peer}
	}
	mapping, exists := connection.mapping(offloading.Namespace)
	return answer{
		peer: peer, connected: true, mapping: mapping, misnamed: exists && connection.asks() && misnamed(offloading, mapping),
	}
}

// store writes our part of the status if it differs from the one that is there.
func (r *reporter) store(
	ctx context.Context, offloading *v1alpha1.NamespaceOffloading, status v1alpha1.NamespaceOffloadingStatus,
) error {
	if equality.Semantic.DeepEqual(ownPart(offloading.Status), status) {
		return nil
	}
	return client.IgnoreNotFound(local.ApplyStatus(ctx, r.client, fieldOwner, offloading, &status))
}

// onEveryNamespace makes each event a look at every offloading, gathered: a thousand peers that come at once cost a few
// looks at each.
func (r *reporter) onEveryNamespace() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		offloaded, err := offloadedNamespaces(ctx, r.client)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing offloaded namespaces", "cause", object.GetName())
			return nil
		}
		for _, namespace := range offloaded {
			r.queue.ring(offloadingIn(namespace))
		}
		return nil
	})
}
