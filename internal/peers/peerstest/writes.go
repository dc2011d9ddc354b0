package peerstest

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// mirrored shows each write to the mirrors before it returns.
func (p *Peer) mirrored() interceptor.Funcs {
	shown := func(object client.Object, err error) error {
		if err == nil {
			p.written(object)
		}
		return err
	}
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return shown(o, c.Create(ctx, o, opts...))
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return shown(o, c.Update(ctx, o, opts...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return shown(o, c.Patch(ctx, o, patch, opts...))
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return shown(o, c.Delete(ctx, o, opts...))
		},
		DeleteAllOf: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteAllOfOption) error {
			return p.refilled(c.DeleteAllOf(ctx, o, opts...))
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return p.refilled(c.Apply(ctx, o, opts...))
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return shown(o, c.SubResource(sub).Update(ctx, o, opts...))
		},
		SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
		) error {
			return shown(o, c.SubResource(sub).Patch(ctx, o, patch, opts...))
		},
		SubResourceApply: func(
			ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
		) error {
			return p.refilled(c.SubResource(sub).Apply(ctx, o, opts...))
		},
	}
}
