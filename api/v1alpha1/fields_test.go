// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"slices"
	"strings"
	"testing"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// Every string, list and map of our kinds is bounded, and every field explains itself to kubectl.
func TestFieldsAreBoundedAndDescribed(t *testing.T) {
	for _, plural := range []string{"peers", "advertisements", "namespaceoffloadings", "namespacemappings", "shadowpods", "connections", "exportedservices", "podmoves", "requests"} {
		root := loadKind(t, plural).structural
		for _, part := range []string{"spec", "status"} {
			node := root.Properties[part]
			inspect(t, plural+"."+part, &node)
		}
	}
}

// Records are written more often than anything else, so that what is worked out for each write must be little.
func TestRecordsAreCheapToWrite(t *testing.T) {
	root := loadKind(t, "shadowpods").structural
	for _, part := range []string{"spec", "status"} {
		node := root.Properties[part]
		if kind := node.XMapType; kind == nil || *kind != "atomic" {
			t.Errorf("%s is not atomic", part)
		}
	}
	noRules(t, "shadowpods", root)
}

// noRules checks that nothing is evaluated with each write, of the status as well.
func noRules(t *testing.T, path string, node *structuralschema.Structural) {
	t.Helper()
	if len(node.XValidations) > 0 {
		t.Errorf("%s has rules in CEL: they belong into hanse-guard-objects", path)
	}
	for name, child := range node.Properties {
		noRules(t, path+"."+name, &child)
	}
	if node.Items != nil {
		noRules(t, path+"[]", node.Items)
	}
}

func inspect(t *testing.T, path string, node *structuralschema.Structural) {
	t.Helper()
	if strings.HasSuffix(path, "conditions") {
		return // metav1.Condition brings its own bounds and texts
	}
	if unbounded(path, node) {
		t.Errorf("%s: a %s without a maximum", path, node.Type)
	}
	for name, child := range node.Properties {
		if child.Description == "" && !strings.Contains(path, "[]") {
			t.Errorf("%s.%s: no description", path, name)
		}
		inspect(t, path+"."+name, &child)
	}
	if node.Items != nil {
		inspect(t, path+"[]", node.Items)
	}
}

// durations have a form that bounds them.
var durations = []string{"peers.status.roundTripTime", "peers.status.roundTripDeviation", "connections.status.roundTripTime"}

func unbounded(path string, node *structuralschema.Structural) bool {
	if node.XIntOrString || node.XPreserveUnknownFields || slices.Contains(durations, path) {
		return false // quantities and durations have a form; pods are bounded by who reads them
	}
	bounds := node.ValueValidation
	if bounds == nil {
		bounds = &structuralschema.ValueValidation{}
	}
	switch node.Type {
	case "string":
		return bounds.MaxLength == nil && bounds.Format != "date-time" && len(bounds.Enum) == 0
	case "array":
		return bounds.MaxItems == nil
	default:
		return false
	}
}
