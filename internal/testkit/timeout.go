// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// WithTimeout runs a test of code that waits in vain, with a context that ends after a minute. The test runs in a bubble of
// synctest, whose clock stands still while any goroutine works: the minute costs no time, and no load makes it too short.
// What runs in a bubble must not use the network, and must not call t.Run or t.Parallel.
func WithTimeout(t *testing.T, test func(ctx context.Context, t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		test(ctx, t)
	})
}
