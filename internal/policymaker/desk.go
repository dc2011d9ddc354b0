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

// startPatience is for how long a question waits at the start for the policies to be read.
const startPatience = 10 * time.Second

// A desk answers one question.
type desk struct {
	question policy.Question
	meter    meter
	current  atomic.Pointer[ruling]
	ready    chan struct{} // closed when current was set for the first time

	mu     sync.Mutex
	rings  []func()
	gather Gatherer
}

// A ruling is what is in force for one question.
type ruling struct {
	modules []policy.Module // by name; none is the default
	set     *policy.Set
}

func newDesk(question policy.Question) *desk {
	return &desk{question: question, meter: newMeter(question), ready: make(chan struct{})}
}

// set returns what is in force. Only before it was read for the first time, this waits.
func (d *desk) set(ctx context.Context) (*policy.Set, error) {
	if current := d.current.Load(); current != nil {
		return current.set, nil
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	select {
	case <-d.ready:
		return d.current.Load().set, nil
	case <-ctx.Done():
		return nil, ErrNotReady
	}
}

// replace puts a ruling in force and tells those who want to know. It must not run twice at a time.
func (d *desk) replace(next *ruling) {
	if d.current.Swap(next) == nil {
		close(d.ready)
	}
	d.mu.Lock()
	rings := d.rings
	d.mu.Unlock()
	for _, ring := range rings {
		ring()
	}
}

// Decide asks the policies in force. It takes no locks, and no longer than the deadline; only while the policies are
// being read at the start it waits, and gives up with ErrNotReady.
func (m *Maker) Decide(ctx context.Context, question policy.Question, input policy.Input) (policy.Decision, error) {
	d, known := m.desks[question]
	if !known {
		return policy.Decision{}, fmt.Errorf("there is no question %q", question)
	}
	start := m.clock.Now()
	decision, err := m.decide(ctx, d, input)
	if err != nil {
		d.meter.count(outcomeError, m.clock.Since(start))
		return policy.Decision{}, fmt.Errorf("ask the policies about %s: %w", question, err)
	}
	d.meter.count(decision.Outcome, m.clock.Since(start))
	return decision, nil
}

func (m *Maker) decide(ctx context.Context, d *desk, input policy.Input) (policy.Decision, error) {
	set, err := d.set(ctx)
	if err != nil {
		return policy.Decision{}, err
	}
	return m.decideIn(ctx, d, set, input)
}

// decideIn asks within the deadline of the question.
func (m *Maker) decideIn(ctx context.Context, d *desk, set *policy.Set, input policy.Input) (policy.Decision, error) {
	ctx, cancel := context.WithTimeout(ctx, m.config.deadline(d.question))
	defer cancel()
	return set.Decide(ctx, input)
}

// HasPolicies reports whether anything but the built-in default answers the question, so that who knows the default need
// not ask. Until the policies were read it is true.
func (m *Maker) HasPolicies(question policy.Question) bool {
	d, known := m.desks[question]
	if !known {
		return true
	}
	current := d.current.Load()
	return current == nil || len(current.modules) > 0
}

// OnChange has ring called whenever other modules are in force for the question. It must return at once: usually it puts
// something into a queue. Changes in quick succession may ring once.
func (m *Maker) OnChange(question policy.Question, ring func()) {
	d, known := m.desks[question]
	if !known {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rings = append(d.rings, ring)
}
