package session

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A verdict is how an attempt to join or to renew stands. The zero verdict has nothing to say.
type verdict struct {
	stage           stage
	reason, message string
}

type stage int

const (
	// settled: there is nothing to do, or it is done.
	settled stage = iota
	// waiting: the other side, or another part of Hanse, has to do something, which takes seconds.
	waiting
	// failed: it did not work and may work later.
	failed
	// unrenewed: the session could not be renewed, and lives on.
	unrenewed
	// refused: it will not work before somebody changes something.
	refused
)

func waits(message string) verdict { return verdict{waiting, v1alpha1.ReasonJoining, message} }

func fails(reason, message string, args ...any) verdict {
	return verdict{failed, reason, fmt.Sprintf(message, args...)}
}

func refuses(reason, message string, args ...any) verdict {
	return verdict{refused, reason, fmt.Sprintf(message, args...)}
}

// attempts say when something that did not work is tried again. What they remember only spares work: after a restart
// everything is tried once.
type attempts struct {
	of      string // what is attempted
	last    verdict
	next    time.Time
	backoff wait.Backoff
}

// due reports whether to try now. With something else to attempt it begins anew.
func (a *attempts) due(of string, now time.Time) bool {
	if a.of != of {
		*a = attempts{of: of}
	}
	return !now.Before(a.next)
}

// record keeps how the attempt went.
func (a *attempts) record(v verdict, now time.Time) {
	if a.last.stage != v.stage || a.backoff.Duration == 0 {
		a.backoff = backoffOf(v.stage)
	}
	a.last, a.next = v, now.Add(a.backoff.Step())
}

func backoffOf(s stage) wait.Backoff {
	b := wait.Backoff{Factor: 2, Jitter: 0.1, Steps: 100}
	switch s {
	case waiting: // somebody may be looking on, and the other side answers in a moment
		b.Duration, b.Cap, b.Factor = time.Second, 5*time.Second, 1.5
	case unrenewed: // the session lives for days
		b.Duration, b.Cap = 10*time.Second, 10*time.Minute
	default:
		b.Duration, b.Cap = 2*time.Second, time.Minute
	}
	return b
}
