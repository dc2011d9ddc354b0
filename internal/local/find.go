// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Find reads the object of that key into the given one and returns it, or nil if there is none.
func Find[T client.Object](
	ctx context.Context, reader client.Reader, key client.ObjectKey, into T, options ...client.GetOption,
) (T, error) {
	var none T
	err := reader.Get(ctx, key, into, options...)
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("read %T %s: %w", into, key, err)
	}
	return into, nil
}
