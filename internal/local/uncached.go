// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Uncached returns a client that writes as c does and reads objects as the API server has them now. It is for what Hanse
// may read by name only, so that nothing can watch it.
func Uncached(c client.Client, live client.Reader) client.Client {
	return uncached{Client: c, live: live}
}

type uncached struct {
	client.Client
	live client.Reader
}

// Get implements client.Reader.
func (u uncached) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	return u.live.Get(ctx, key, object, opts...)
}

// List implements client.Reader.
func (u uncached) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return u.live.List(ctx, list, opts...)
}
