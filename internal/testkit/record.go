// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// recording returns a client whose writes are recorded and may be refused.
func (c *Cluster) recording() client.WithWatch {
	return interceptor.NewClient(c.Server, interceptor.Funcs{
		Get: func(ctx context.Context, s client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			read := Read{Kind: kindOf(o), Namespace: key.Namespace, Name: key.Name}
			return c.read(read, func() error { return s.Get(ctx, key, o, opts...) })
		},
		List: func(ctx context.Context, s client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			options := client.ListOptions{}
			options.ApplyOptions(opts)
			read := Read{Kind: kindOf(list), Namespace: options.Namespace}
			return c.read(read, func() error { return s.List(ctx, list, opts...) })
		},
		Create: func(ctx context.Context, s client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if c.tellTime(o) {
				return nil
			}
			return c.write(writeOf("create", o), func() error {
				c.birth(o)
				return s.Create(ctx, o, opts...)
			})
		},
		Update: func(ctx context.Context, s client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return c.write(writeOf("update", o), func() error { return s.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, s client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return c.write(writeOf("patch", o), func() error { return s.Patch(ctx, o, p, opts...) })
		},
		Apply: func(ctx context.Context, s client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return c.write(appliedOf("apply", o), func() error { return s.Apply(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, s client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			write := writeOf("delete", o)
			write.Delete.ApplyOptions(opts)
			return c.write(write, func() error { return s.Delete(ctx, o, opts...) })
		},
		SubResourceCreate: func(
			ctx context.Context, s client.Client, sub string, o, body client.Object, opts ...client.SubResourceCreateOption,
		) error {
			asked := (&client.SubResourceCreateOptions{}).ApplyOptions(opts)
			if len(asked.DryRun) > 0 { // the fake API server would do it
				return c.write(writeOf("dry-run/"+sub, o), func() error { return nil })
			}
			return c.write(writeOf("create/"+sub, o), func() error { return s.SubResource(sub).Create(ctx, o, body, opts...) })
		},
		SubResourceUpdate: func(
			ctx context.Context, s client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption,
		) error {
			return c.write(writeOf("update/"+sub, o), func() error { return s.SubResource(sub).Update(ctx, o, opts...) })
		},
		SubResourcePatch: func(
			ctx context.Context, s client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
		) error {
			return c.write(writeOf("patch/"+sub, o), func() error { return patchSubresource(ctx, s, sub, o, p, opts...) })
		},
		SubResourceApply: func(
			ctx context.Context, s client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
		) error {
			return c.write(appliedOf("apply/"+sub, o), func() error { return s.SubResource(sub).Apply(ctx, o, opts...) })
		},
	})
}

// patchSubresource patches the whole object where the fake API server does not know the subresource, such as resize.
//
//nolint:revive // the arguments are those of interceptor.Funcs
func patchSubresource(
	ctx context.Context, s client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
) error {
	if sub == "status" {
		return s.Status().Patch(ctx, o, p, opts...)
	}
	return s.Patch(ctx, o, p)
}

func writeOf(verb string, o client.Object) Write {
	return Write{Verb: verb, Kind: kindOf(o), Namespace: o.GetNamespace(), Name: o.GetName(), Object: o}
}

func appliedOf(verb string, o runtime.ApplyConfiguration) Write {
	data, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return Write{Verb: verb}
	}
	object := &unstructured.Unstructured{Object: data}
	return Write{Verb: verb, Kind: object.GetKind(), Namespace: object.GetNamespace(), Name: object.GetName()}
}

func items(t testing.TB, list client.ObjectList) []client.Object {
	t.Helper()
	var objects []client.Object
	err := meta.EachListItem(list, func(item runtime.Object) error {
		objects = append(objects, item.(client.Object)) //nolint:forcetypeassert // lists are of objects
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return objects
}
