// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/harness"
)

// TestAllDefinitionsAreEstablished: the API server serves every kind of the chart, and finds nothing to warn of in its schema.
func TestAllDefinitionsAreEstablished(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(harness.Root, "charts", "hanse", "crds", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the chart has no definitions: %v", err)
	}
	for _, file := range files {
		plural := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "hanse.dev_"), ".yaml")
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := lubeck.Get(t.Context(), types.NamespacedName{Name: plural + ".hanse.dev"}, definition); err != nil {
			t.Error(err)
			continue
		}
		status := map[apiextensionsv1.CustomResourceDefinitionConditionType]apiextensionsv1.ConditionStatus{}
		for _, condition := range definition.Status.Conditions {
			status[condition.Type] = condition.Status
		}
		if status[apiextensionsv1.Established] != apiextensionsv1.ConditionTrue || status[apiextensionsv1.NamesAccepted] != apiextensionsv1.ConditionTrue ||
			status[apiextensionsv1.NonStructuralSchema] == apiextensionsv1.ConditionTrue {
			t.Errorf("%s: %+v", plural, definition.Status.Conditions)
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(definition.Spec.Names.ListKind))
		if err := lubeck.List(t.Context(), list); err != nil {
			t.Error(err)
		}
	}
}

// definitionRules are objects by which the rules of the definitions show: each with a change that the API server must refuse. The
// whole list of rules is that of api/v1alpha1, which runs the same code in-process; these show that the real server has them in force.
var definitionRules = []struct {
	name, kind, spec string
	object           string // name of the object, if it is a special one
	change, refusal  string // a merge patch for the spec, and a part of the message; empty for an object that is good
	isUpdate         bool   // the object exists before the change
}{
	{name: "role of a peer", kind: "Peer", spec: "{roles: [Provider]}", change: "{roles: [King]}", refusal: "Unsupported value"},
	{name: "one role twice", kind: "Peer", spec: "{roles: [Provider]}", change: "{roles: [Provider, Provider]}", refusal: "Duplicate"},
	{name: "id of a peer", kind: "Peer", spec: "{roles: [Provider], clusterID: visby}", change: "{clusterID: Visby}", refusal: "clusterID"},
	{name: "another id later", kind: "Peer", spec: "{roles: [Provider], clusterID: visby}", change: "{clusterID: stade}", refusal: "clusterID is immutable", isUpdate: true},
	{name: "invited provider", kind: "Peer", spec: "{roles: [Consumer], invitation: {}}", change: "{roles: [Provider]}", refusal: "only a peer of role Consumer is invited"},
	{name: "invitation for a year", kind: "Peer", spec: "{roles: [Consumer], invitation: {timeToLive: 10m}}", change: "{invitation: {timeToLive: 8760h}}", refusal: "between 1s and 168h"},
	{name: "agentless consumer", kind: "Peer", spec: "{mode: Agentless, roles: [Provider], namespaces: [a]}", change: "{roles: [Consumer]}", refusal: "its only role is Provider"},
	{
		name: "opening between two of our namespaces", kind: "Peer", spec: "{network: {open: [{from: {peerNamespace: a}, to: {namespace: b}}]}}",
		change: "{network: {open: [{from: {namespace: a}, to: {namespace: b}}]}}", refusal: "one side of an opening",
	},
	{name: "strategy", kind: "NamespaceOffloading", object: "offloading", spec: "{strategy: Remote}", change: "{strategy: Elsewhere}", refusal: "Unsupported value"},
	{
		name: "selector without values", kind: "NamespaceOffloading", object: "offloading",
		spec:   "{clusterSelector: {matchExpressions: [{key: zone, operator: In, values: [a]}]}}",
		change: "{clusterSelector: {matchExpressions: [{key: zone, operator: In, values: []}]}}", refusal: "need values",
	},
	{
		name: "latency of nothing", kind: "NamespaceOffloading", object: "offloading", spec: "{placement: {maxLatency: 50ms}}",
		change: "{placement: {maxLatency: 0s}}", refusal: "maxLatency must be above",
	},
	{
		name: "move to two places", kind: "PodMove", spec: "{pod: {name: web, uid: u}, destination: {node: a}}", change: "{destination: {peer: b}}",
		refusal: "exactly one of node, peer, nodeSelector and elsewhere",
	},
	{
		name: "move past the scheduler to anywhere", kind: "PodMove", spec: "{pod: {name: web, uid: u}, destination: {elsewhere: AnyNode}}",
		change: "{bind: AtCreation}", refusal: "nobody chooses",
	},
	{
		name: "move that changes", kind: "PodMove", spec: "{pod: {name: web, uid: u}, destination: {node: a}}", change: "{destination: {node: b}}",
		refusal: "immutable", isUpdate: true,
	},
	{
		name: "advertisement that ends before it begins", kind: "Advertisement",
		spec:   `{clusterID: visby, sequence: 1, timestamp: "2026-01-01T00:00:00Z", timeToLive: "2026-01-01T00:30:00Z", availability: {cpu: "4"}}`,
		change: `{timeToLive: "2025-12-31T23:00:00Z"}`, refusal: "timeToLive must be later",
	},
	{
		name: "malformed quantity", kind: "Advertisement",
		spec:   `{clusterID: visby, sequence: 1, timestamp: "2026-01-01T00:00:00Z", timeToLive: "2026-01-01T00:30:00Z", availability: {cpu: "4"}}`,
		change: "{availability: {cpu: lots}}", refusal: "availability",
	},
	{name: "mapping of another name", kind: "NamespaceMapping", object: "shop", spec: "{homeNamespace: shop}", change: "{homeNamespace: store}", refusal: "homeNamespace"},
	{
		name: "negative replicas", kind: "Request", object: "shop",
		spec:   `{application: {uid: u, name: shop}, expirationTime: "2026-01-01T00:30:00Z", components: [{name: web, replicas: 3, resources: {cpu: 500m}}]}`,
		change: "{components: [{name: web, replicas: -1}]}", refusal: "replicas",
	},
	{
		name: "component twice", kind: "Application", spec: "{components: [{name: web, podLabels: {app: web}}, {name: db, podLabels: {app: db}}]}",
		change: "{components: [{name: web, podLabels: {app: web}}, {name: web, podLabels: {app: db}}]}", refusal: "Duplicate",
	},
}

