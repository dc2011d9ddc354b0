package namespaces

import (
	"context"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// specChanged lets through what changes a decision: not the status, which these and other controllers write.
var specChanged = predicate.Or(predicate.GenerationChangedPredicate{}, predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return true },
	DeleteFunc: func(event.DeleteEvent) bool { return true },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
	},
})

// virtualNodeChanged lets through virtual nodes that come, go or get other labels: not their heartbeats.
var virtualNodeChanged = predicate.And(
	predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetLabels()[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode
	}),
	predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return true },
		DeleteFunc: func(event.DeleteEvent) bool { return true },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
		},
	})

// virtualNodeOpens lets through virtual nodes that get other labels, or begin to take pods.
var virtualNodeOpens = predicate.Or(virtualNodeChanged, predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, wasNode := e.ObjectOld.(*corev1.Node)
		after, isNode := e.ObjectNew.(*corev1.Node)
		return wasNode && isNode && after.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode &&
			!takesPods(before) && takesPods(after)
	},
})

// podGone lets through deletions only: no other event of a pod makes a twin superfluous.
var podGone = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	UpdateFunc:  func(event.UpdateEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	DeleteFunc:  func(event.DeleteEvent) bool { return true },
}

// pair is a request to the mapper: a namespace and the name of a Peer.
func pair(namespace, peer string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: peer}}
}

// offloadingIn is a request to the reporter.
func offloadingIn(namespace string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{
		Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName,
	}}
}

// pairOfPod is the pod's namespace and the peer that its node stands for. A real node whose name starts like a virtual
// one's gives a pair for which there is no link, which is looked at in vain.
func pairOfPod(_ context.Context, object client.Object) []reconcile.Request {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil
	}
	peer, virtual := strings.CutPrefix(pod.Spec.NodeName, v1alpha1.VirtualNodePrefix)
	if !virtual {
		return nil
	}
	return []reconcile.Request{pair(pod.Namespace, peer)}
}

func offloadedNamespaces(ctx context.Context, reader client.Reader) ([]string, error) {
	list := &v1alpha1.NamespaceOffloadingList{}
	if err := reader.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list namespace offloadings: %w", err)
	}
	namespaces := make([]string, 0, len(list.Items))
	for i := range list.Items {
		namespaces = append(namespaces, list.Items[i].Namespace)
	}
	return namespaces, nil
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
