// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/format"
	"github.com/open-policy-agent/opa/v1/tester"

	"github.com/hanse-dev/hanse/policies"
)

// regoFiles returns the modules of policies/, without their tests.
func regoFiles(t *testing.T) []string {
	t.Helper()
	found := []string{}
	err := fs.WalkDir(policies.Files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && !strings.HasSuffix(name, "_test.rego") {
			found = append(found, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func regoSource(t *testing.T, name string) string {
	t.Helper()
	text, err := policies.Files.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// runRegoTests runs the tests that lie beside the module, and says how many passed and which did not. The module is
// compiled with what Compile allows, beside the default that it may refer to.
func runRegoTests(t *testing.T, name, source string) (passed int, failures []string) {
	t.Helper()
	test := strings.TrimSuffix(name, ".rego") + "_test.rego"
	modules := map[string]*ast.Module{}
	for file, text := range map[string]string{
		"default/placement.rego": regoSource(t, "default/placement.rego"), name: source, test: regoSource(t, test),
	} {
		module, err := ast.ParseModuleWithOpts(file, text, ast.ParserOptions{Capabilities: capabilities, RegoVersion: ast.RegoV1})
		if err != nil {
			t.Fatal(err)
		}
		modules[file] = module
	}
	results, err := tester.NewRunner().
		SetCompiler(ast.NewCompiler().WithCapabilities(capabilities)).SetModules(modules).RunTests(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for result := range results {
		if result.Pass() {
			passed++
			continue
		}
		failures = append(failures, fmt.Sprintf("%s: %s %v", result.Location, result.Name, result.Error))
	}
	return passed, failures
}

func TestRegoTestsPass(t *testing.T) {
	total := 0
	for _, name := range regoFiles(t) {
		passed, failures := runRegoTests(t, name, regoSource(t, name))
		if passed == 0 {
			t.Errorf("%s has no test", name)
		}
		for _, failure := range failures {
			t.Error(failure)
		}
		total += passed
	}
	if total < 40 {
		t.Errorf("only %d tests ran", total)
	}
}

// A test that passes without the rules that it is about tests nothing.
func TestRegoTestsFailWithoutTheRules(t *testing.T) {
	for _, name := range regoFiles(t) {
		module := ast.MustParseModule(regoSource(t, name))
		blank := []string{module.Package.String()}
		for rule := range rulesThatTestsName(module) {
			blank = append(blank, rule)
		}
		if _, failures := runRegoTests(t, name, strings.Join(blank, "\n")); len(failures) == 0 {
			t.Errorf("the tests of %s pass without its rules", name)
		}
	}
}

// rulesThatTestsName returns empty rules in place of those of the module, so that its tests still compile.
func rulesThatTestsName(module *ast.Module) map[string]bool {
	blank := map[string]bool{}
	for _, rule := range module.Rules {
		switch name := ruleName(rule); name {
		case ruleDeny, rulePend:
			blank[name+" contains reason if some reason in input.nothing"] = true
		case ruleAllow:
			blank["allow if input.nothing"] = true
		case rulePatch, ruleScore, ruleExclude:
			blank[name+"[key] := value if some key, value in input.nothing"] = true
		}
	}
	return blank
}

func TestLibraryCompiles(t *testing.T) {
	for _, name := range regoFiles(t) {
		if path.Dir(name) == "default" {
			continue
		}
		source := regoSource(t, name)
		question := Question(strings.TrimPrefix(ast.MustParseModule(source).Package.Path.String(), "data.hanse."))
		if _, err := Compile(question, []Module{{Name: name, Source: source}}); err != nil {
			t.Error(err)
		}
		if !strings.Contains(source, "# Edit: ") {
			t.Errorf("%s does not say what to edit", name)
		}
	}
}

func TestEveryQuestionHasADefault(t *testing.T) {
	for _, question := range Questions() {
		set, err := Compile(question, nil)
		if err != nil {
			t.Fatal(err)
		}
		decision, err := set.Decide(t.Context(), input(t, `{}`))
		if err != nil || decision.Outcome != Allow || decision.Offer != nil || decision.Pod != nil {
			t.Errorf("%s: %+v %v", question, decision, err)
		}
	}
}

func TestRegoIsFormatted(t *testing.T) {
	err := fs.WalkDir(policies.Files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		source := regoSource(t, name)
		formatted, err := format.SourceWithOpts(name, []byte(source), format.Opts{RegoVersion: ast.RegoV1})
		if err != nil {
			return err
		}
		// The formatter writes the name of such a rule in its older way.
		if strings.ReplaceAll(string(formatted), `patch["prices"]`, "patch.prices") != source {
			t.Errorf("%s is not formatted; it should be:\n%s", name, formatted)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
