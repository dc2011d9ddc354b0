package advertisement

import (
	"context"

	"github.com/hanse-dev/hanse/internal/policy"
)

// A Decider asks the policies of this cluster's administrator.
type Decider interface {
	// Decide answers the question about what is in the input. An error means that there is no answer, which is not no.
	Decide(ctx context.Context, question policy.Question, input policy.Input) (policy.Decision, error)
	// OnChange has ring called after the policies of the question were changed. It is to be called before the manager
	// starts.
	OnChange(question policy.Question, ring func())
}
