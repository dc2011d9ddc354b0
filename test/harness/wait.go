// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"time"
)

// How long Until rests between two looks: an effect that comes at once is seen at once, one that takes long costs little.
const (
	shortestRest = 20 * time.Millisecond
	longestRest  = time.Second
)

// Until looks again and again until check finds nothing wrong, for as long as the limit. It returns what check found last.
func Until(ctx context.Context, limit time.Duration, check func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	last := errors.New("not looked at yet")
	for {
		began := time.Now()
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(pause(time.Since(start), time.Since(began))):
		}
	}
}

// pause says how long to rest after waiting for so long. A look that took long, such as one by kubectl, is followed by a rest
// as long, because looks without rest would take the processor from what they wait for.
func pause(waited, look time.Duration) time.Duration {
	return min(max(shortestRest, waited/10, look), longestRest)
}
