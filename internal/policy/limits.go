// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// builtins are the functions that rules may call: all of them do nothing but calculate, in little space. A rule that
// calls any other does not compile. Not here are, on purpose: what reaches the network, the environment or the clock,
// what is random, what parses another language, and what makes a huge number of a small one.
var builtins = []string{
	// Operators.
	"assign", "eq", "equal", "gt", "gte", "lt", "lte", "neq", "internal.member_2", "internal.member_3",
	"and", "or", "minus", "plus", "mul", "div", "rem", "internal.template_string",
	// Numbers.
	"abs", "ceil", "floor", "round", "to_number", "format_int", "numbers.range", "units.parse", "units.parse_bytes",
	// Collections.
	"array.concat", "array.reverse", "array.slice", "count", "max", "min", "product", "sort", "sum",
	"intersection", "union", "json.filter", "json.remove",
	"object.filter", "object.get", "object.keys", "object.remove", "object.subset", "object.union", "object.union_n",
	// Text.
	"concat", "contains", "endswith", "indexof", "lower", "replace", "split", "sprintf", "startswith", "substring",
	"strings.any_prefix_match", "strings.any_suffix_match", "strings.count", "strings.reverse",
	"trim", "trim_left", "trim_prefix", "trim_right", "trim_space", "trim_suffix", "upper",
	"glob.match", "regex.match", "semver.compare", "semver.is_valid",
	// Times that are given. The only one that is known is input.time.
	"time.add_date", "time.clock", "time.date", "time.diff", "time.format", "time.parse_duration_ns",
	"time.parse_ns", "time.parse_rfc3339_ns", "time.weekday",
	// Types.
	"is_array", "is_boolean", "is_null", "is_number", "is_object", "is_set", "is_string", "type_name",
	// It is taken out by the compiler: a rule with print still works, and prints nothing.
	"print", "internal.print",
}

// capabilities tell OPA what it may do for a rule.
var capabilities = allowedCapabilities()

func allowedCapabilities() *ast.Capabilities {
	all := ast.CapabilitiesForThisVersion()
	allowed := *all
	allowed.AllowNet = []string{} // not even for schemas
	allowed.Builtins = slices.DeleteFunc(slices.Clone(all.Builtins), func(builtin *ast.Builtin) bool {
		return !slices.Contains(builtins, builtin.Name)
	})
	return &allowed
}

// Bounds of how rules are written. The time that OPA needs to compile them grows with the square of the depth of an
// expression and the cube of the length of a body, and doubles with each comprehension within another.
const (
	maxDepth    = 400 // of nodes in the syntax tree: some 100 operators in one expression
	maxClosures = 6   // comprehensions and the like within each other
	maxElse     = 64  // branches of one rule
	maxBody     = 200 // expressions of one rule or closure
)

// checkComplexity refuses modules that would take OPA long to compile.
func checkComplexity(name string, module *ast.Module) error {
	depth := &depth{}
	visitor := ast.NewBeforeAfterVisitor(depth.enter, depth.leave)
	for _, rule := range module.Rules {
		branches := 0
		for branch := rule; branch != nil; branch = branch.Else {
			branches++
			visitor.Walk(branch.Body)
			visitor.Walk(branch.Head)
			if branch.Head.Key != nil { // which the visitor leaves out
				visitor.Walk(branch.Head.Key)
			}
		}
		if depth.exceeded || branches > maxElse {
			return fmt.Errorf("%s:%d: it is too long or nested too deeply: split it into several rules: %w", name, rule.Location.Row, ErrTooLarge)
		}
	}
	return nil
}

// A depth is where a visitor is in a syntax tree.
type depth struct {
	nodes, closures int
	exceeded        bool
}

func (d *depth) enter(node any) (stop bool) {
	d.nodes++
	d.closures += closure(node)
	body, _ := node.(ast.Body)
	d.exceeded = d.exceeded || d.nodes > maxDepth || d.closures > maxClosures || len(body) > maxBody
	return d.exceeded
}

func (d *depth) leave(node any) {
	d.nodes--
	d.closures -= closure(node)
}

// closure is 1 for what has a body of its own.
func closure(node any) int {
	switch node.(type) {
	case *ast.ArrayComprehension, *ast.ObjectComprehension, *ast.SetComprehension,
		*ast.Every, *ast.Not, *ast.LogicalAnd, *ast.LogicalOr, *ast.TemplateString:
		return 1
	default:
		return 0
	}
}
