// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// DefinitionIn returns the definition of the kind that an administrator keeps in a ConfigMap with the data.
func DefinitionIn(data map[string]string, kind ListedKind) (*unstructured.Unstructured, error) {
	if len(data) != 1 {
		return nil, fmt.Errorf("data: has %d keys, and exactly one is needed, with the definition as YAML", len(data))
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	for _, text := range data {
		if err := yaml.UnmarshalStrict([]byte(text), definition); err != nil {
			return nil, fmt.Errorf("data: %w", err)
		}
	}
	if err := fits(definition, kind); err != nil {
		return nil, err
	}
	definition.ObjectMeta = metav1.ObjectMeta{Name: definition.Name, Labels: definition.Labels, Annotations: definition.Annotations}
	text, err := json.Marshal(definition)
	if err != nil {
		return nil, fmt.Errorf("encode it: %w", err)
	}
	content, err := decode(string(text))
	delete(content, "status")
	return &unstructured.Unstructured{Object: content}, err
}

// fits says why the definition is not one of the kind that peers may have objects of. With a webhook it could have the API server send these
// anywhere.
func fits(definition *apiextensionsv1.CustomResourceDefinition, kind ListedKind) error {
	isServed := func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == kind.Version && v.Served
	}
	spec := &definition.Spec
	switch {
	case definition.GroupVersionKind() != apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"):
		return errors.New("it is no CustomResourceDefinition of apiextensions.k8s.io/v1")
	case spec.Group != kind.Group || spec.Names.Kind != kind.Kind:
		return fmt.Errorf("it is of kind %s.%s, and not of %s", spec.Names.Kind, spec.Group, kind.Name())
	case spec.Scope != apiextensionsv1.NamespaceScoped:
		return errors.New("spec.scope: is not Namespaced, and no peer can have objects that lie in no namespace")
	case spec.Conversion != nil && spec.Conversion.Strategy != apiextensionsv1.NoneConverter:
		return errors.New("spec.conversion: a definition with a webhook is for administrators to install")
	case !slices.ContainsFunc(spec.Versions, isServed):
		return fmt.Errorf("spec.versions: %s is not among those that are served", kind.Version)
	default:
		return nil
	}
}
