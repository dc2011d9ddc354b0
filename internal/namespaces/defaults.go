// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/local"
)

// Default is the NamespaceOffloading that Hanse keeps in each namespace that the selector matches, but for those of the
// system and its own.
type Default struct {
	Selector labels.Selector
	Spec     v1alpha1.NamespaceOffloadingSpec
}

// keep makes, changes or deletes the NamespaceOffloading that the administrator wants in the namespace, or by which pods of
// peers go on to providers of ours. What was found there may be nil. One that a user made, or made theirs by taking the
// annotation off, is not touched.
func (s *spaces) keep(ctx context.Context, namespace *corev1.Namespace, found *v1alpha1.NamespaceOffloading) error {
	if !namespace.DeletionTimestamp.IsZero() {
		return nil
	}
	wanted, err := s.wanted(ctx, namespace)
	if err != nil {
		return err
	}
	done := ""
	switch {
	case found == nil && wanted != nil:
		done, err = "Offloaded namespace", s.create(ctx, namespace.Name, wanted)
	case found == nil || !isKept(found) || !found.DeletionTimestamp.IsZero():
		return nil
	case wanted == nil: // deleted, unless somebody has changed it since we looked: it may be the user's by now
		done, err = "Ended the offloading of the namespace",
			s.Client.Delete(ctx, found, client.Preconditions{UID: &found.UID, ResourceVersion: &found.ResourceVersion})
	case !equality.Semantic.DeepEqual(found.Spec, defaulted(*wanted)):
		done, err = "Put the offloading of the namespace back", s.replace(ctx, found, wanted)
	default:
		return nil
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("keep the NamespaceOffloading of namespace %s: %w", namespace.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info(done)
	return nil
}

// wanted returns what the namespace is to be offloaded by, and nil if it is not to be.
func (s *spaces) wanted(ctx context.Context, namespace *corev1.Namespace) (*v1alpha1.NamespaceOffloadingSpec, error) {
	if namespace.Labels[v1alpha1.LabelType] == v1alpha1.TypeTwin {
		return s.onward(ctx, namespace.Labels[v1alpha1.LabelPeer])
	}
	if s.Default == nil || s.isOfTheSystem(namespace) || !s.Default.Selector.Matches(labels.Set(namespace.Labels)) {
		return nil, nil
	}
	return &s.Default.Spec, nil
}

// isOfTheSystem reports whether nobody wants the namespace's pods elsewhere, whatever a selector says: providers refuse
// those of Kubernetes, and pods that came from elsewhere are not sent on by default.
func (s *spaces) isOfTheSystem(namespace *corev1.Namespace) bool {
	_, typed := namespace.Labels[v1alpha1.LabelType]
	_, managed := namespace.Labels[v1alpha1.LabelManaged]
	return typed || managed || v1alpha1.IsSystemNamespace(namespace.Name, s.Namespace)
}

func isKept(offloading client.Object) bool {
	return offloading.GetAnnotations()[v1alpha1.AnnotationKeptOffloading] == "true"
}

func (s *spaces) create(ctx context.Context, namespace string, wanted *v1alpha1.NamespaceOffloadingSpec) error {
	err := s.Client.Create(ctx, &v1alpha1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName,
			Annotations: map[string]string{v1alpha1.AnnotationKeptOffloading: "true"},
		},
		Spec: *wanted.DeepCopy(),
	}, fieldOwner)
	if apierrors.IsAlreadyExists(err) || local.IsEnding(err) {
		return nil // the cache is behind, and wakes us when it is not
	}
	return err
}

// replace puts all of the spec back, unless somebody has changed the object since we looked: it may be the user's by now.
// Applying would leave fields that others have added.
func (s *spaces) replace(
	ctx context.Context, found *v1alpha1.NamespaceOffloading, wanted *v1alpha1.NamespaceOffloadingSpec,
) error {
	changed := found.DeepCopy()
	changed.Spec = *wanted.DeepCopy()
	return s.Client.Patch(ctx, changed, client.MergeFromWithOptions(found, client.MergeFromWithOptimisticLock{}), fieldOwner)
}

// defaulted is the spec as the API server stores it.
func defaulted(spec v1alpha1.NamespaceOffloadingSpec) v1alpha1.NamespaceOffloadingSpec {
	spec = *spec.DeepCopy()
	spec.Strategy = cmp.Or(spec.Strategy, v1alpha1.StrategyLocalAndRemote)
	spec.OnDisconnect = cmp.Or(spec.OnDisconnect, v1alpha1.DisconnectionWait)
	spec.OnChange = cmp.Or(spec.OnChange, v1alpha1.ChangeKeep)
	if spec.Twin != nil {
		spec.Twin.Naming = cmp.Or(spec.Twin.Naming, v1alpha1.TwinGenerated)
	}
	return spec
}

// onward returns how the twins of a consumer are offloaded in their turn: to those clusters that our offer to that
// consumer says are behind us, home first. So the policies about offers decide about pods that are sent on, too.
func (s *spaces) onward(ctx context.Context, consumer string) (*v1alpha1.NamespaceOffloadingSpec, error) {
	if !s.Aggregate {
		return nil, nil
	}
	key := types.NamespacedName{Namespace: v1alpha1.TenantNamespace(consumer), Name: s.ClusterID}
	ad, err := local.Find(ctx, s.Client, key, &v1alpha1.Advertisement{})
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
func (s *spaces) twinsOf(ctx context.Context, ad client.Object) []reconcile.Request {
	consumer, inTenant := strings.CutPrefix(ad.GetNamespace(), v1alpha1.TenantNamespacePrefix)
	if !s.Aggregate || !inTenant || ad.GetName() != s.ClusterID {
		return nil
	}
	twins := &corev1.NamespaceList{}
	err := s.Client.List(ctx, twins, client.UnsafeDisableDeepCopy,
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

// hopsChanged lets through advertisements that name others behind their sender than before.
var hopsChanged = changed(func(before, after *v1alpha1.Advertisement) bool {
	return !slices.Equal(exchange.NextHops(&before.Spec), exchange.NextHops(&after.Spec))
})
