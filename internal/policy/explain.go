package policy

import (
	"context"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
)

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

// Explain is Decide, and says which rules led to the decision, in the order in which they were found true. It takes more
// time. The steps are there also when there is an error, up to it.
func (s *Set) Explain(ctx context.Context, input Input) (decision Decision, steps []Step, err error) {
	defer recovered(&err)
	trace := &tracer{set: s, seen: map[Step]bool{}}
	decision, err = s.decide(ctx, input, rego.EvalQueryTracer(trace))
	return decision, trace.steps, err
}

// A tracer listens to an evaluation and notes the rules that are true.
type tracer struct {
	set   *Set
	seen  map[Step]bool
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
	if !t.seen[step] {
		t.seen[step] = true
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
