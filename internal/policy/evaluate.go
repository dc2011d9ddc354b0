// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/hanse-dev/hanse/internal/sanitize"
)

// Decide evaluates the modules. If ctx ends first, the error is ErrTooSlow. If the answer does not fit the question, the
// error is ErrAnswer.
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
		case name == ruleAllow: // a module has this rule, and it is not true
			answers[name] = ast.Boolean(false)
		}
	}
	return answers, nil
}

const (
	maxSteps    = 100
	maxStepText = 200
)

// A Step is a rule that was true, and so was part of a decision.
type Step struct {
	// Rule is its name without what is calculated, such as deny or patch.labels.
	Rule string `json:"rule"`
	// Location is where it is written, such as configmap/key.rego:12.
	Location string `json:"location"`
	// Text is its first line.
	Text string `json:"text"`
}

// Explain does the same as Decide, and also returns the rules that led to the decision, in the order in which they were
// found true. It takes more time. If there is an error, it returns the steps up to the error.
func (s *Set) Explain(ctx context.Context, input Input) (decision Decision, steps []Step, err error) {
	defer recovered(&err)
	trace := &tracer{set: s}
	decision, err = s.decide(ctx, input, rego.EvalQueryTracer(trace))
	return decision, trace.steps, err
}

// A tracer listens to an evaluation and notes the rules that are true.
type tracer struct {
	set   *Set
	steps []Step
}

// Enabled is part of OPA's interface.
func (*tracer) Enabled() bool { return true }

// Config is part of OPA's interface.
func (*tracer) Config() topdown.TraceConfig { return topdown.TraceConfig{} }

// TraceEvent notes the rule if the event says that it is true.
func (t *tracer) TraceEvent(event topdown.Event) {
	rule, isRule := event.Node.(*ast.Rule)
	if event.Op != topdown.ExitOp || !isRule || !t.set.asks(rule) || len(t.steps) == maxSteps {
		return
	}
	step := Step{
		Rule:     bounded(rule.Head.Ref().GroundPrefix().String(), maxStepText),
		Location: fmt.Sprintf("%s:%d", rule.Location.File, rule.Location.Row),
		Text:     firstLine(rule),
	}
	if !slices.Contains(t.steps, step) {
		t.steps = append(t.steps, step)
	}
}

// asks reports whether the rule is part of the answer.
func (s *Set) asks(rule *ast.Rule) bool {
	return rule.Module != nil && s.from[ruleName(rule)] == rule.Module.Package.Path.String()
}

func firstLine(rule *ast.Rule) string {
	line, _, _ := strings.Cut(string(rule.Location.Text), "\n")
	return printable(strings.TrimSuffix(strings.TrimSpace(line), " {"), maxStepText)
}

var (
	// ErrAnswer means that the answer of the modules is not what the question asks for: a field that it does not have, a
	// value of a wrong type or out of bounds, or two answers that contradict each other.
	ErrAnswer = errors.New("the answer is wrong")
	// ErrTooSlow means that the modules did not answer before the deadline.
	ErrTooSlow = errors.New("no answer before the deadline")
	// errInternal means that OPA has a mistake.
	errInternal = errors.New("internal error of the policy engine")
)

const maxErrorText = 512

// located writes errors of OPA as file:line: what is wrong.
func located(err error) error {
	var many ast.Errors
	if !errors.As(err, &many) {
		return err
	}
	texts := []string{}
	for i, one := range many {
		if i == maxProblems {
			texts = append(texts, "and more")
			break
		}
		texts = append(texts, at(one.Location)+one.Message)
	}
	return errors.New(bounded(strings.Join(texts, "; "), maxErrorText))
}

// evaluationError says what kept the modules from answering.
func evaluationError(err error, late bool) error {
	var problem *topdown.Error
	switch {
	case topdown.IsCancel(err) && late:
		return ErrTooSlow
	case !errors.As(err, &problem):
		return fmt.Errorf("evaluate: %w", err)
	case problem.Code == topdown.ConflictErr:
		return fmt.Errorf("%w: %s%s", ErrAnswer, at(problem.Location), bounded(problem.Message, maxErrorText))
	default:
		return fmt.Errorf("evaluate: %s%s", at(problem.Location), bounded(problem.Message, maxErrorText))
	}
}

func at(location *ast.Location) string {
	if location == nil || location.File == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d: ", location.File, location.Row)
}

// recovered turns a panic into an error: a mistake in OPA must not end the process or disturb other questions.
func recovered(err *error) {
	if problem := recover(); problem != nil {
		*err = fmt.Errorf("%w: %.200v", errInternal, problem)
	}
}

// bounded keeps a text within a number of bytes, and whole characters.
func bounded(text string, most int) string {
	return strings.ToValidUTF8(sanitize.Text(text, most), "?")
}
