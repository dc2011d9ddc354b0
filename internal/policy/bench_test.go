// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/rego"
)

// fourTerms is a rule of 4 terms, as an administrator would write it.
const fourTerms = `package hanse.incoming

deny contains "no" if {
	input.advertisement.prices.currency == "EUR"
	input.advertisement.prices.perHour.cpu > 0.05
	input.advertisement.availability.cpu >= 4
	input.peer.labels.tier == "gold"
}
`

const benchInput = `{
	"peer": {"name": "turin", "labels": {"tier": "gold"}},
	"advertisement": {
		"availability": {"cpu": 12.5, "memory": 68719476736, "pods": 110},
		"prices": {"currency": "EUR", "perHour": {"cpu": 0.06}}
	}
}`

func BenchmarkDecide(b *testing.B) {
	decide, _ := sameRule(b)
	b.ReportAllocs()
	for b.Loop() {
		decide()
	}
}

// BenchmarkBareOPA is the same rule, input and deadline without this package.
func BenchmarkBareOPA(b *testing.B) {
	_, bare := sameRule(b)
	b.ReportAllocs()
	for b.Loop() {
		bare()
	}
}

// BenchmarkDecideAgainstBareOPA takes turns, and compares the fastest turn of each: so others on the machine disturb
// little.
func BenchmarkDecideAgainstBareOPA(b *testing.B) {
	decide, bare := sameRule(b)
	ours, theirs := time.Hour, time.Hour
	for b.Loop() {
		ours, theirs = min(ours, turn(decide)), min(theirs, turn(bare))
	}
	b.ReportMetric(float64(ours.Nanoseconds())/turns, "ns/decision")
	b.ReportMetric(float64(theirs.Nanoseconds())/turns, "ns/bare")
	b.ReportMetric(float64(ours)/float64(theirs), "ratio")
}

const turns = 50

func turn(ask func()) time.Duration {
	start := time.Now()
	for range turns {
		ask()
	}
	return time.Since(start)
}

// sameRule returns two ways to ask the same.
func sameRule(b *testing.B) (decide, bare func()) {
	set, err := Compile(Incoming, []Module{{Name: "cm/four.rego", Source: fourTerms}})
	if err != nil {
		b.Fatal(err)
	}
	query, err := rego.New(
		rego.Query("data.hanse.incoming.deny"), rego.Module("four.rego", fourTerms),
	).PrepareForEval(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	in := input(b, benchInput)
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	b.Cleanup(cancel)
	decide = func() {
		decision, err := set.Decide(ctx, in)
		if err != nil || decision.Outcome != Deny {
			b.Fatal(decision, err)
		}
	}
	bare = func() {
		results, err := query.Eval(ctx, rego.EvalParsedInput(in.value))
		if err != nil || len(results) != 1 || len(results[0].Expressions[0].Value.([]any)) != 1 {
			b.Fatal(results, err)
		}
	}
	return decide, bare
}

func BenchmarkNewInput(b *testing.B) {
	facts := Facts{Time: now, Peer: peer(), Advertisement: offer(), Request: request()}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NewInput(facts); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecidePlacementOf1000Rows(b *testing.B) {
	set, err := Compile(Placement, nil)
	if err != nil {
		b.Fatal(err)
	}
	in, err := NewInput(Facts{Time: now, Table: NewTable(rows(1000)), Request: request(), Wish: wish("Price")})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		decision, err := set.Decide(b.Context(), in)
		if err != nil || len(decision.Ranking.Scores) != 1000 {
			b.Fatal(decision, err)
		}
	}
}
