// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"
)

// none stands for a value that is not there.
const none = "-"

// A document is text for people, which is printed when it is complete.
type document struct{ bytes.Buffer }

func (d *document) printf(format string, args ...any) { fmt.Fprintf(&d.Buffer, format, args...) }

// table prints rows in columns, the header first.
func (d *document) table(rows ...[]string) {
	writer := tabwriter.NewWriter(d, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		for i := range row {
			row[i] = printable(row[i])
		}
		_, _ = io.WriteString(writer, strings.Join(row, "\t")+"\n") // a buffer takes everything
	}
	_ = writer.Flush()
}

// section prints a title, and a table with its header. Without rows it prints nothing.
func (d *document) section(title string, rows ...[]string) {
	if len(rows) > 1 {
		d.printf("\n%s", title)
		d.table(rows...)
	}
}

// notes prints remarks below a table.
func (d *document) notes(notes []string) {
	for _, note := range notes {
		d.printf("  %s\n", printable(note))
	}
}

// show prints a view: for scripts as JSON or YAML, otherwise as a document for people.
func show(to io.Writer, view any, output string, forPeople func(*document)) error {
	switch output {
	case "json":
		encoder := json.NewEncoder(to)
		encoder.SetIndent("", "  ")
		return encoder.Encode(view)
	case "yaml":
		data, err := yaml.Marshal(view)
		if err == nil {
			_, err = to.Write(data)
		}
		return err
	default:
		text := &document{}
		forPeople(text)
		_, err := text.WriteTo(to)
		return err
	}
}

// printObjects prints objects as one would apply them.
func printObjects(to io.Writer, objects ...client.Object) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	for _, object := range objects {
		content, err := applicable(scheme, object)
		if err != nil {
			return fmt.Errorf("encode %T %s: %w", object, object.GetName(), err)
		}
		if _, err := fmt.Fprintf(to, "---\n%s", content); err != nil {
			return err
		}
	}
	return nil
}

// applicable is the object as YAML, without what the API server adds.
func applicable(scheme *runtime.Scheme, object client.Object) ([]byte, error) {
	kind, err := apiutil.GVKForObject(object, scheme)
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	content["apiVersion"], content["kind"] = kind.GroupVersion().String(), kind.Kind
	delete(content, "status")
	if metadata, ok := content["metadata"].(map[string]any); ok {
		maps.DeleteFunc(metadata, func(field string, _ any) bool {
			return !slices.Contains([]string{"name", "namespace", "labels", "annotations"}, field)
		})
	}
	if spec, ok := content["spec"].(map[string]any); ok && len(spec) == 0 {
		delete(content, "spec")
	}
	return yaml.Marshal(content)
}

// progress tells the user how something stands: again only when that has changed.
type progress struct {
	report func(format string, args ...any)
	last   string
}

func (p *progress) tell(text string) {
	if text == "" || text == p.last {
		return
	}
	p.last = text
	p.report("%s", printable(text))
}

// printable replaces control characters, so that a peer's words cannot move the cursor.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// because is the reason and the message of a condition, after a colon.
func because(c *metav1.Condition) string {
	if c == nil {
		return ""
	}
	return ": " + c.Reason + ": " + printable(c.Message)
}

// list names the first few of many, and none as a dash.
func list[T ~string](names []T, few int) string {
	var words []string
	for _, name := range names[:min(len(names), few)] {
		words = append(words, string(name))
	}
	if len(names) > few {
		words = append(words, fmt.Sprintf("and %d more", len(names)-few))
	}
	return orElse(strings.Join(words, ", "), none)
}

// some names the first of many as messages do.
func some(names []string) string { return list(names, 10) }

func readyOrNot(ready bool) string {
	if ready {
		return "ready"
	}
	return "not ready"
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// date is when something ends, for people.
func date(t *metav1.Time) string {
	if t == nil {
		return none
	}
	return t.UTC().Format("2006-01-02 15:04 MST")
}

func span(d *metav1.Duration) string {
	if d == nil {
		return none
	}
	return d.Duration.String()
}

// amount is how much there is of one resource.
func amount(of corev1.ResourceList, name corev1.ResourceName) string {
	quantity, known := of[name]
	if !known {
		return none
	}
	return quantity.String()
}

// amounts are all resources: those that people look for first, and then the rest by name.
func amounts(of corev1.ResourceList) string {
	names := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	var words []string
	for _, name := range names {
		if _, known := of[name]; known {
			words = append(words, string(name)+" "+amount(of, name))
		}
	}
	return strings.Join(words, ", ")
}

// A choice is a flag that takes one of few values, in upper or lower case. Its default is what the field says at first.
type choice[T ~string] struct {
	field  *T
	values []T
}

func oneOf[T ~string](field *T, values ...T) choice[T] { return choice[T]{field, values} }

func (c choice[T]) String() string { return string(*c.field) }

// Type is what help shows in place of a value.
func (c choice[T]) Type() string { return "string" }

// Set takes a value from the command line.
func (c choice[T]) Set(text string) error {
	i := slices.IndexFunc(c.values, func(value T) bool { return strings.EqualFold(text, string(value)) })
	if i < 0 {
		return fmt.Errorf("it is one of %v", c.values)
	}
	*c.field = c.values[i]
	return nil
}
