// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	_ "time/tzdata" // rules name time zones, and the image that they run in has none

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
)

const (
	maxModules  = 64
	maxSource   = 32 << 10  // of one module
	maxSources  = 128 << 10 // of all modules of a question
	maxProblems = 3         // that one error tells
)

// ErrTooLarge means that modules, or what they are asked about, are larger than this package handles.
var ErrTooLarge = errors.New("too large")

// A Module is a piece of policy: a file of Rego.
type Module struct {
	// Name tells people where the module is, such as configmap/key.rego.
	Name string
	// Source is its text.
	Source string
}

// A Set holds the modules that answer one question, compiled. It never changes; any number of goroutines may ask it.
type Set struct {
	question Question
	query    rego.PreparedEvalQuery
	from     map[string]string // rule that is part of the answer → package that it lies in
}

// Compile compiles the modules; their rules are combined. If there are none, the built-in default answers. An error names
// the module, the line and the problem.
func Compile(question Question, modules []Module) (set *Set, err error) {
	defer recovered(&err)
	if !slices.Contains(Questions(), question) {
		return nil, fmt.Errorf("there is no question %.63q", question)
	}
	parsed, err := parseAll(question, modules)
	if err != nil {
		return nil, err
	}
	return prepare(question, parsed, sources(question, parsed))
}

// parseAll parses the modules and the default by their names.
func parseAll(question Question, modules []Module) (map[string]*ast.Module, error) {
	builtin, err := Default(question)
	if err != nil {
		return nil, err
	}
	if len(modules) > maxModules {
		return nil, fmt.Errorf("%d modules, more than %d: %w", len(modules), maxModules, ErrTooLarge)
	}
	parsed, size := map[string]*ast.Module{}, 0
	if parsed[builtin.Name], err = parse(builtin, question.defaultPackage()); err != nil {
		return nil, err
	}
	for _, module := range modules {
		if size += len(module.Source); size > maxSources {
			return nil, fmt.Errorf("%s: all modules together have more than %d bytes: %w", module.Name, maxSources, ErrTooLarge)
		}
		if parsed[module.Name] != nil {
			return nil, fmt.Errorf("%s: there are two modules of this name", module.Name)
		}
		if parsed[module.Name], err = parse(module, question.modulePackage()); err != nil {
			return nil, err
		}
		if err := checkShapes(question, module.Name, parsed[module.Name]); err != nil {
			return nil, err
		}
	}
	return parsed, nil
}

func parse(module Module, pkg string) (*ast.Module, error) {
	if len(module.Source) > maxSource {
		return nil, fmt.Errorf("%s has %d bytes, more than %d: %w", module.Name, len(module.Source), maxSource, ErrTooLarge)
	}
	parsed, err := ast.ParseModuleWithOpts(module.Name, module.Source, ast.ParserOptions{
		Capabilities: capabilities, RegoVersion: ast.RegoV1,
	})
	if err != nil {
		return nil, located(err)
	}
	if parsed == nil {
		return nil, fmt.Errorf("%s:1: it is empty: start it with: package %s", module.Name, strings.TrimPrefix(pkg, "data."))
	}
	if parsed.Package.Path.String() != pkg {
		return nil, fmt.Errorf("%s:%d: the package must be %s",
			module.Name, parsed.Package.Location.Row, strings.TrimPrefix(pkg, "data."))
	}
	return parsed, checkComplexity(module.Name, parsed)
}

// ruleName returns the first part of the rule's name: patch of patch.labels.region.
func ruleName(rule *ast.Rule) string {
	if name, isVar := rule.Head.Ref()[0].Value.(ast.Var); isVar {
		return string(name)
	}
	return ""
}

// checkShapes finds mistakes that would show only when the rule is true for the first time.
func checkShapes(question Question, name string, module *ast.Module) error {
	for _, rule := range module.Rules {
		answer := ruleName(rule)
		contains := rule.Head.RuleKind() == ast.MultiValue && len(rule.Head.Ref()) == 1
		switch {
		case isSet(answer) && !contains:
			return fmt.Errorf("%s:%d: write it as: %s contains reason if { ... }", name, rule.Location.Row, answer)
		case answer == rulePatch && isPartOfPrices(rule.Head.Ref()):
			return fmt.Errorf("%s:%d: write prices as a whole: patch.prices := { ... } if { ... }", name, rule.Location.Row)
		case question.answers(answer) && len(rule.Head.Args) > 0:
			return fmt.Errorf("%s:%d: %s must not be a function", name, rule.Location.Row, answer)
		}
	}
	return nil
}

// isPartOfPrices reports whether a rule makes prices piece by piece. Where no such rule is true the prices would be an empty
// object, which makes an offer free: nobody would want that.
func isPartOfPrices(rule ast.Ref) bool {
	return len(rule) > 2 && rule[1].Value.Compare(ast.String("prices")) == 0
}

// sources returns the package of each rule that is part of the answer. The default is used only if there are no modules,
// and for the order of clusters if no module has a rule for it.
func sources(question Question, modules map[string]*ast.Module) map[string]string {
	from := map[string]string{}
	for _, module := range modules {
		pkg := module.Package.Path.String()
		fallback := pkg == question.defaultPackage() && len(modules) > 1
		for _, rule := range module.Rules {
			name := ruleName(rule)
			if !question.answers(name) {
				continue
			}
			if !fallback || name == ruleScore && from[name] == "" {
				from[name] = pkg
			}
		}
	}
	return from
}

// prepare compiles one query for all rules that are part of the answer. Helper rules are evaluated only if one of these
// needs them.
func prepare(question Question, modules map[string]*ast.Module, from map[string]string) (*Set, error) {
	compiler := ast.NewCompiler().WithCapabilities(capabilities).WithDefaultRegoVersion(ast.RegoV1)
	if compiler.Compile(modules); compiler.Failed() {
		return nil, located(compiler.Errors)
	}
	set := &Set{question: question, from: from}
	terms := []string{}
	for _, name := range slices.Sorted(maps.Keys(from)) {
		value := from[name] + "." + name
		if !isSet(name) { // a set is always there, but maybe empty
			value = fmt.Sprintf("[x | x = %s]", value)
		}
		terms = append(terms, name+" = "+value)
	}
	if len(terms) == 0 {
		terms = []string{"true"}
	}
	var err error
	set.query, err = rego.New(
		rego.Query(strings.Join(terms, "; ")),
		rego.Compiler(compiler),
		rego.Capabilities(capabilities),
		rego.Store(inmem.New()),
		rego.GenerateJSON(keepTerm),
	).PrepareForEval(context.Background()) //nolint:forbidigo // nothing is waited for
	if err != nil {
		return nil, located(err)
	}
	return set, nil
}

// keepTerm avoids converting answers to plain maps: they are decoded from OPA's own values.
func keepTerm(term *ast.Term, _ *rego.EvalContext) (any, error) { return term.Value, nil }
