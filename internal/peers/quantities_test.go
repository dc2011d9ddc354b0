// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What decodes itself is not looked into: a kind that hid quantities so would not be checked.
func TestTypesThatDecodeThemselvesAreKnown(t *testing.T) {
	seen, found := map[reflect.Type]bool{}, map[string]bool{}
	var walk func(of reflect.Type)
	walk = func(of reflect.Type) {
		if seen[of] {
			return
		}
		seen[of] = true
		switch {
		case of.Kind() == reflect.Pointer:
			walk(of.Elem())
		case of.Kind() != reflect.Interface && reflect.PointerTo(of).Implements(reflect.TypeFor[json.Unmarshaler]()):
			found[of.String()] = true
		case slices.Contains([]reflect.Kind{reflect.Slice, reflect.Array, reflect.Map}, of.Kind()):
			walk(of.Elem())
		case of.Kind() == reflect.Struct:
			for field := range of.Fields() {
				walk(field.Type)
			}
		}
	}
	for _, kind := range testScheme(t).AllKnownTypes() {
		walk(kind)
	}
	want := map[string]bool{
		"resource.Quantity": true, "intstr.IntOrString": true, "v1.Time": true, "v1.MicroTime": true, "v1.Duration": true,
		"v1.FieldsV1": true, "runtime.RawExtension": true,
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Error(diff)
	}
}

func BenchmarkCheckQuantities(b *testing.B) {
	places := quantitiesOf(testScheme(b)).Within("object")
	event := []byte(`{"type":"MODIFIED","object":{"kind":"ShadowPod","apiVersion":"hanse.dev/v1alpha1","metadata":{"name":"web-0"},"spec":{
		"pod":{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1"}}}]}}},"status":{"phase":"Running"}}}`)
	b.ReportAllocs()
	for b.Loop() {
		if err := places.Check(event); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkQuantitiesOf(b *testing.B) {
	scheme := testScheme(b)
	for b.Loop() {
		quantitiesOf(scheme)
	}
}
