package local

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// ApplyStatus makes the given status, a pointer to a struct, all that the owner has of the object's status. The object
// must carry its UID, so that one that was deleted meanwhile is not mistaken for its successor: the error is then Conflict.
func ApplyStatus(ctx context.Context, c client.Client, owner client.FieldOwner, object client.Object, status any) error {
	kind, err := apiutil.GVKForObject(object, c.Scheme())
	if err != nil {
		return fmt.Errorf("find the kind of %T: %w", object, err)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return fmt.Errorf("convert status: %w", err)
	}
	patch := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	patch.SetGroupVersionKind(kind)
	patch.SetNamespace(object.GetNamespace())
	patch.SetName(object.GetName())
	patch.SetUID(object.GetUID())
	err = c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(patch), owner, client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("write the status of %s %s: %w", kind.Kind, object.GetName(), err)
	}
	return nil
}
