// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const ofWidgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.org, labels: {app: widgets}, annotations: {note: a}, finalizers: [example.org/hold]}
spec:
  group: example.org
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v2, served: false, storage: false}
`

func TestADefinitionOfAnAdministrator(t *testing.T) {
	got, err := DefinitionIn(map[string]string{"widgets.yaml": ofWidgets}, ListedKind{Group: "example.org", Version: "v1", Kind: "Widget"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"name": "widgets.example.org", "labels": map[string]any{"app": "widgets"}, "annotations": map[string]any{"note": "a"},
	}
	if diff := cmp.Diff(want, got.Object["metadata"]); diff != "" || got.Object["status"] != nil || got.GetKind() != "CustomResourceDefinition" {
		t.Errorf("%v (-want +got):\n%s", got.Object, diff)
	}
}

func TestDefinitionsThatAreNotInstalled(t *testing.T) {
	replaced := func(old, by string) map[string]string {
		return map[string]string{"widgets.yaml": strings.Replace(ofWidgets, old, by, 1)}
	}
	webhook := "group: example.org\n  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: https://example.org}}}"
	for name, test := range map[string]struct {
		data map[string]string
		want string
	}{
		"none":                {nil, "has 0 keys"},
		"two":                 {map[string]string{"a": ofWidgets, "b": ofWidgets}, "has 2 keys"},
		"no definition":       {map[string]string{"a": "apiVersion: v1\nkind: Secret"}, "no CustomResourceDefinition"},
		"no YAML":             {map[string]string{"a": "{"}, "data"},
		"an unknown field":    {replaced("scope:", "scoop: x\n  scope:"), "scoop"},
		"another group":       {replaced("group: example.org", "group: example.com"), "not of Widget.example.org"},
		"another kind":        {replaced("kind: Widget", "kind: Gadget"), "not of Widget.example.org"},
		"of no namespace":     {replaced("Namespaced", "Cluster"), "spec.scope"},
		"with a webhook":      {replaced("group: example.org", webhook), "spec.conversion"},
		"of another version":  {replaced("name: v1", "name: v3"), "spec.versions: v1"},
		"of an unserved kind": {replaced("name: v1, served: true", "name: v1, served: false"), "spec.versions: v1"},
	} {
		got, err := DefinitionIn(test.data, ListedKind{Group: "example.org", Version: "v1", Kind: "Widget"})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
