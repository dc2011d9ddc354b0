// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
)

// spaces keeps what Hanse itself has in a namespace: the label hanse.dev/offloads, and the NamespaceOffloading that the
// administrator wants there. A request names a namespace.
type spaces struct{ Config }

// Reconcile looks at one namespace.
func (s *spaces) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	namespace, err := local.Find(ctx, s.Client, request.NamespacedName, &corev1.Namespace{})
	if err != nil || namespace == nil {
		return reconcile.Result{}, err
	}
	offloading, err := local.Find(ctx, s.Client, offloadingIn(namespace.Name).NamespacedName, &v1alpha1.NamespaceOffloading{})
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, errors.Join(s.label(ctx, namespace, offloading), s.keep(ctx, namespace, offloading))
}

// label puts the label hanse.dev/offloads on a namespace that pods leave from, and takes it off. By it the policies of the
// chart know where Hanse's own service accounts may change pods.
//
// The cache is believed: a label that goes too early costs `hanse kubelet` a retry, and the event that the cache lacked
// brings it back.
func (s *spaces) label(ctx context.Context, namespace *corev1.Namespace, offloading *v1alpha1.NamespaceOffloading) error {
	wanted, err := s.leave(ctx, namespace.Name, offloading)
	if err != nil {
		return err
	}
	if current, labelled := namespace.Labels[v1alpha1.LabelOffloads]; labelled == wanted && (!labelled || current == "true") {
		return nil
	}
	return s.writeLabel(ctx, namespace, wanted)
}

// leave reports whether pods leave from the namespace, or have left, or wait until the manager takes our gate off them.
func (s *spaces) leave(ctx context.Context, namespace string, offloading *v1alpha1.NamespaceOffloading) (bool, error) {
	if offloading != nil {
		return true, nil
	}
	pods := &corev1.PodList{}
	if err := s.Client.List(ctx, pods, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list pods of namespace %s: %w", namespace, err)
	}
	for i := range pods.Items {
		if offload.Gated(&pods.Items[i]) {
			return true, nil
		}
		if !maybeAway(&pods.Items[i]) {
			continue
		}
		// A node that is gone may have been a real one, but then it has no pods.
		node, err := local.Find(ctx, s.Client, types.NamespacedName{Name: pods.Items[i].Spec.NodeName}, &corev1.Node{})
		if err != nil || node == nil || node.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode {
			return true, err
		}
	}
	return false, nil
}

// writeLabel changes the label and nothing else: that is all that Hanse may do with namespaces of others.
func (s *spaces) writeLabel(ctx context.Context, namespace *corev1.Namespace, wanted bool) error {
	changed := namespace.DeepCopy()
	delete(changed.Labels, v1alpha1.LabelOffloads)
	if wanted {
		metav1.SetMetaDataLabel(&changed.ObjectMeta, v1alpha1.LabelOffloads, "true")
	}
	if err := client.IgnoreNotFound(s.Client.Patch(ctx, changed, client.MergeFrom(namespace), fieldOwner)); err != nil {
		return fmt.Errorf("label namespace %s: %w", namespace.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Labelled namespace", "offloads", wanted)
	return nil
}
