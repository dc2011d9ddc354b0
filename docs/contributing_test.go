// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// read returns the content of a file, by its path from the root.
func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// section returns the text between a heading of the second level and the next one.
func section(t *testing.T, page, title string) string {
	t.Helper()
	_, after, found := strings.Cut(page, "\n## "+title+"\n")
	if !found {
		t.Fatalf("there is no heading %q", title)
	}
	text, _, _ := strings.Cut(after, "\n## ")
	return text
}

var (
	// mapped are the folders whose children each have a line in the map. Hidden folders need none.
	mapped  = []string{".", "cmd", "docs", "internal", "test", "testbed"}
	mapLine = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.+) \\|$")
)

// TestMapNamesEachFolder compares the map of CONTRIBUTING.md with the repository.
func TestMapNamesEachFolder(t *testing.T) {
	lines := mapLine.FindAllStringSubmatch(section(t, read(t, "CONTRIBUTING.md"), "Map of the repository"), -1)
	named := map[string]bool{}
	for _, line := range lines {
		folder := line[1]
		if named[folder] {
			t.Errorf("the map of CONTRIBUTING.md names %s twice", folder)
		}
		named[folder] = true
		if info, err := os.Stat(filepath.Join(root, filepath.FromSlash(folder))); err != nil || !info.IsDir() {
			t.Errorf("the map of CONTRIBUTING.md names %s, which is not a folder", folder)
		}
	}
	for _, parent := range mapped {
		entries, err := os.ReadDir(filepath.Join(root, filepath.FromSlash(parent)))
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			folder := path.Join(parent, entry.Name())
			isOutput := folder == "bin" || strings.HasPrefix(entry.Name(), ".")
			if entry.IsDir() && !isOutput && !named[folder] {
				t.Errorf("the map of CONTRIBUTING.md lacks %s: add a line", folder)
			}
		}
	}
}

// namedPath is a file or folder of the repository in a code span. One with a placeholder such as <kind> is none.
var namedPath = regexp.MustCompile("`((?:\\.ci|\\.devcontainer|\\.github|api|bench|charts|cmd|demo|docs|hack|internal|policies|test|testbed)/[A-Za-z0-9_./-]+)`")

// TestContributorPagesNamePathsThatExist checks what the pages for contributors say about where to look and what to change.
func TestContributorPagesNamePathsThatExist(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join("contributing", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages found (%v)", len(pages), err)
	}
	for _, page := range pages {
		page = path.Join("docs", filepath.ToSlash(page))
		named := namedPath.FindAllStringSubmatch(read(t, page), -1)
		if path.Base(page) == "recipes.md" && len(named) < 80 {
			t.Errorf("%s names only %d paths", page, len(named))
		}
		for _, match := range named {
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(match[1]))); err != nil {
				t.Errorf("%s names %s, which does not exist", page, match[1])
			}
		}
	}
}

// TestDebuggingNamesEachController compares the tables of controllers and loggers with the code.
func TestDebuggingNamesEachController(t *testing.T) {
	page := read(t, "docs/contributing/debugging.md")
	for _, test := range []struct {
		title, method string
		atLeast       int
	}{
		{"Controllers", "Named", 30},
		{"Named loggers", "WithName", 5},
	} {
		want := namesGivenTo(t, test.method)
		if len(want) < test.atLeast {
			t.Errorf("only %d calls of %s found", len(want), test.method)
		}
		got := map[string]bool{}
		for _, line := range mapLine.FindAllStringSubmatch(section(t, page, test.title), -1) {
			got[line[1]] = true
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
			t.Errorf("debugging.md, %q (-code +page):\n%s", test.title, diff)
		}
	}
}

