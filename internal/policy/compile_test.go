// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
)

func TestCompileSaysWhatIsWrongWhere(t *testing.T) {
	for name, test := range map[string]struct {
		source string // line 1 is the package
		wants  []string
	}{
		"syntax error":             {"deny contains \"x\" if {\n", []string{"cm/0.rego:3: "}},
		"unknown variable":         {"\ndeny contains x if input.y", []string{"cm/0.rego:3: ", "x is unsafe"}},
		"unknown function":         {"deny contains \"x\" if nonsense(1)", []string{"cm/0.rego:2: ", "nonsense"}},
		"recursion":                {"x := y\nz := 1\ny := x", []string{"cm/0.rego:2: ", "recursive"}},
		"deny is a value":          {"deny := true", []string{"cm/0.rego:2: write it as: deny contains reason if"}},
		"deny is a set of another": {"deny.x contains \"y\"", []string{"cm/0.rego:2: write it as: deny contains reason if"}},
		"pend is an object":        {"pend[x] := 1 if some x in input.y", []string{"cm/0.rego:2: write it as: pend contains reason if"}},
		"allow is a function":      {"allow(x) := x", []string{"cm/0.rego:2: allow must not be a function"}},
		"prices piece by piece":    {`patch.prices.perHour[name] := 1 if some name in input.names`, []string{"cm/0.rego:2: write prices as a whole"}},
		"prices field by field":    {`patch.prices[name] := 1 if some name in input.names`, []string{"cm/0.rego:2: write prices as a whole"}},
		"not even Rego":            {"\x00\xff", []string{"cm/0.rego:"}},
		"old Rego":                 {"deny[x] { x := 1 }", []string{"cm/0.rego:2: "}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Compile(Incoming, modules(Incoming, test.source))
			if err == nil {
				t.Fatal("it compiles")
			}
			for _, want := range test.wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error does not say %q: %v", want, err)
				}
			}
			if len(err.Error()) > maxErrorText || strings.Contains(err.Error(), "\n") {
				t.Errorf("error is no short line: %v", err)
			}
		})
	}
}

func TestCompileRefuses(t *testing.T) {
	fine := modules(Incoming, "allow := true")[0]
	tooMany := []Module{}
	for i := range maxModules + 1 {
		tooMany = append(tooMany, Module{Name: fmt.Sprintf("cm/%d.rego", i), Source: fine.Source})
	}
	large := Module{Name: "cm/large.rego", Source: fine.Source + strings.Repeat("#", maxSource-len(fine.Source))}
	together := []Module{}
	for i := range maxSources/maxSource + 1 {
		together = append(together, Module{Name: fmt.Sprintf("cm/%d.rego", i), Source: large.Source})
	}
	for name, test := range map[string]struct {
		question Question
		modules  []Module
		want     string
	}{
		"another question's package": {Outgoing, []Module{fine}, "cm/0.rego:1: the package must be hanse.outgoing"},
		"the defaults' package": {
			Incoming,
			[]Module{{Name: "cm/x.rego", Source: "package hanse.defaults.incoming\nallow := false"}},
			"cm/x.rego:1: the package must be hanse.incoming",
		},
		"nothing":           {Incoming, []Module{{Name: "cm/x.rego"}}, "cm/x.rego"},
		"one name twice":    {Incoming, []Module{fine, fine}, "cm/0.rego: there are two modules of this name"},
		"unknown question":  {"lunch", nil, "there is no question"},
		"too many modules":  {Incoming, tooMany, "too large"},
		"a large module":    {Incoming, []Module{{Name: "cm/x.rego", Source: large.Source + "#"}}, "too large"},
		"too much together": {Incoming, together, "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Compile(test.question, test.modules)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if strings.Contains(test.want, "too large") && !errors.Is(err, ErrTooLarge) {
				t.Errorf("%v is not ErrTooLarge", err)
			}
		})
	}
	if _, err := Compile(Incoming, []Module{large}); err != nil {
		t.Errorf("the largest module: %v", err)
	}
}

// Every function of OPA is either on our list and works, or does not compile.
func TestOnlyAllowedBuiltinsCompile(t *testing.T) {
	for _, name := range []string{
		"http.send", "net.lookup_ip_addr", "net.cidr_expand", "opa.runtime", "time.now_ns", "rand.intn", "uuid.rfc4122", "trace",
		"io.jwt.decode", "json.unmarshal", "yaml.unmarshal", "rego.parse_module", "json.match_schema", "bits.lsh", "crypto.sha256",
		"providers.aws.sign_req", "walk", "graphql.parse", "regex.replace", "json.patch", "hex.decode",
	} {
		builtin := ast.BuiltinMap[name]
		if builtin == nil {
			t.Errorf("OPA has no %s", name)
			continue
		}
		arguments := strings.TrimSuffix(strings.Repeat("input, ", len(builtin.Decl.FuncArgs().Args)), ", ")
		_, err := Compile(Incoming, modules(Incoming, fmt.Sprintf("x := %s(%s)", name, arguments)))
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	known := map[string]bool{}
	for _, builtin := range capabilities.Builtins {
		known[builtin.Name] = true
		if builtin.Nondeterministic {
			t.Errorf("%s is not deterministic", builtin.Name)
		}
	}
	for _, name := range builtins {
		if !known[name] {
			t.Errorf("OPA has no %s", name)
		}
	}
}

func TestPrintDoesNothing(t *testing.T) {
	set := compile(t, Incoming, `deny contains "no" if { print("here", input); input.no }`)
	decision, err := set.Decide(t.Context(), input(t, `{"no": true}`))
	if err != nil || decision.Outcome != Deny {
		t.Errorf("%+v %v", decision, err)
	}
}

func FuzzCompile(f *testing.F) {
	f.Add(string(Incoming), "package hanse.incoming\ndeny contains \"x\" if input.peer.name == \"turin\"\n")
	f.Add(string(Incoming), fourTerms)
	f.Add(string(Outgoing), "package hanse.outgoing\npatch.labels[key] := 1e999999999 * 2 if some key, _ in input.labels")
	f.Add(string(Placement), "package hanse.placement\nscore[p] := [1|[2|p]] if every x in input { some p; x == p }")
	f.Add(string(ShadowPod), "package hanse.shadowpod\npatch := {\"labels\": {$\"a{input.x}\": `b`}} if not http.send({})")
	for _, question := range Questions() {
		builtin, err := Default(question)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(question), strings.Replace(builtin.Source, ".defaults", "", 1))
	}
	facts := Facts{Time: now, Peer: peer(), Advertisement: offer(), Table: NewTable(rows(3)), Request: request()}
	in, err := NewInput(facts)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, question, source string) {
		if len(source) > 2<<10 {
			t.Skip() // TestWhatIsHardToCompileTakesBoundedTime has the long ones
		}
		set, err := Compile(Question(question), []Module{{Name: "cm/fuzz.rego", Source: source}})
		if errors.Is(err, errInternal) {
			t.Fatal(err)
		}
		if err != nil {
			return
		}
		ctx, cancel := contextOf(t)
		defer cancel()
		decision, err := set.Decide(ctx, in)
		if errors.Is(err, errInternal) {
			t.Fatal(err)
		}
		if err == nil {
			checkDecision(t, decision)
		}
	})
}
