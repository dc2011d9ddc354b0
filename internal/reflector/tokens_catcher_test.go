// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tokenCatcher notes what tokens are asked for.
type tokenCatcher struct {
	client.Client
	asked *[]authenticationv1.TokenRequestSpec
}

func (c tokenCatcher) SubResource(name string) client.SubResourceClient {
	return tokenWriter{c.Client.SubResource(name), c.asked}
}

type tokenWriter struct {
	client.SubResourceClient
	asked *[]authenticationv1.TokenRequestSpec
}

func (w tokenWriter) Create(ctx context.Context, of, body client.Object, opts ...client.SubResourceCreateOption) error {
	if request, is := body.(*authenticationv1.TokenRequest); is {
		*w.asked = append(*w.asked, *request.Spec.DeepCopy())
	}
	return w.SubResourceClient.Create(ctx, of, body, opts...)
}