// namesGivenTo returns the literals that calls of the method have in the code of both programs.
func namesGivenTo(t *testing.T, method string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, tree := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, tree), func(file string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
				return err
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(parsed, func(node ast.Node) bool {
				if name, ok := literalOf(node, method); ok {
					names[name] = true
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// literalOf returns the only argument of a call of the method, if it is a string literal.
func literalOf(node ast.Node, method string) (string, bool) {
	call, ok := node.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return "", false
	}
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != method {
		return "", false
	}
	literal, ok := call.Args[0].(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	name, err := strconv.Unquote(literal.Value)
	return name, err == nil
}

// TestDependencyUpdatesCoverEachModule checks that no go.mod is forgotten.
func TestDependencyUpdatesCoverEachModule(t *testing.T) {
	config := struct {
		Updates []struct {
			Ecosystem   string   `json:"package-ecosystem"`
			Directory   string   `json:"directory"`
			Directories []string `json:"directories"`
		} `json:"updates"`
	}{}
	if err := yaml.Unmarshal([]byte(read(t, ".github/dependabot.yml")), &config); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, update := range config.Updates {
		if update.Ecosystem == "gomod" {
			got = append(got, update.Directories...)
		}
		for _, directory := range append(update.Directories, update.Directory) {
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(directory))); err != nil {
				t.Errorf("dependabot.yml names %s, which does not exist", directory)
			}
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(modules(t), got); diff != "" {
		t.Errorf("modules of .github/dependabot.yml (-repository +file):\n%s", diff)
	}
}

// modules returns the folders that have a go.mod, from the root, sorted.
func modules(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && file != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "bin") {
			return filepath.SkipDir
		}
		if entry.Name() == "go.mod" {
			folder, err := filepath.Rel(root, filepath.Dir(file))
			if err != nil {
				return err
			}
			found = append(found, path.Join("/", filepath.ToSlash(folder)))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	return found
}

// An issueForm is what GitHub takes of a file in .github/ISSUE_TEMPLATE. It shows no form at all if a field is unknown.
type issueForm struct {
	Name        string      `json:"name"`
	Description string      `json:"description"`
	Title       string      `json:"title,omitempty"`
	Labels      []string    `json:"labels"`
	Body        []formField `json:"body"`
}

type formField struct {
	Type       string `json:"type"`
	ID         string `json:"id,omitempty"`
	Attributes struct {
		Label       string `json:"label,omitempty"`
		Description string `json:"description,omitempty"`
		Placeholder string `json:"placeholder,omitempty"`
		Render      string `json:"render,omitempty"`
		Value       string `json:"value,omitempty"`
		Options     []any  `json:"options,omitempty"`
	} `json:"attributes"`
	Validations struct {
		Required bool `json:"required"`
	} `json:"validations"`
}

// TestIssueFormsAreValid checks the forms by the rules of GitHub, which reports mistakes only to those who open an issue.
func TestIssueFormsAreValid(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github", "ISSUE_TEMPLATE", "*.yml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%d forms found (%v)", len(files), err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		if name == "config.yml" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			form := issueForm{}
			if err := yaml.UnmarshalStrict([]byte(read(t, ".github/ISSUE_TEMPLATE/"+name)), &form); err != nil {
				t.Fatal(err)
			}
			if form.Name == "" || form.Description == "" || len(form.Body) == 0 {
				t.Error("a form needs name, description and body")
			}
			checkFields(t, form.Body)
		})
	}
}

func checkFields(t *testing.T, fields []formField) {
	t.Helper()
	ids := map[string]bool{}
	for i := range fields {
		field := &fields[i]
		if problem := field.problem(); problem != "" {
			t.Errorf("field %d: %s", i+1, problem)
		}
		if field.ID != "" && ids[field.ID] {
			t.Errorf("two fields have the id %q", field.ID)
		}
		ids[field.ID] = true
	}
}

// problem returns what is wrong with a field, or nothing.
func (f *formField) problem() string {
	switch f.Type {
	case "markdown":
		if f.ID != "" || f.Attributes.Label != "" || f.Attributes.Value == "" {
			return "text has a value, and neither id nor label"
		}
	case "textarea", "input", "dropdown", "checkboxes":
		if f.ID == "" || f.Attributes.Label == "" {
			return "it needs an id and a label"
		}
	default:
		return "there is no such type"
	}
	return ""
}

// TestCodeOwnersNamePathsThatExist checks the patterns of .github/CODEOWNERS that begin at the root.
func TestCodeOwnersNamePathsThatExist(t *testing.T) {
	patterns := 0
	for line := range strings.Lines(read(t, ".github/CODEOWNERS")) {
		pattern, _, _ := strings.Cut(line, " ")
		if !strings.HasPrefix(pattern, "/") {
			continue
		}
		patterns++
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(pattern))); err != nil {
			t.Errorf("CODEOWNERS names %s, which does not exist", pattern)
		}
	}
	if patterns < 5 {
		t.Errorf("CODEOWNERS has only %d patterns", patterns)
	}
}

// TestGoVersionIsOne checks that workflows and the development container use the minor version of Go that go.mod needs.
func TestGoVersionIsOne(t *testing.T) {
	found := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))
	if found == nil {
		t.Fatal("go.mod names no version of Go")
	}
	for file, want := range map[string]string{
		".github/actions/setup/action.yaml": "go-version: " + found[1] + ".x\n",
		".devcontainer/Dockerfile":          "FROM golang:" + found[1] + "-",
	} {
		if !strings.Contains(read(t, file), want) {
			t.Errorf("%s does not contain %q", file, want)
		}
	}
}
