package namespaces

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// marker keeps the mark on the namespaces that pods leave from. By it the policies of the chart know where Hanse's own
// service accounts may change pods. A request names a namespace.
//
// It believes the cache: a mark that goes too early costs `hanse kubelet` a retry, and the event that the cache lacked
// brings it back.
type marker struct{ client client.Client }

// Reconcile puts the mark on, or takes it off.
func (m *marker) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	namespace, err := find(ctx, m.client, request.NamespacedName, &corev1.Namespace{})
	if err != nil || namespace == nil {
		return reconcile.Result{}, err
	}
	wanted, err := m.wanted(ctx, namespace.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if current, marked := namespace.Labels[v1alpha1.LabelOffloads]; marked == wanted && (!marked || current == "true") {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, m.write(ctx, namespace, wanted)
}

// wanted reports whether pods leave from the namespace, or have left.
func (m *marker) wanted(ctx context.Context, namespace string) (bool, error) {
	offloading, err := find(ctx, m.client, offloadingIn(namespace).NamespacedName, &v1alpha1.NamespaceOffloading{})
	if err != nil || offloading != nil {
		return offloading != nil, err
	}
	pods := &corev1.PodList{}
	if err := m.client.List(ctx, pods, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list pods of namespace %s: %w", namespace, err)
	}
	for i := range pods.Items {
		if away, err := m.isAway(ctx, &pods.Items[i]); away || err != nil {
			return away, err
		}
	}
	return false, nil
}

// isAway reports whether the pod is on a virtual node. One that is gone may have been real, but then it has no pods.
func (m *marker) isAway(ctx context.Context, pod *corev1.Pod) (bool, error) {
	if !maybeAway(pod) {
		return false, nil
	}
	node, err := find(ctx, m.client, types.NamespacedName{Name: pod.Spec.NodeName}, &corev1.Node{})
	if err != nil {
		return false, err
	}
	return node == nil || node.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode, nil
}

// write changes the mark and nothing else: that is all that Hanse may do with namespaces of others.
func (m *marker) write(ctx context.Context, namespace *corev1.Namespace, wanted bool) error {
	labels := map[string]any{v1alpha1.LabelOffloads: nil}
	if wanted {
		labels[v1alpha1.LabelOffloads] = "true"
	}
	// With its UID a namespace that was deleted meanwhile is not mistaken for its successor.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": namespace.UID, "labels": labels}})
	if err != nil {
		return fmt.Errorf("encode the mark: %w", err)
	}
	err = m.client.Patch(ctx, namespace.DeepCopy(), client.RawPatch(types.MergePatchType, patch), fieldOwner)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("mark namespace %s: %w", namespace.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Marked namespace", "offloads", wanted)
	return nil
}

// maybeAway reports whether the pod may be on a virtual node, by the name of the node.
func maybeAway(object client.Object) bool {
	pod, ok := object.(*corev1.Pod)
	return ok && strings.HasPrefix(pod.Spec.NodeName, v1alpha1.VirtualNodePrefix)
}

// leavesOrEnds lets through pods that come to a virtual node, and those that go.
var leavesOrEnds = predicate.And(predicate.NewPredicateFuncs(maybeAway), predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool { return !maybeAway(e.ObjectOld) },
})

// comesOrGoes lets through what makes an object exist or not.
var comesOrGoes = predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}

// markMoved lets through new namespaces, and those whose mark changes.
var markMoved = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetLabels()[v1alpha1.LabelOffloads] != e.ObjectNew.GetLabels()[v1alpha1.LabelOffloads]
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// namespaceOf is a request to the marker.
func namespaceOf(_ context.Context, object client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: object.GetNamespace()}}}
}
