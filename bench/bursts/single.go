// SPDX-License-Identifier: Apache-2.0

package bursts

import (
	"context"
	"errors"
	"fmt"

	"github.com/hanse-dev/hanse/bench/measure"
)

// Single is how long one pod takes when there is nothing else to do.
type Single struct {
	FromCreated measure.Sample // from the creation to Ready, where it was created
	FromBound   measure.Sample // from being bound to Ready, where it was created
	// Beyond is FromBound less the time from created to Ready at the provider, pod by pod: what offloading adds.
	Beyond measure.Sample
}

// one measures a pod alone on one side.
func (w *world) one(ctx context.Context, s side, name string, into *Single) error {
	home, err := s.observe(ctx)
	if err != nil {
		return err
	}
	defer home.Close()
	there, err := side{cluster: w.Provider, namespace: w.remote(s)}.observe(ctx)
	if err != nil {
		return err
	}
	defer there.Close()
	written := w.clock.Now()
	if err := s.cluster.Create(ctx, s.pod(name)); err != nil {
		return fmt.Errorf("create Pod %s: %w", name, err)
	}
	if err := errors.Join(home.Wait(ctx, ready, 1), there.Wait(ctx, ready, 1)); err != nil {
		return err
	}
	isReady := home.Moments(ready)[name]
	fromBound := isReady.Sub(home.Moments(bound)[name])
	into.FromCreated = append(into.FromCreated, isReady.Sub(written))
	into.FromBound = append(into.FromBound, fromBound)
	if s.cluster != w.Provider {
		into.Beyond = append(into.Beyond, fromBound-there.Moments(ready)[name].Sub(there.Moments(created)[name]))
	}
	_, err = w.remove(ctx, s, home, 1)
	return err
}
