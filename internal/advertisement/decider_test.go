package advertisement

import (
	"context"
	"sync"

	"github.com/hanse-dev/hanse/internal/policy"
)

// fakePolicies answer what a test wants, and allow everything unless it wants something.
type fakePolicies struct {
	mu     sync.Mutex
	asked  map[policy.Question][]policy.Input
	answer map[policy.Question]func(policy.Input) (policy.Decision, error)
	ring   map[policy.Question]func()
}

func (f *fakePolicies) Decide(_ context.Context, question policy.Question, input policy.Input) (policy.Decision, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked == nil {
		f.asked = map[policy.Question][]policy.Input{}
	}
	f.asked[question] = append(f.asked[question], input)
	if answer := f.answer[question]; answer != nil {
		return answer(input)
	}
	return policy.Decision{Outcome: policy.Allow}, nil
}

func (f *fakePolicies) OnChange(question policy.Question, ring func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ring == nil {
		f.ring = map[policy.Question]func(){}
	}
	f.ring[question] = ring
}

// say makes the answer to the question that of all consumers or providers from now on.
func (f *fakePolicies) say(question policy.Question, decision policy.Decision, err error) {
	f.answering(question, func(policy.Input) (policy.Decision, error) { return decision, err })
}

func (f *fakePolicies) answering(question policy.Question, answer func(policy.Input) (policy.Decision, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answer == nil {
		f.answer = map[policy.Question]func(policy.Input) (policy.Decision, error){}
	}
	f.answer[question] = answer
}

// times is how often the question was asked.
func (f *fakePolicies) times(question policy.Question) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked[question])
}
