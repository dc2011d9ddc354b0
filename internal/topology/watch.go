// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Cache returns the options of a cache that has what a Reader reads, and of it no more than that.
func Cache(namespace string) cache.Options {
	named := func(name string) cache.Config {
		return cache.Config{FieldSelector: fields.OneTermEqualSelector("metadata.name", name)}
	}
	return cache.Options{
		DefaultTransform: trim,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:     {Transform: trimPod},
			&corev1.Service{}: {Label: labels.SelectorFromSet(labels.Set{v1alpha1.LabelReflected: "true"}), Transform: trimService},
			&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{
				namespace:                            named(v1alpha1.OwnNetwork),
				v1alpha1.NetworkNamespace(namespace): named(v1alpha1.GatewayName),
			}},
		},
	}
}

// trim drops what nobody reads here.
func trim(o any) (any, error) {
	if object, ok := o.(client.Object); ok {
		object.SetManagedFields(nil)
	}
	return o, nil
}

// trimPod keeps of a pod what its network is made of.
func trimPod(o any) (any, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName, HostNetwork: pod.Spec.HostNetwork},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, PodIPs: pod.Status.PodIPs},
	}, nil
}

// trimService keeps of a copy of a Service where it is.
func trimService(o any) (any, error) {
	service, ok := o.(*corev1.Service)
	if !ok {
		return o, nil
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: service.Name, Namespace: service.Namespace, UID: service.UID, ResourceVersion: service.ResourceVersion,
			Labels: map[string]string{v1alpha1.LabelReflected: service.Labels[v1alpha1.LabelReflected]},
		},
		Spec: corev1.ServiceSpec{ClusterIPs: service.Spec.ClusterIPs},
	}, nil
}

// Watch calls changed whenever what a Reader reads has changed. It returns at once; the calls end with the cache.
func Watch(ctx context.Context, c cache.Cache, changed func()) error {
	for _, object := range []client.Object{
		&corev1.Pod{}, &corev1.Node{}, &corev1.Namespace{}, &corev1.ConfigMap{}, &corev1.Service{}, &v1alpha1.Connection{},
	} {
		informer, err := c.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { changed() },
			DeleteFunc: func(any) { changed() },
			UpdateFunc: func(before, after any) {
				if !same(before, after) {
					changed()
				}
			},
		})
		if err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
	}
	return nil
}

// same reports whether nothing changed that a Reader reads.
func same(before, after any) bool {
	switch a := after.(type) {
	case *corev1.Pod:
		b, ok := before.(*corev1.Pod)
		return ok && a.Spec.NodeName == b.Spec.NodeName && slices.Equal(addressesOf(a), addressesOf(b))
	case *corev1.Service:
		return sameService(before, a)
	case *corev1.Node:
		b, ok := before.(*corev1.Node)
		return ok && sameNode(a, b)
	case *corev1.Namespace:
		b, ok := before.(*corev1.Namespace)
		return ok && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations)
	case *v1alpha1.Connection:
		b, ok := before.(*v1alpha1.Connection)
		return ok && a.Generation == b.Generation // which deletion moves too
	default:
		return false
	}
}

func sameService(before any, a *corev1.Service) bool {
	b, ok := before.(*corev1.Service)
	return ok && slices.Equal(a.Spec.ClusterIPs, b.Spec.ClusterIPs)
}

func sameNode(a, b *corev1.Node) bool {
	return slices.Equal(a.Spec.PodCIDRs, b.Spec.PodCIDRs) && slices.Equal(a.Status.Addresses, b.Status.Addresses) &&
		a.Labels[v1alpha1.LabelType] == b.Labels[v1alpha1.LabelType]
}
