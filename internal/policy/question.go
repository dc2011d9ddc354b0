// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/hanse-dev/hanse/policies"
)

// A Question names a decision that Hanse leaves to policies.
type Question string

// The questions.
const (
	// Incoming asks whether to use what a provider offers, and with which corrections.
	Incoming Question = "incoming"
	// Outgoing asks whether to offer anything to a consumer, and what of it.
	Outgoing Question = "outgoing"
	// ShadowPod asks whether to run a consumer's pod, and how.
	ShadowPod Question = "shadowpod"
	// Request asks whether to reserve for a consumer what its Request asks for.
	Request Question = "request"
	// Quote asks what to offer a consumer for an application.
	Quote Question = "quote"
	// Placement asks which clusters the pods of a namespace prefer, and which they must not use.
	Placement Question = "placement"
)

// A decisionPoint is what there is to know about one question. Its default module, which answers where an administrator
// has no policy, is policies/default/<question>.rego.
type decisionPoint struct {
	question Question
	// input are the keys of the input, see NewInput, besides time.
	input []string
	// rules are part of the answer, besides deny, pend and allow.
	rules []string
	// decode reads those rules into the decision.
	decode func(decision *Decision, answers map[string]ast.Value) error
	// slowness is how many times as long as others the question may take: it compares many clusters, ahead of time.
	slowness int
}

// decisionPoints is the table from which everything about questions follows: what is compiled, read, counted and
// documented. The package that asks a new question is all that is needed besides a line here, a default module with its
// test, and the documentation, which a test compares with this table.
var decisionPoints = []decisionPoint{
	{Incoming, []string{"peer", "advertisement", "previous", "table"}, []string{rulePatch}, decodeOffer, 1},
	{Outgoing, []string{"peer", "advertisement", "load"}, []string{rulePatch}, decodeOffer, 1},
	{ShadowPod, []string{"peer", "namespace", "pod"}, []string{rulePatch}, decodePod, 1},
	{Request, []string{"peer", "member", "marks", "request", "reservation", "price"}, nil, decodeNothing, 1},
	{Quote, []string{"peer", "member", "marks", "request", "quote", "prices", "price"}, []string{ruleInterest, rulePrices}, decodeTerms, 1},
	{Placement, []string{"table", "namespace", "class", "wish", "request"}, []string{ruleExclude, ruleScore, ruleStrict}, decodeRanking, 20},
}

// Rules that are part of an answer.
const (
	ruleDeny    = "deny"
	rulePend    = "pend"
	ruleAllow   = "allow"
	rulePatch   = "patch"
	ruleExclude = "exclude"
	ruleScore   = "score"
	ruleStrict  = "strict"

	ruleInterest = "interest"
	rulePrices   = "prices"
)

// isSet reports whether the rule is a set of reasons. The others have one value, or none.
func isSet(rule string) bool { return rule == ruleDeny || rule == rulePend }

// Questions returns all questions.
func Questions() []Question {
	all := make([]Question, len(decisionPoints))
	for i := range decisionPoints {
		all[i] = decisionPoints[i].question
	}
	return all
}

// Slowness returns how many times as long as others the question may take.
func (q Question) Slowness() int { return q.point().slowness }

// point returns the line of the table. The zero value is for what is no question.
func (q Question) point() decisionPoint {
	i := slices.IndexFunc(decisionPoints, func(p decisionPoint) bool { return p.question == q })
	if i < 0 {
		return decisionPoint{slowness: 1}
	}
	return decisionPoints[i]
}

// answers reports whether the rule is part of the answer to the question.
func (q Question) answers(rule string) bool {
	return isSet(rule) || rule == ruleAllow || slices.Contains(q.point().rules, rule)
}

func (q Question) modulePackage() string  { return "data.hanse." + string(q) }
func (q Question) defaultPackage() string { return "data.hanse.defaults." + string(q) }

// Default returns the module that answers where there is no other. No module of a ConfigMap can have its name.
func Default(question Question) (Module, error) {
	name := "default/" + string(question) + ".rego"
	source, err := policies.Files.ReadFile(name)
	if err != nil {
		return Module{}, fmt.Errorf("read built-in policy: %w", err)
	}
	return Module{Name: "built-in:" + name, Source: string(source)}, nil
}

// A Decider asks the policies of this cluster's administrator. Package policymaker has the one that controllers use.
type Decider interface {
	// HasPolicies reports whether anything but the built-in default answers the question. While that is not known yet, it
	// is true.
	HasPolicies(question Question) bool
	// Decide answers the question about what is in the input. An error means that there is no answer, which is not no.
	Decide(ctx context.Context, question Question, input Input) (Decision, error)
	// OnChange has the function called after the policies of the question were changed. Call OnChange before the manager
	// starts.
	OnChange(question Question, changed func())
}
