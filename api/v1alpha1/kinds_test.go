// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"os"
	"path/filepath"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// A kind validates objects as the API server does: defaults, schema, list types, then CEL rules.
type kind struct {
	structural *structuralschema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

func loadKind(t *testing.T, plural string) kind {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "charts", "hanse", "crds", "hanse.dev_"+plural+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &crd); err != nil {
		t.Fatal(err)
	}
	var internal apiextensions.CustomResourceValidation
	err = apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(
		crd.Spec.Versions[0].Schema, &internal, nil)
	if err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(internal.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	schema, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	return kind{
		structural: structural,
		schema:     schema,
		rules:      cel.NewValidator(structural, true, celconfig.PerCallLimit),
	}
}

func (k kind) validate(t *testing.T, object, old map[string]any) field.ErrorList {
	t.Helper()
	defaulting.Default(object, k.structural)
	errs := validation.ValidateCustomResource(nil, object, k.schema)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, k.structural, object)...)
	var before any
	if old != nil {
		before = old
	}
	ruleErrs, _ := k.rules.Validate(t.Context(), nil, k.structural, object, before, celconfig.RuntimeCELCostBudget)
	return append(errs, ruleErrs...)
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	if text == "" {
		return nil
	}
	object := map[string]any{}
	if err := utilyaml.Unmarshal([]byte(text), &object); err != nil { // which tells whole numbers from others, as the API server does
		t.Fatal(err)
	}
	return object
}
