// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write pages of docs/reference anew from the tables")

const (
	kept    = "kept"
	changed = "changed"
	left    = "left to the provider"
)

// A fieldLine says what becomes of a field of spec.
type fieldLine struct{ field, verdict, why string }

// expectFields compares what becomes of each field with the table, which must have a line for each. All have a value before.
func expectFields(t *testing.T, table []fieldLine, before, after reflect.Value) {
	t.Helper()
	if before.NumField() != len(table) {
		t.Errorf("there are %d fields, and the table has %d", before.NumField(), len(table))
	}
	for i, line := range table {
		field := before.Type().Field(i)
		if json := field.Tag.Get("json"); json != line.field+",omitempty" {
			t.Fatalf("field %d is %s, and %s in the table", i, json, line.field)
		}
		if before.Field(i).IsZero() {
			t.Errorf("the test gives %s no value", line.field)
		}
		same := cmp.Equal(before.Field(i).Interface(), after.Field(i).Interface())
		switch {
		case line.verdict == kept && !same:
			t.Errorf("%s becomes %v", line.field, after.Field(i))
		case line.verdict == left && !after.Field(i).IsZero():
			t.Errorf("%s is set, to %v", line.field, after.Field(i))
		case line.verdict == changed && (same || after.Field(i).IsZero()):
			t.Errorf("%s is not changed but %v", line.field, after.Field(i))
		}
	}
}

func pageOf(head string, table []fieldLine) string {
	for _, line := range table {
		head += fmt.Sprintf("| `%s` | %s | %s |\n", line.field, line.verdict, line.why)
	}
	return head
}

// expectPage compares a page of the reference with what the tables say, or writes it.
func expectPage(t *testing.T, name, want string) {
	t.Helper()
	page := filepath.Join("..", "..", "docs", "reference", name)
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not what the table says: run go test ./internal/reflection -run TestPage -update\n%s", page, diff)
	}
}
