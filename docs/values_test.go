// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/docs/markdown"
)

// chartValues returns the default values of the chart.
func chartValues(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "charts", "hanse", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// A documentedValue is a value that reference/helm-values.md describes.
type documentedValue struct {
	line         int
	defaultCell  string
	defaultCode  string // the default, if the cell states it as code
	meaningCodes []string
}

const valuesPage = "reference/helm-values.md"

// documentedValues reads the page: path of the value → description. A row may describe several values, such as
// `manager.replicas`, `kubelet.replicas`, or `discovery.replicas`, `.extraArgs`.
func documentedValues(t *testing.T) map[string]documentedValue {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(valuesPage))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]documentedValue{}
	for _, table := range markdown.Parse(valuesPage, string(text)).Tables {
		for _, row := range table.Rows {
			names := markdown.Codes(row.Cells[0])
			defaults := strings.Split(row.Cells[1], ", ")
			if len(defaults) != len(names) {
				defaults = slices.Repeat([]string{row.Cells[1]}, len(names))
			}
			parent := ""
			for i, name := range names {
				if strings.HasPrefix(name, ".") {
					name = parent + name
				} else if end := strings.LastIndex(name, "."); end >= 0 {
					parent = name[:end]
				}
				value := documentedValue{line: row.Line, defaultCell: defaults[i], meaningCodes: markdown.Codes(row.Cells[2])}
				if codes := markdown.Codes(defaults[i]); len(codes) == 1 && defaults[i] == "`"+codes[0]+"`" {
					value.defaultCode = codes[0]
				}
				found[name] = value
			}
		}
	}
	return found
}

// TestReferenceDescribesEachValue compares reference/helm-values.md with values.yaml and values.schema.json of the chart.
func TestReferenceDescribesEachValue(t *testing.T) {
	described, values := documentedValues(t), chartValues(t)
	schema := chartSchema(t)
	leaves := map[string]any{}
	collect("", values, described, leaves)
	if len(leaves) < 50 {
		t.Errorf("only %d values found", len(leaves))
	}
	for _, path := range slices.Sorted(maps.Keys(leaves)) {
		value, isDescribed := described[path]
		if !isDescribed {
			t.Errorf("%s does not describe %s of values.yaml: add a row", valuesPage, path)
			continue
		}
		if problem := compareDefault(leaves[path], value); problem != "" {
			t.Errorf("%s:%d: %s: %s", valuesPage, value.line, path, problem)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(described)) {
		property := propertyAt(schema, path)
		if property == nil {
			t.Errorf("%s:%d: the chart has no value %s: remove it (values.schema.json)", valuesPage, described[path].line, path)
			continue
		}
		for _, choice := range choices(property) {
			if !slices.Contains(described[path].meaningCodes, choice) && described[path].defaultCode != choice {
				t.Errorf("%s:%d: %s accepts `%s`, too: add it", valuesPage, described[path].line, path, choice)
			}
		}
	}
}

// collect finds the values that need a description: those that are no maps, and maps that the page describes as a whole.
func collect(path string, value any, described map[string]documentedValue, into map[string]any) {
	fields, isMap := value.(map[string]any)
	_, isDescribed := described[path]
	if !isMap || isDescribed || len(fields) == 0 && !hasBelow(path, described) {
		into[path] = value
		return
	}
	for name, field := range fields {
		collect(strings.TrimPrefix(path+"."+name, "."), field, described, into)
	}
}

// hasBelow reports whether the page describes fields of a map that is empty by default.
func hasBelow(path string, described map[string]documentedValue) bool {
	for name := range described {
		if strings.HasPrefix(name, path+".") {
			return true
		}
	}
	return false
}

// compareDefault compares a default of values.yaml with the page. Empty values leave the default to the process: the page
// then states that of the process.
func compareDefault(actual any, stated documentedValue) string {
	text, err := json.Marshal(actual)
	if err != nil {
		return err.Error()
	}
	isEmpty := slices.Contains([]string{`""`, "[]", "{}", "null"}, string(text))
	if stated.defaultCode == "" {
		if isEmpty || strings.Contains(stated.defaultCell, " ") {
			return "" // in words
		}
		return fmt.Sprintf("the default is `%s`, and the page states %q", text, stated.defaultCell)
	}
	var parsed any
	if err := yaml.Unmarshal([]byte(stated.defaultCode), &parsed); err != nil {
		return err.Error()
	}
	same, err := json.Marshal(parsed)
	if err != nil {
		return err.Error()
	}
	if string(same) == string(text) || isEmpty {
		return ""
	}
	return fmt.Sprintf("the default is `%s`, and the page states `%s`", text, stated.defaultCode)
}

func chartSchema(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "charts", "hanse", "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	schema := map[string]any{}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	return schema
}

// propertyAt returns the schema of a value, nil if there is none.
func propertyAt(schema map[string]any, path string) map[string]any {
	for name := range strings.SplitSeq(path, ".") {
		properties, _ := schema["properties"].(map[string]any)
		next, isDefined := properties[name].(map[string]any)
		if !isDefined {
			return nil
		}
		schema = next
	}
	return schema
}

// choices returns the values that a schema enumerates.
func choices(property map[string]any) []string {
	var all []string
	list, _ := property["enum"].([]any)
	for _, value := range list {
		all = append(all, fmt.Sprint(value))
	}
	return all
}
