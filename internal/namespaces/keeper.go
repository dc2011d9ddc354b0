package namespaces

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Default is the NamespaceOffloading that Hanse keeps in each namespace that the selector matches, but for those of the
// system and its own.
type Default struct {
	Selector labels.Selector
	Spec     v1alpha1.NamespaceOffloadingSpec
}

// keeper keeps the NamespaceOffloadings that the administrator wants, and those by which pods of peers go on to providers
// of ours. Those that users made, or made theirs by taking the annotation off, are not touched. A request names a namespace.
type keeper struct {
	client    client.Client
	own       string // Hanse's own namespace
	wish      *Default
	aggregate bool
	clusterID string
}

// Reconcile makes, mends or deletes the NamespaceOffloading of one namespace.
func (k *keeper) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	namespace, err := find(ctx, k.client, request.NamespacedName, &corev1.Namespace{})
	if err != nil || namespace == nil || !namespace.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, err
	}
	found, err := find(ctx, k.client, offloadingIn(namespace.Name).NamespacedName, &v1alpha1.NamespaceOffloading{})
	if err != nil {
		return reconcile.Result{}, err
	}
	wanted, err := k.wanted(ctx, namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, k.bringAbout(ctx, namespace.Name, found, wanted)
}

// bringAbout makes of the NamespaceOffloading that was found, if there is one, the one that is wanted, if there is to be one.
func (k *keeper) bringAbout(
	ctx context.Context, namespace string, found *v1alpha1.NamespaceOffloading, wanted *v1alpha1.NamespaceOffloadingSpec,
) error {
	switch {
	case found == nil && wanted != nil:
		return k.make(ctx, namespace, wanted)
	case found == nil || !isKept(found) || !found.DeletionTimestamp.IsZero():
		return nil
	case wanted == nil:
		return k.remove(ctx, found)
	case !equality.Semantic.DeepEqual(found.Spec, defaulted(*wanted)):
		return k.mend(ctx, found, wanted)
	}
	return nil
}

// wanted returns what the namespace is to be offloaded by, and nil if it is not to be.
func (k *keeper) wanted(ctx context.Context, namespace *corev1.Namespace) (*v1alpha1.NamespaceOffloadingSpec, error) {
	if namespace.Labels[v1alpha1.LabelType] == v1alpha1.TypeTwin {
		return k.onward(ctx, namespace.Labels[v1alpha1.LabelPeer])
	}
	if k.wish == nil || k.isOfTheSystem(namespace) || !k.wish.Selector.Matches(labels.Set(namespace.Labels)) {
		return nil, nil
	}
	return &k.wish.Spec, nil
}

// isOfTheSystem reports whether nobody wants the namespace's pods elsewhere, whatever a selector says: providers refuse
// those of Kubernetes, and pods that came from elsewhere are not sent on by default.
func (k *keeper) isOfTheSystem(namespace *corev1.Namespace) bool {
	_, typed := namespace.Labels[v1alpha1.LabelType]
	_, managed := namespace.Labels[v1alpha1.LabelManaged]
	name := namespace.Name
	return typed || managed || name == k.own || name == metav1.NamespaceDefault ||
		strings.HasPrefix(name, "kube-") || strings.HasPrefix(name, "hanse-")
}

func isKept(offloading client.Object) bool {
	return offloading.GetAnnotations()[v1alpha1.AnnotationKeptOffloading] == "true"
}

func (k *keeper) make(ctx context.Context, namespace string, wanted *v1alpha1.NamespaceOffloadingSpec) error {
	err := k.client.Create(ctx, &v1alpha1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName,
			Annotations: map[string]string{v1alpha1.AnnotationKeptOffloading: "true"},
		},
		Spec: *wanted.DeepCopy(),
	}, fieldOwner)
	if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil // the cache is behind, and wakes us when it is not
	}
	if err != nil {
		return fmt.Errorf("create the NamespaceOffloading of namespace %s: %w", namespace, err)
	}
	ctrl.LoggerFrom(ctx).Info("Offloaded namespace")
	return nil
}

// mend puts all of the spec back. One that has become the user's meanwhile is left alone: then the test fails. Applying
// would leave fields that others have added.
func (k *keeper) mend(
	ctx context.Context, found *v1alpha1.NamespaceOffloading, wanted *v1alpha1.NamespaceOffloadingSpec,
) error {
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/annotations/hanse.dev~1kept", "value": "true"},
		{"op": "replace", "path": "/spec", "value": wanted},
	})
	if err != nil {
		return fmt.Errorf("encode the NamespaceOffloading: %w", err)
	}
	err = k.client.Patch(ctx, found.DeepCopy(), client.RawPatch(types.JSONPatchType, patch), fieldOwner)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("put the NamespaceOffloading of namespace %s back: %w", found.Namespace, err)
	}
	ctrl.LoggerFrom(ctx).Info("Put the offloading of the namespace back")
	return nil
}

// remove deletes what is kept no longer, unless somebody has changed it since we looked: it may be the user's by now.
func (k *keeper) remove(ctx context.Context, found *v1alpha1.NamespaceOffloading) error {
	err := k.client.Delete(ctx, found, client.Preconditions{UID: &found.UID, ResourceVersion: &found.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the NamespaceOffloading of namespace %s: %w", found.Namespace, err)
	}
	ctrl.LoggerFrom(ctx).Info("Ended the offloading of the namespace")
	return nil
}

// defaulted is the spec as the API server stores it.
func defaulted(spec v1alpha1.NamespaceOffloadingSpec) v1alpha1.NamespaceOffloadingSpec {
	spec = *spec.DeepCopy()
	if spec.Strategy == "" {
		spec.Strategy = v1alpha1.StrategyLocalAndRemote
	}
	if spec.OnDisconnect == "" {
		spec.OnDisconnect = v1alpha1.DisconnectionWait
	}
	if spec.OnChange == "" {
		spec.OnChange = v1alpha1.ChangeKeep
	}
	if spec.Twin != nil && spec.Twin.Naming == "" {
		spec.Twin.Naming = v1alpha1.TwinGenerated
	}
	return spec
}

// labelsChanged lets through namespaces that come or get other labels.
var labelsChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// keepingChanged lets through what makes a NamespaceOffloading another than the one that is kept.
var keepingChanged = predicate.Or(predicate.GenerationChangedPredicate{}, predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return true },
	UpdateFunc: func(e event.UpdateEvent) bool { return isKept(e.ObjectOld) != isKept(e.ObjectNew) },
})
