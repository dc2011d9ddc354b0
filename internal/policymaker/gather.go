package policymaker

import (
	"context"

	"github.com/hanse-dev/hanse/internal/policy"
)

// A Gatherer returns what a question would be asked with now: about the peer of that name or cluster id, or, if the
// question is Placement, about the namespace of that name, or a class of its pods (NAMESPACE/CLASS).
type Gatherer func(ctx context.Context, question policy.Question, name string) (policy.Facts, error)

// Gather has policies that somebody tries asked with what the package that asks the question in earnest knows. Without
// it, who tries them must say what to ask with.
func (m *Maker) Gather(question policy.Question, from Gatherer) {
	d, known := m.points[question]
	if !known {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gather = from
}

// gatherer returns that of the question, or nil.
func (d *point) gatherer() Gatherer {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gather
}
