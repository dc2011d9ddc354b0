// SPDX-License-Identifier: Apache-2.0

package peerstest

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// mirrored has ask decide on each request, and shows each write to the mirrors before it returns.
func (p *Peer) mirrored(ask func(Request) error) interceptor.Funcs {
	write := func(verb string, object client.Object, do func() error) error {
		err := ask(p.requestFor(verb, object))
		if err == nil {
			err = do()
		}
		if err == nil {
			p.written(object)
		}
		return err
	}
	writeMany := func(request Request, do func() error) error {
		if err := ask(request); err != nil {
			return err
		}
		return p.refilled(do())
	}
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := ask(Request{Verb: "get", Kind: p.kindOf(o), Name: key.Name}); err != nil {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := ask(Request{Verb: "list", Kind: p.kindOf(list)}); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write("create", o, func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return write("update", o, func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return write("patch", o, func() error { return c.Patch(ctx, o, patch, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write("delete", o, func() error { return c.Delete(ctx, o, opts...) })
		},
		DeleteAllOf: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteAllOfOption) error {
			return writeMany(Request{Verb: "deletecollection", Kind: p.kindOf(o)}, func() error { return c.DeleteAllOf(ctx, o, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return writeMany(Request{Verb: "apply"}, func() error { return c.Apply(ctx, o, opts...) })
		},
		SubResourceCreate: func(
			ctx context.Context, c client.Client, sub string, o, body client.Object, opts ...client.SubResourceCreateOption,
		) error {
			if err := ask(p.requestFor("create/"+sub, o)); err != nil {
				return err
			}
			return p.issue(body, func() error { return c.SubResource(sub).Create(ctx, o, body, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return write("update/"+sub, o, func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
		SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
		) error {
			return write("patch/"+sub, o, func() error { return c.SubResource(sub).Patch(ctx, o, patch, opts...) })
		},
		SubResourceApply: func(
			ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
		) error {
			return writeMany(Request{Verb: "apply/" + sub}, func() error { return c.SubResource(sub).Apply(ctx, o, opts...) })
		},
	}
}
