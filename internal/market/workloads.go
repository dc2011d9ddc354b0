package market

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	var workloads []workload
	for i := range seen.app.Spec.Components {
		if !isDerived(&seen.app.Spec.Components[i]) {
			continue
		}
		if workloads == nil {
			var err error
			if workloads, err = a.workloadsIn(ctx, seen.app.Namespace); err != nil {
				return err
			}
			seen.app = seen.app.DeepCopy()
		}
		if c := &seen.app.Spec.Components[i]; !derive(c, workloads) && seen.missing == "" {
			seen.missing = fmt.Sprintf("No Deployment or StatefulSet of the namespace makes pods with the labels of component %s: create it, "+
				"or set the replicas of the component", c.Name)
		}
	}
	return nil
}

// workloadsIn reads what makes pods in the namespace. Templates are large and seldom needed, so that no cache keeps them.
func (a *applications) workloadsIn(ctx context.Context, namespace string) ([]workload, error) {
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
func derive(c *v1alpha1.ApplicationComponent, workloads []workload) bool {
	var replicas int32
	var resources corev1.ResourceList
	var images []string
	found := false
	for _, w := range workloads {
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