func TestRulesOfDefinitionsAreInForce(t *testing.T) {
	t.Parallel()
	ns := lubeck.MustNamespace(t)
	for _, rule := range definitionRules {
		t.Run(rule.name, func(t *testing.T) {
			object := &unstructured.Unstructured{Object: map[string]any{"spec": parse(t, rule.spec)}}
			object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(rule.kind))
			object.SetName("rule")
			if rule.object != "" {
				object.SetName(rule.object)
			}
			if rule.kind != "Peer" {
				object.SetNamespace(ns)
			}
			options := []client.CreateOption{client.DryRunAll}
			if rule.isUpdate {
				options = nil
				t.Cleanup(func() { lubeck.DeleteAndWait(t, object) })
			}
			if err := lubeck.Create(t.Context(), object.DeepCopy(), options...); err != nil {
				t.Fatalf("the good object: %v", err)
			}
			if err := change(t, object, rule.change, rule.isUpdate); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), rule.refusal) {
				t.Errorf("the API server says %v, want a refusal with %q", err, rule.refusal)
			}
		})
	}
}

// change sends the changed object to the API server, as an update or as a new one.
func change(t *testing.T, object *unstructured.Unstructured, patch string, isUpdate bool) error {
	t.Helper()
	if isUpdate {
		data, err := yaml.YAMLToJSON([]byte(patch))
		if err != nil {
			t.Fatal(err)
		}
		raw := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":%s}`, data))
		return lubeck.Patch(t.Context(), object.DeepCopy(), raw, client.DryRunAll)
	}
	changed := object.DeepCopy()
	spec, ok := changed.Object["spec"].(map[string]any)
	if !ok {
		t.Fatal("the object has no spec")
	}
	merge(spec, parse(t, patch))
	return lubeck.Create(t.Context(), changed, client.DryRunAll)
}

// merge replaces fields of an object, and of the objects in it.
func merge(into, changes map[string]any) {
	for key, value := range changes {
		inner, isMap := value.(map[string]any)
		if old, had := into[key].(map[string]any); isMap && had {
			merge(old, inner)
			continue
		}
		into[key] = value
	}
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	object := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return object
}
