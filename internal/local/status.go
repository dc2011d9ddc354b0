// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// ApplySpec makes the given spec, a pointer to a struct, and the object's labels all that the owner has of the object, and makes
// the object if there is none.
func ApplySpec(ctx context.Context, c client.Client, owner client.FieldOwner, object client.Object, spec any) error {
	patch, err := patchOf(c, object, "spec", spec)
	if err != nil {
		return err
	}
	patch.SetLabels(object.GetLabels())
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(patch), owner, client.ForceOwnership); err != nil {
		return fmt.Errorf("write %s %s: %w", patch.GetKind(), client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// ApplyStatus makes the given status, a pointer to a struct, all that the owner has of the object's status. The object
// must carry its UID, so that one that was deleted meanwhile is not mistaken for its successor: the error is then Conflict.
func ApplyStatus(ctx context.Context, c client.Client, owner client.FieldOwner, object client.Object, status any) error {
	patch, err := patchOf(c, object, "status", status)
	if err != nil {
		return err
	}
	patch.SetUID(object.GetUID())
	err = c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(patch), owner, client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("write the status of %s %s: %w", patch.GetKind(), object.GetName(), err)
	}
	return nil
}

// patchOf returns the object with nothing but its name and one part of it.
func patchOf(c client.Client, object client.Object, part string, content any) (*unstructured.Unstructured, error) {
	kind, err := apiutil.GVKForObject(object, c.Scheme())
	if err != nil {
		return nil, fmt.Errorf("find the kind of %T: %w", object, err)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(content)
	if err != nil {
		return nil, fmt.Errorf("convert the %s of %s %s: %w", part, kind.Kind, object.GetName(), err)
	}
	patch := &unstructured.Unstructured{Object: map[string]any{part: fields}}
	patch.SetGroupVersionKind(kind)
	patch.SetNamespace(object.GetNamespace())
	patch.SetName(object.GetName())
	return patch, nil
}
