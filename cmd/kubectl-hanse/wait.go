package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// askAgain is how often the cluster is asked whether something has come about.
const askAgain = 250 * time.Millisecond

// final is an error that waiting does not change.
type final struct{ error }

// Unwrap returns what is final.
func (f final) Unwrap() error { return f.error }

// until asks until the answer is yes. An error is an answer that may change, unless it is final.
func until(ctx context.Context, what string, ask func(context.Context) (bool, error)) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, askAgain, true, func(ctx context.Context) (bool, error) {
		done, err := ask(ctx)
		if end := (final{}); errors.As(err, &end) {
			return false, err
		}
		last = err
		return done && err == nil, nil
	})
	if end := (final{}); errors.As(err, &end) {
		return end.error
	}
	if err != nil {
		return fmt.Errorf("wait for %s: %w", what, errors.Join(last, err))
	}
	return nil
}
