// SPDX-License-Identifier: Apache-2.0

package market

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/offload"
)

// maxImages is how many images of a component are looked for in offers.
const maxImages = 16

// A workload makes pods by a template.
type workload struct {
	replicas int32
	template *corev1.PodTemplateSpec
}

// isDerived reports whether the component is as large as its workloads ask for.
func isDerived(c *v1alpha1.ApplicationComponent) bool { return c.Replicas == 0 }

// fill works out how large components are that do not say so. It notes if one has no workload.
func (a *applications) fill(ctx context.Context, seen *scene) error {
	var all []workload
	for i := range seen.app.Spec.Components {
		if !isDerived(&seen.app.Spec.Components[i]) {
			continue
		}
		if all == nil {
			var err error
			if all, err = a.workloadsIn(ctx, seen.app.Namespace); err != nil {
				return err
			}
			seen.app = seen.app.DeepCopy()
		}
		if c := &seen.app.Spec.Components[i]; !derive(c, all) && seen.missing == "" {
			seen.missing = fmt.Sprintf("No Deployment or StatefulSet of the namespace makes pods with the labels of component %s: create it, "+
				"or set the replicas of the component", c.Name)
		}
	}
	return nil
}

// setUpWorkloads keeps the metadata of workloads in all namespaces. The manager's own cache has Deployments as a whole, and those of Hanse
// alone.
func (a *applications) setUpWorkloads(mgr ctrl.Manager) (err error) {
	a.metadata, err = cache.New(mgr.GetConfig(), cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(), DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return fmt.Errorf("make a cache of the metadata of workloads: %w", err)
	}
	return mgr.Add(a.metadata)
}

// changesOf has Applications that are as large as their workloads looked at when one of those is made, changed or deleted.
func (a *applications) changesOf(kind string) source.Source {
	return source.Kind(a.metadata, metadataOf(kind), handler.TypedEnqueueRequestsFromMapFunc(a.derived),
		predicate.TypedGenerationChangedPredicate[*metav1.PartialObjectMetadata]{})
}

func metadataOf(kind string) *metav1.PartialObjectMetadata {
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(kind))
	return metadata
}

// derived are the Applications in the namespace that are as large as its workloads.
func (a *applications) derived(ctx context.Context, workload *metav1.PartialObjectMetadata) []reconcile.Request {
	return a.those(ctx, func(app *v1alpha1.Application) bool {
		return app.Namespace == workload.Namespace && slices.ContainsFunc(app.Spec.Components, func(c v1alpha1.ApplicationComponent) bool {
			return isDerived(&c)
		})
	})
}

// workloads are what makes pods in a namespace, and of which versions they were read.
type workloads struct {
	versions string
	all      []workload
}

// workloadsIn returns what makes pods in the namespace. Templates are large and seldom needed, so that no cache keeps them: they are read
// when the metadata of one has changed.
func (a *applications) workloadsIn(ctx context.Context, namespace string) ([]workload, error) {
	versions, err := a.versionsIn(ctx, namespace)
	if err != nil {
		return nil, err
	}
	known, _ := a.workloads.Load(namespace)
	if seen, ok := known.(workloads); ok && seen.versions == versions {
		return seen.all, nil
	}
	all, err := a.readWorkloads(ctx, namespace)
	if err == nil {
		a.workloads.Store(namespace, workloads{versions, all})
	}
	return all, err
}

// versionsIn says which workloads there are in which version, by the cache.
func (a *applications) versionsIn(ctx context.Context, namespace string) (string, error) {
	var reader client.Reader = a.Client
	if a.metadata != nil {
		reader = a.metadata
	}
	var versions []string
	for _, kind := range []string{"DeploymentList", "StatefulSetList"} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(kind))
		if err := reader.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return "", fmt.Errorf("list metadata of %s: %w", kind, err)
		}
		for i := range list.Items {
			versions = append(versions, fmt.Sprintf("%s/%d", list.Items[i].UID, list.Items[i].Generation))
		}
	}
	slices.Sort(versions)
	return strings.Join(versions, " "), nil
}

func (a *applications) readWorkloads(ctx context.Context, namespace string) ([]workload, error) {
	deployments, sets := &appsv1.DeploymentList{}, &appsv1.StatefulSetList{}
	for _, list := range []client.ObjectList{deployments, sets} {
		if err := a.Live.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	found := []workload{}
	for i := range deployments.Items {
		spec := &deployments.Items[i].Spec
		found = append(found, workload{ptr.Deref(spec.Replicas, 1), &spec.Template})
	}
	for i := range sets.Items {
		spec := &sets.Items[i].Spec
		found = append(found, workload{ptr.Deref(spec.Replicas, 1), &spec.Template})
	}
	return found, nil
}

// derive sets what the component does not say: replicas are all those of its workloads, at least one, and resources the most that any
// of their pods asks for. It reports false if it has no workload.
func derive(c *v1alpha1.ApplicationComponent, all []workload) bool {
	var replicas int32
	var resources corev1.ResourceList
	var images []string
	found := false
	for _, w := range all {
		pod := &corev1.Pod{ObjectMeta: w.template.ObjectMeta, Spec: w.template.Spec}
		if !offload.HasLabels(pod, c.PodLabels) {
			continue
		}
		found = true
		replicas += w.replicas
		resources = quota.Max(resources, exchange.Count(pod))
		for i := range pod.Spec.Containers {
			images = union(images, []string{pod.Spec.Containers[i].Image})
		}
	}
	c.Replicas = max(replicas, 1)
	if delete(resources, corev1.ResourcePods); len(c.Resources) == 0 {
		c.Resources = resources
	}
	if len(c.Images) == 0 {
		c.Images = images[:min(len(images), maxImages)]
	}
	return found
}
