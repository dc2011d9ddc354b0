package policy

import (
	"context"
	"errors"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Rules that are part of an answer.
const (
	ruleDeny    = "deny"
	rulePend    = "pend"
	ruleAllow   = "allow"
	rulePatch   = "patch"
	ruleExclude = "exclude"
	ruleScore   = "score"
	ruleStrict  = "strict"
)

// answersOf returns the rules that are part of the answer to the question.
func answersOf(question Question) []string {
	if question == Placement {
		return []string{ruleDeny, rulePend, ruleAllow, ruleExclude, ruleScore, ruleStrict}
	}
	return []string{ruleDeny, rulePend, ruleAllow, rulePatch}
}

// isSet reports whether the rule is a set of reasons. The others have one value, or none.
func isSet(rule string) bool { return rule == ruleDeny || rule == rulePend }

// Decide asks the modules. It takes no longer than ctx lasts: then the error is ErrTooSlow. An answer that is not what
// the question asks for is ErrAnswer.
func (s *Set) Decide(ctx context.Context, input Input) (decision Decision, err error) {
	defer recovered(&err)
	return s.decide(ctx, input)
}

func (s *Set) decide(ctx context.Context, input Input, options ...rego.EvalOption) (Decision, error) {
	if input.value == nil {
		return Decision{}, errors.New("evaluate: there is no input")
	}
	answers, err := s.evaluate(ctx, input, options)
	if err != nil {
		return Decision{}, err
	}
	decision, err := decode(s.question, answers)
	if err != nil {
		return Decision{}, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return decision, nil
}

// evaluate returns the value of each rule that is part of the answer and has one.
func (s *Set) evaluate(ctx context.Context, input Input, options []rego.EvalOption) (map[string]ast.Value, error) {
	if ctx.Err() != nil {
		return nil, ErrTooSlow
	}
	cancel := topdown.NewCancel()
	defer context.AfterFunc(ctx, cancel.Cancel)()
	options = append(options,
		rego.EvalParsedInput(input.value), rego.EvalExternalCancel(cancel), rego.EvalMetrics(metrics.NoOp()))
	results, err := s.query.Eval(ctx, options...)
	if err != nil {
		return nil, evaluationError(err, ctx.Err() != nil)
	}
	if len(results) != 1 {
		return nil, fmt.Errorf("%w: %d results instead of one", errInternal, len(results))
	}
	answers := make(map[string]ast.Value, len(s.from))
	for name := range s.from {
		value, isValue := results[0].Bindings[name].(ast.Value)
		if !isValue {
			return nil, fmt.Errorf("%w: no value of %s", errInternal, name)
		}
		list, isList := value.(*ast.Array)
		switch {
		case isSet(name):
			answers[name] = value
		case isList && list.Len() == 1:
			answers[name] = list.Elem(0).Value
		case name == ruleAllow: // what is not allowed where somebody says what is, is not
			answers[name] = ast.Boolean(false)
		}
	}
	return answers, nil
}
