// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A ListedKind is one that administrators name: of which objects are reflected as they are, or of which peers may have objects.
type ListedKind struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
	// Omit are the paths of fields that stay at home, such as spec.secret.
	Omit []string `json:"omit,omitempty"`
	// Status is whether the status of the copy is written onto the object at home.
	Status bool `json:"status,omitempty"`
	// Definition is the ConfigMap in Hanse's namespace with the definition that is installed where there is none.
	Definition string `json:"definition,omitempty"`
}

// fieldPath is what an entry of Omit looks like. Metadata never goes anyway.
var fieldPath = regexp.MustCompile(`^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*$`)

// ParseListedKind reads one as JSON.
func ParseListedKind(text string) (ListedKind, error) {
	kind := ListedKind{}
	if err := yaml.UnmarshalStrict([]byte(text), &kind); err != nil {
		return kind, err
	}
	if kind.Group == "" || kind.Version == "" || kind.Kind == "" {
		return kind, errors.New("group, version and kind are needed")
	}
	if why := forbiddenGroup(kind.GroupKind()); why != "" {
		return kind, errors.New(why)
	}
	if problems := validation.IsValidLabelValue(string(kind.Name())); len(problems) > 0 {
		return kind, fmt.Errorf("%s: %s", kind.Name(), strings.Join(problems, ", "))
	}
	for _, path := range kind.Omit {
		if !fieldPath.MatchString(path) {
			return kind, fmt.Errorf("omit: %q is no path of a field, such as spec.secret", path)
		}
	}
	return kind, nil
}

// forbiddenGroup says why no administrator can have objects of the kind made for a peer. The definition of Peer has the same rule.
func forbiddenGroup(kind schema.GroupKind) string {
	isRoute := kind.Group == HTTPRoute.Group && kind.Kind == HTTPRoute.Kind
	isOurs := kind.Group == v1alpha1.Domain || strings.HasSuffix(kind.Group, "."+v1alpha1.Domain)
	if strings.Contains(kind.Group, ".") && !isOurs && (!strings.HasSuffix(kind.Group, ".k8s.io") || isRoute) {
		return ""
	}
	return fmt.Sprintf("%s: kinds of Kubernetes itself, of *.k8s.io and of hanse.dev cannot be listed, but for HTTPRoute: "+
		"with them a peer could run pods, or give rights, past all checks", kind)
}

// Name is by which administrators set the reach of the kind, such as Widget.example.org.
func (k ListedKind) Name() Kind { return Kind(k.Kind + "." + k.Group) }

// GroupKind is the kind without its version.
func (k ListedKind) GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: k.Group, Kind: k.Kind}
}

// GroupVersionKind is the kind.
func (k ListedKind) GroupVersionKind() schema.GroupVersionKind {
	return k.GroupKind().WithVersion(k.Version)
}

// Sources are what Plan must know of the objects of the kind that have copies at peers with pods of the namespace, given their
// metadata, by the names of the copies.
func (k ListedKind) Sources(all []metav1.PartialObjectMetadata, reach Reach) map[string]Copy {
	found := map[string]Copy{}
	for i := range all {
		object := &all[i]
		stays := reach.Stays(object)
		if object.DeletionTimestamp != nil || IsCopy(object) || stays != "" && !isSkipped(object) {
			continue
		}
		found[ShadowName(k.Name(), object.Name)] = Copy{Source: Source{
			UID: object.UID, Name: object.Name, Version: k.version(object), Stays: stays,
		}}
	}
	return found
}

// version is another one whenever the copy must be: not with each change of the status, where the API server counts generations.
func (k ListedKind) version(object metav1.Object) string {
	if object.GetGeneration() == 0 {
		return object.GetResourceVersion()
	}
	return fmt.Sprintf("%d-%s", object.GetGeneration(), Fingerprint([]any{k, object.GetLabels()}))
}

// Outbound returns the copy of an object of the kind that a twin namespace gets, or a Refusal.
func (k ListedKind) Outbound(source *unstructured.Unstructured, twin string, reach Reach) (*v1alpha1.ShadowObject, error) {
	if why := reach.Stays(source); why != "" {
		return nil, why
	}
	content := source.DeepCopy().Object
	for _, field := range append([]string{"apiVersion", "kind", "metadata", "status"}, k.Omit...) {
		unstructured.RemoveNestedField(content, strings.Split(field, ".")...)
	}
	out, err := shadowOf(source, k.Name(), k.GroupVersionKind(), content)
	if err != nil {
		return nil, err
	}
	out.Namespace, out.Spec.StatusBack = twin, k.Status
	out.Annotations[v1alpha1.AnnotationOriginVersion] = k.version(source)
	return out, nil
}
