// SPDX-License-Identifier: Apache-2.0

package policymaker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanse-dev/hanse/internal/policy"
)

// ErrNotReady means that the policies have not been read yet.
var ErrNotReady = errors.New("the policies have not been read yet")

// startTimeout is how long a caller waits at the start until the policies are read.
const startTimeout = 10 * time.Second

// A point is one question with the policies that answer it now.
type point struct {
	question policy.Question
	current  atomic.Pointer[revision] // nil until the policies are read
	ready    chan struct{}            // closed when current is set for the first time

	mu        sync.Mutex
	listeners []func()
	gather    Gatherer
}

// set returns the modules in force. It waits only while the policies are read for the first time.
func (p *point) set(ctx context.Context) (*policy.Set, error) {
	if current := p.current.Load(); current != nil {
		return current.set, nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-p.ready:
		return p.current.Load().set, nil
	case <-ctx.Done():
		return nil, ErrNotReady
	}
}

// replace puts a revision in force and calls the listeners. It must not run twice at a time.
func (p *point) replace(next *revision) {
	if p.current.Swap(next) == nil {
		close(p.ready)
	}
	p.mu.Lock()
	listeners := p.listeners
	p.mu.Unlock()
	for _, notify := range listeners {
		notify()
	}
}

// Decide evaluates the policies in force. It takes no locks, and no longer than the deadline. While the policies are read
// for the first time it waits, and after startTimeout it returns ErrNotReady.
func (m *Maker) Decide(ctx context.Context, question policy.Question, input policy.Input) (policy.Decision, error) {
	p, known := m.points[question]
	if !known {
		return policy.Decision{}, fmt.Errorf("there is no question %q", question)
	}
	start := m.clock.Now()
	set, err := p.set(ctx)
	var decision policy.Decision
	if err == nil {
		decision, err = m.decideIn(ctx, p, set, input)
	}
	outcome := decision.Outcome
	if err != nil {
		outcome, err = outcomeError, fmt.Errorf("ask the policies about %s: %w", question, err)
	}
	durations.WithLabelValues(string(question)).Observe(m.clock.Since(start).Seconds())
	decisions.WithLabelValues(string(question), string(outcome)).Inc()
	return decision, err
}

// decideIn evaluates the set within the deadline of the question.
func (m *Maker) decideIn(ctx context.Context, p *point, set *policy.Set, input policy.Input) (policy.Decision, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.question.Slowness())*m.config.Deadline)
	defer cancel()
	return set.Decide(ctx, input)
}

// HasPolicies reports whether anything but the built-in default answers the question. A caller that knows the default need
// not ask if it is false. It is true until the policies are read.
func (m *Maker) HasPolicies(question policy.Question) bool {
	current := m.points[question].current.Load()
	return current == nil || len(current.sources) > 0
}

// OnChange has notify called whenever other modules come into force for the question. notify must return at once: usually it
// puts something into a queue. It may be called once for several changes in quick succession.
func (m *Maker) OnChange(question policy.Question, notify func()) {
	p := m.points[question]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners = append(p.listeners, notify)
}
