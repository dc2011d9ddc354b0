// SPDX-License-Identifier: Apache-2.0

package policymaker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hanse-dev/hanse/internal/policy"
)

// explainDeadline is how long it may take to find out which rules decided, which is slower than to decide.
const explainDeadline = 5 * time.Second

// moduleName is what the module to be tried is called in messages.
const moduleName = "module.rego"

// A Trial is a question to policies without any consequence: somebody wants to know the answer. Its JSON is what `kubectl
// hanse policy` sends: fields are added, never renamed.
type Trial struct {
	Question policy.Question `json:"question"`
	// Module is the source of the one module to ask. Without it, the policies in force are asked.
	Module *string `json:"module,omitempty"`
	// Input is what to ask with, as JSON. Without it, About names what to ask about.
	Input *string `json:"input,omitempty"`
	// About is the Peer or cluster id whose advertisement it is about, or for placement the namespace, or NAMESPACE/CLASS.
	About string `json:"about,omitempty"`
}

// An Answer is what policies say to a Trial. Clients read it: fields are added, never renamed.
type Answer struct {
	Decision policy.Outcome `json:"decision,omitempty"`
	Reason   string         `json:"reason,omitempty"`
	// Patch is what the decision changes: a policy.OfferPatch, PodPatch or Ranking.
	Patch any           `json:"patch,omitempty"`
	Steps []policy.Step `json:"steps,omitempty"`
	Error string        `json:"error,omitempty"`
}

// A Gatherer returns what a question would be asked with now: about the peer of that name or cluster id, or, if the
// question is Placement, about the namespace of that name, or a class of its pods (NAMESPACE/CLASS).
type Gatherer func(ctx context.Context, question policy.Question, name string) (policy.Facts, error)

// Gather has trials asked with what the package that asks the question in earnest knows. Without it, a Trial must bring its
// Input.
func (m *Maker) Gather(question policy.Question, from Gatherer) {
	p := m.points[question]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gather = from
}

// Try answers a Trial. What goes wrong is part of the Answer.
func (m *Maker) Try(ctx context.Context, t Trial) Answer {
	given, err := m.try(ctx, t)
	if err != nil {
		return Answer{Error: err.Error()}
	}
	return given
}

func (m *Maker) try(ctx context.Context, t Trial) (Answer, error) {
	p, known := m.points[t.Question]
	if !known {
		return Answer{}, fmt.Errorf("there is no question %q", t.Question)
	}
	input, err := p.inputOf(ctx, t)
	if err != nil {
		return Answer{}, err
	}
	var set *policy.Set
	if t.Module != nil {
		set, err = sources{moduleName: *t.Module}.compile(p.question)
	} else {
		set, err = p.set(ctx)
	}
	if err != nil {
		return Answer{}, err
	}
	decision, err := m.decideIn(ctx, p, set, input)
	if err != nil {
		return Answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, explainDeadline)
	defer cancel()
	_, steps, err := set.Explain(ctx, input)
	if err != nil {
		return Answer{}, fmt.Errorf("find out which rules decided: %w", err)
	}
	return Answer{Decision: decision.Outcome, Reason: decision.Reason, Patch: patchOf(decision), Steps: steps}, nil
}

// inputOf is the input that is given, or what is known now of the subject.
func (p *point) inputOf(ctx context.Context, t Trial) (policy.Input, error) {
	p.mu.Lock()
	gather := p.gather
	p.mu.Unlock()
	switch {
	case t.Input != nil && t.About != "":
		return policy.Input{}, errors.New("either an input or something to ask about is needed, and not both")
	case t.Input != nil:
		return policy.ParseInput([]byte(*t.Input))
	case gather == nil:
		return policy.Input{}, fmt.Errorf("a question about %s needs an input (--input)", p.question)
	case t.About == "":
		return policy.Input{}, fmt.Errorf("a question about %s needs an input or something to ask about", p.question)
	}
	facts, err := gather(ctx, p.question, t.About)
	if err != nil {
		return policy.Input{}, err
	}
	return policy.NewInput(facts)
}

// patchOf returns what the decision changes, nil if that is nothing.
func patchOf(decision policy.Decision) any {
	switch {
	case decision.Offer != nil:
		return decision.Offer
	case decision.Pod != nil:
		return decision.Pod
	case decision.Ranking != nil:
		return decision.Ranking
	default:
		return nil
	}
}
