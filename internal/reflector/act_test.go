// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// withMany is a world in which a pod needs so many Secrets that are not at the peer yet, and the request to look at them.
func withMany(t *testing.T, count int) (*world, request) {
	t.Helper()
	w := newWorld(t, podUsing("web"))
	w.copier.Reach = reflection.Reaches{reflection.Secret: reflection.ReachAll}
	for i := range count {
		secret := password("a")
		secret.Name = fmt.Sprint("secret-", i)
		w.save(secret)
	}
	w.connect()
	return w, w.warm(reflection.Secret)
}

func TestStepsOfOneLookAreTakenAtATime(t *testing.T) {
	w, req := withMany(t, stepsAtOnce)
	var begun atomic.Int32
	all := make(chan struct{})
	w.Away.Before(func(testkit.Write) error {
		if begun.Add(1) == stepsAtOnce {
			close(all)
		}
		select {
		case <-all:
			return nil
		case <-time.After(time.Minute):
			return errors.New("the others do not begin")
		}
	})
	w.mustReconcile(req)
}

func TestAPeerThatCeasesToAnswerIsAskedNoMore(t *testing.T) {
	silence := errors.New("no answer")
	for name, test := range map[string]struct {
		failure error
		want    error
		again   reconcile.Result
	}{
		"no answer":     {silence, silence, reconcile.Result{}},
		"too many wait": {&peers.BusyError{After: time.Second}, nil, reconcile.Result{RequeueAfter: time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			w, req := withMany(t, 10*stepsAtOnce)
			var asked atomic.Int32
			w.Away.Before(func(testkit.Write) error { asked.Add(1); return test.failure })
			result, err := w.copier.Reconcile(t.Context(), req)
			if !errors.Is(err, test.want) || result != test.again {
				t.Errorf("got %v, %v, want %v, %v", result, err, test.again, test.want)
			}
			if got := asked.Load(); got > 2*stepsAtOnce {
				t.Errorf("it was asked %d times", got)
			}
		})
	}
}
