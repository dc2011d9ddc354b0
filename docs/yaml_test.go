// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/docs/markdown"
	"github.com/hanse-dev/hanse/internal/install"
)

// A document is a YAML document that a page shows.
type document struct {
	file   string
	line   int // of the block that holds the document
	text   string
	fields map[string]any
}

func (d document) String() string { return fmt.Sprintf("%s:%d", d.file, d.line) }

// isObject reports whether the document is an object of Kubernetes, and not a part of one or something else.
func (d document) isObject() bool { return d.fields["apiVersion"] != nil && d.fields["kind"] != nil }

// isShortened reports whether the page leaves out parts of the object.
func (d document) isShortened() bool { return strings.Contains(d.text, "...") }

// documents returns the YAML documents of all pages: blocks with the language yaml, blocks that begin with apiVersion, and
// the input of a shell's `<<EOF`.
func documents(t *testing.T) []document {
	t.Helper()
	pages, err := markdown.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	var all []document
	for _, page := range pages {
		for _, block := range page.Blocks {
			text := block.Text
			if _, input, isShell := strings.Cut(text, "<<EOF\n"); isShell {
				text, _, _ = strings.Cut(input, "\nEOF\n")
			} else if block.Language != "yaml" && !strings.HasPrefix(text, "apiVersion:") {
				continue
			}
			all = append(all, split(t, page.File, block.Line, text)...)
		}
	}
	return all
}

func split(t *testing.T, file string, line int, text string) []document {
	t.Helper()
	var all []document
	reader := utilyaml.NewDocumentDecoder(io.NopCloser(strings.NewReader(text)))
	buffer := make([]byte, len(text)+1)
	for {
		n, err := reader.Read(buffer)
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatalf("%s:%d: %v", file, line, err)
		}
		d := document{file: file, line: line, text: string(bytes.Clone(buffer[:n]))}
		if err := utilyaml.Unmarshal([]byte(d.text), &d.fields); err != nil {
			t.Errorf("%s: %v: correct the YAML", d, err)
			continue
		}
		all = append(all, d)
	}
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestObjectsAreValid decodes each object of our API and of Kubernetes that a page shows, and validates ours with their CRDs.
func TestObjectsAreValid(t *testing.T) {
	known, validators := scheme(t), validators(t)
	count := 0
	for _, d := range documents(t) {
		if !d.isObject() {
			continue
		}
		kind := schema.FromAPIVersionAndKind(fmt.Sprint(d.fields["apiVersion"]), fmt.Sprint(d.fields["kind"]))
		ours := strings.HasSuffix(kind.Group, v1alpha1.GroupVersion.Group)
		object, err := known.New(kind)
		if err != nil {
			if ours {
				t.Errorf("%s: there is no kind %s: correct apiVersion and kind", d, kind)
			}
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(d.text), object); err != nil {
			t.Errorf("%s: %s: %v: correct the object", d, kind.Kind, err)
		}
		if ours && !d.isShortened() {
			count++
			for _, problem := range validation.ValidateCustomResource(nil, d.fields, validators[kind.Kind]) {
				t.Errorf("%s: %s: %v: correct the object", d, kind.Kind, problem)
			}
		}
	}
	if count < 10 {
		t.Errorf("only %d objects of our API found", count)
	}
}

// validators returns what validates the objects of each kind of ours: kind → validator.
func validators(t *testing.T) map[string]validation.SchemaValidator {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "charts", "hanse", "crds", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]validation.SchemaValidator{}
	for _, file := range files {
		crd := readCRD(t, file)
		internal := &apiextensions.JSONSchemaProps{}
		err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, internal, nil)
		if err != nil {
			t.Fatal(err)
		}
		if all[crd.Spec.Names.Kind], _, err = validation.NewSchemaValidator(internal); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestPartsOfObjectsAreValid decodes parts of objects, which begin with metadata, spec or status: each must be a part of some
// kind.
func TestPartsOfObjectsAreValid(t *testing.T) {
	known := scheme(t)
	count := 0
	for _, d := range documents(t) {
		if d.isObject() || len(d.fields) == 0 {
			continue
		}
		parts := []string{"metadata", "spec", "status"}
		if slices.ContainsFunc(slices.Collect(maps.Keys(d.fields)), func(key string) bool { return !slices.Contains(parts, key) }) {
			continue
		}
		count++
		if !isPartOfSome(known, d.text) {
			t.Errorf("%s: no kind has all of these fields: correct the names\n%s", d, d.text)
		}
	}
	if count < 5 {
		t.Errorf("only %d parts of objects found", count)
	}
}

func isPartOfSome(known *runtime.Scheme, text string) bool {
	for kind := range known.AllKnownTypes() {
		object, err := known.New(kind)
		if err == nil && yaml.UnmarshalStrict([]byte(text), object) == nil {
			return true
		}
	}
	return false
}

// TestValuesAreValid renders the chart with the values that a page shows as YAML.
func TestValuesAreValid(t *testing.T) {
	keys := slices.Collect(maps.Keys(chartValues(t)))
	count := 0
	for _, d := range documents(t) {
		if len(d.fields) == 0 || slices.ContainsFunc(slices.Collect(maps.Keys(d.fields)), func(key string) bool { return !slices.Contains(keys, key) }) {
			continue
		}
		count++
		if _, err := install.Render(install.Options{Namespace: "hanse-system", Version: "v0.0.0", Values: d.fields}); err != nil {
			t.Errorf("%s: %v: correct the values", d, err)
		}
	}
	if count < 2 {
		t.Errorf("only %d documents with values found", count)
	}
}
