// SPDX-License-Identifier: Apache-2.0

package wait

import (
	"context"
	"fmt"
	"time"
)

// Until looks every so often whether something is done, until it is, or cannot be any more (an error), or the context
// ends.
func Until(ctx context.Context, pace time.Duration, done func() (bool, error)) error {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// Success tries every so often until there is no error. When the context ends, it tells the last one.
func Success(ctx context.Context, pace time.Duration, try func(context.Context) error) error {
	var last error
	err := Until(ctx, pace, func() (bool, error) {
		err := try(ctx)
		if err != nil && ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return err
}
