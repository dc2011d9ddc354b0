// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
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
		{"labels.go", "labels.md", regexp.MustCompile(`^(Label|Annotation|Taint|Finalizer|Type|ClusterRole|Gate|Pod[A-Z]|Node[A-Z])`)},
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

// ownKey is a label, an annotation, a taint or the like, spelled out in Go.
var ownKey = regexp.MustCompile(`"hanse\.dev/[a-z-]+[="]`)

// TestKeysStandInOneFile checks that api/v1alpha1/labels.go alone spells the keys of our labels and annotations.
func TestKeysStandInOneFile(t *testing.T) {
	for _, tree := range []string{"api", "cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, tree), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || filepath.Base(path) == "labels.go" {
				return err
			}
			source, err := os.ReadFile(path)
			for _, key := range ownKey.FindAllString(string(source), -1) {
				if key != `"hanse.dev/namespaces"` { // the name of a controller, in events
					t.Errorf("%s spells %s: use the constant of api/v1alpha1/labels.go, or add one", path, key)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
