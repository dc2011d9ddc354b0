// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// settled is how long API servers take at most to learn of a policy's binding.
const settled = 5 * time.Second

// A Guard is what an API server looks at for each request, by the name of its binding.
type Guard string

// NoGuard stands for none that is missing.
const NoGuard Guard = ""

// bindings are the kinds of objects that put a policy in force.
var bindings = []schema.GroupVersionKind{
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingAdmissionPolicyBinding"},
}

// Without does something while a guard is missing in the cluster.
func (c *Cluster) Without(ctx context.Context, guard Guard, do func(context.Context) error) error {
	if guard == NoGuard {
		return do(ctx)
	}
	taken, err := c.take(ctx, guard)
	if err != nil {
		return fmt.Errorf("take %s of %s: %w", guard, c.Name, err)
	}
	return errors.Join(do(ctx), c.giveBack(ctx, taken))
}

// take deletes the binding of a guard, and waits until the API server knows.
func (c *Cluster) take(ctx context.Context, guard Guard) (*unstructured.Unstructured, error) {
	for _, kind := range bindings {
		binding := &unstructured.Unstructured{}
		binding.SetGroupVersionKind(kind)
		err := c.Get(ctx, client.ObjectKey{Name: string(guard)}, binding)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err == nil {
			err = c.Delete(ctx, binding)
		}
		if err != nil {
			return nil, err
		}
		return binding, settle(ctx)
	}
	return nil, errors.New("there is none")
}

// giveBack makes a binding again.
func (c *Cluster) giveBack(ctx context.Context, binding *unstructured.Unstructured) error {
	again := &unstructured.Unstructured{Object: map[string]any{"spec": binding.Object["spec"]}}
	again.SetGroupVersionKind(binding.GroupVersionKind())
	again.SetName(binding.GetName())
	again.SetLabels(binding.GetLabels())
	if err := c.Create(ctx, again); err != nil {
		return fmt.Errorf("give %s of %s back: %w", again.GetName(), c.Name, err)
	}
	return settle(ctx)
}

func settle(ctx context.Context) error {
	select {
	case <-clock.RealClock{}.After(settled):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
