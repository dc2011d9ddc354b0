// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

var update = flag.Bool("update", false, "write reference/api.md anew from the CRDs")

const apiHead = `# API reference

Group ` + "`hanse.dev`" + `, version ` + "`v1alpha1`" + `. This page is made from the CRDs, by ` +
	"`go test ./docs -run TestAPIReference -update`" + `. ` + "`kubectl explain peer.spec`" + ` prints the same texts.
Fields in **bold** are required.
`

func TestAPIReference(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "charts", "hanse", "crds", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d CRDs found (%v)", len(files), err)
	}
	want := apiHead
	for _, file := range files {
		want += describeKind(readCRD(t, file))
	}
	page := filepath.Join("reference", "api.md")
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not what the CRDs say: run go test ./docs -run TestAPIReference -update\n%s", page, diff)
	}
}

func readCRD(t *testing.T, file string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, crd); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return crd
}

func describeKind(crd *apiextensionsv1.CustomResourceDefinition) string {
	schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	text := fmt.Sprintf("\n## %s\n\n%s\n\nScope: %s. Short name: `%s`.\n\n| field | type | meaning |\n|---|---|---|\n",
		crd.Spec.Names.Kind, oneLine(schema.Description), crd.Spec.Scope, strings.Join(crd.Spec.Names.ShortNames, "`, `"))
	for _, part := range []string{"spec", "status"} {
		text += describeFields(part, schema.Properties[part])
	}
	for _, rule := range schema.XValidations {
		text += fmt.Sprintf("\nRule: %s.\n", rule.Message)
	}
	return text
}

// describeFields makes a line for each field below a path.
func describeFields(path string, schema apiextensionsv1.JSONSchemaProps) string {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		field, shown := schema.Properties[name], path+"."+name
		label := "`" + shown + "`"
		if slices.Contains(schema.Required, name) {
			label = "**" + label + "**"
		}
		text += fmt.Sprintf("| %s | %s | %s |\n", label, typeOf(field), meaning(field))
		switch {
		case name == "conditions": // Kubernetes' own type
		case field.Items != nil:
			text += describeFields(shown+"[]", *field.Items.Schema)
		default:
			text += describeFields(shown, field)
		}
	}
	return text
}

func typeOf(schema apiextensionsv1.JSONSchemaProps) string {
	switch {
	case schema.XIntOrString:
		return "quantity"
	case schema.Items != nil:
		return "list of " + typeOf(*schema.Items.Schema)
	case schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil:
		return "map of " + typeOf(*schema.AdditionalProperties.Schema)
	case schema.Format != "":
		return schema.Format
	}
	return schema.Type
}

func meaning(schema apiextensionsv1.JSONSchemaProps) string {
	text := oneLine(schema.Description)
	values := schema.Enum
	if schema.Items != nil {
		values = append(values, schema.Items.Schema.Enum...)
	}
	if len(values) > 0 {
		text += " One of"
		for _, value := range values {
			text += " `" + strings.Trim(string(value.Raw), `"`) + "`"
		}
		text += "."
	}
	return text
}

func oneLine(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}
