// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"
)

// What tracing changes, and nothing else: flags, a mount, and the right to read the id of the cluster.
func TestTracingIsTheReviewedOne(t *testing.T) {
	traced := options()
	traced.Values = map[string]any{"tracing": map[string]any{
		"endpoint": "collector.observability:4317", "caSecretName": "collector-ca", "samplePercent": 0.5,
	}}
	without := texts(t, options())
	changed := slices.DeleteFunc(texts(t, traced), func(text string) bool { return slices.Contains(without, text) })
	var all bytes.Buffer
	for _, text := range changed {
		fmt.Fprintf(&all, "---\n%s", text)
	}
	golden(t, "tracing.yaml", all.Bytes())
}

// texts returns each object that is installed, as YAML.
func texts(t *testing.T, o Options) []string {
	t.Helper()
	var all []string
	for _, object := range mustRender(t, o).Objects {
		data, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(data))
	}
	return all
}

func TestWrongTracingIsRefused(t *testing.T) {
	for name, tracing := range map[string]map[string]any{
		"a collector without a port": {"endpoint": "collector"},
		"more than all":              {"endpoint": "collector:4317", "samplePercent": 101},
		"something unknown":          {"endpoints": "collector:4317"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options()
			o.Values = map[string]any{"tracing": tracing}
			if _, err := Render(o); err == nil {
				t.Error("no error")
			}
		})
	}
}
