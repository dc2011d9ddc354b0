package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestReferenceNamesAll checks that the reference leaves out no condition, reason, label, annotation, taint or
// finalizer of the API.
func TestReferenceNamesAll(t *testing.T) {
	for _, test := range []struct {
		source, page string
		names        *regexp.Regexp // of the constants whose values the page must have
	}{
		{"conditions.go", "conditions.md", regexp.MustCompile(`^(Condition|Reason)`)},
		{"labels.go", "labels.md", regexp.MustCompile(`^(Label|Annotation|Taint|Finalizer|Type|ClusterRole)`)},
	} {
		page, err := os.ReadFile(filepath.Join("reference", test.page))
		if err != nil {
			t.Fatal(err)
		}
		values := constants(t, filepath.Join(root, "api", "v1alpha1", test.source), test.names)
		if len(values) < 5 {
			t.Errorf("%s: only %d constants found", test.source, len(values))
		}
		for name, value := range values {
			if !strings.Contains(string(page), "`"+value+"`") {
				t.Errorf("%s does not mention `%s` (%s)", test.page, value, name)
			}
		}
	}
}

// constants returns the string constants of a file whose names match.
func constants(t *testing.T, path string, names *regexp.Regexp) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, value := range spec.Values {
			literal, ok := value.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING || !names.MatchString(spec.Names[i].Name) {
				continue
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			found[spec.Names[i].Name] = text
		}
		return true
	})
	return found
}
