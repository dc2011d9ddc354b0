package namespaces

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

// onward returns how the twins of a consumer are offloaded in their turn: to those clusters that our offer to that
// consumer says are behind us, home first. So the policies about offers decide about pods that are sent on, too.
func (k *keeper) onward(ctx context.Context, consumer string) (*v1alpha1.NamespaceOffloadingSpec, error) {
	if !k.aggregate {
		return nil, nil
	}
	key := types.NamespacedName{Namespace: v1alpha1.TenantNamespace(consumer), Name: k.clusterID}
	ad, err := find(ctx, k.client, key, &v1alpha1.Advertisement{})
	if err != nil || ad == nil || len(ad.Spec.Nested) == 0 {
		return nil, err
	}
	behind := v1alpha1.ClusterSelectorRequirement{Key: v1alpha1.LabelClusterID, Operator: metav1.LabelSelectorOpIn}
	for _, id := range exchange.NextHops(&ad.Spec) {
		behind.Values = append(behind.Values, v1alpha1.LabelValue(id))
	}
	return &v1alpha1.NamespaceOffloadingSpec{
		Strategy:        v1alpha1.StrategyLocalAndRemote,
		ClusterSelector: &v1alpha1.ClusterSelector{MatchExpressions: []v1alpha1.ClusterSelectorRequirement{behind}},
	}, nil
}

// twinsOf are the twins of the consumer that the advertisement is for, if it is ours.
func (k *keeper) twinsOf(ctx context.Context, ad client.Object) []reconcile.Request {
	consumer, ours := k.consumerOf(ad)
	if !ours {
		return nil
	}
	twins := &corev1.NamespaceList{}
	err := k.client.List(ctx, twins, client.UnsafeDisableDeepCopy,
		client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelPeer: consumer})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing twin namespaces", "Peer", consumer)
		return nil
	}
	var requests []reconcile.Request
	for i := range twins.Items {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: twins.Items[i].Name}})
	}
	return requests
}

// consumerOf returns whom the advertisement is for, if it is one of ours that counts.
func (k *keeper) consumerOf(ad client.Object) (string, bool) {
	consumer, inTenant := strings.CutPrefix(ad.GetNamespace(), v1alpha1.TenantNamespacePrefix)
	return consumer, k.aggregate && inTenant && ad.GetName() == k.clusterID
}

// hopsChanged lets through advertisements that name others behind their sender than before.
var hopsChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool { return !slices.Equal(hops(e.ObjectOld), hops(e.ObjectNew)) },
}

func hops(object client.Object) []string {
	ad, isAd := object.(*v1alpha1.Advertisement)
	if !isAd {
		return nil
	}
	return exchange.NextHops(&ad.Spec)
}
