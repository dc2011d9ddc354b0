// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"cmp"
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// verdict says what becomes of a field on its way.
type verdict string

const (
	kept    verdict = "kept"
	changed verdict = "changed"
	dropped verdict = "dropped"
	refused verdict = "refused"
)

// fieldLine is a line of the table of all fields of a pod. The line of a field that is dropped or refused holds for all
// fields below it as well. What is kept or changed has a line for each field below, so that no new field of Kubernetes
// travels before somebody has decided about it.
type fieldLine struct {
	path    string // as in JSON, lists as []
	verdict verdict
	why     string // needed unless the field is kept whatever it says
	// check, if there is one, decides for each value by itself whether a provider takes it.
	check func(value string) bool
}

// lines makes a line for each path. Braces at the end of a path name several fields of one part: spec.{hostPID,hostIPC}.
func lines(v verdict, why string, paths ...string) []fieldLine {
	return checked(v, nil, why, paths...)
}

// only makes a line for each path, of fields that are kept if the check lets their value through.
func only(check func(string) bool, why string, paths ...string) []fieldLine {
	return checked(kept, check, why, paths...)
}

func checked(v verdict, check func(string) bool, why string, paths ...string) []fieldLine {
	var out []fieldLine
	for _, path := range paths {
		part, names, _ := strings.Cut(strings.TrimSuffix(path, "}"), "{")
		for _, name := range strings.Split(names, ",") {
			out = append(out, fieldLine{path: part + name, verdict: v, why: why, check: check})
		}
	}
	return out
}

// lineOf returns the line of the table that holds for the field with the path, or nil.
func lineOf(path string) *fieldLine {
	for i := range fields {
		rest, below := strings.CutPrefix(path, fields[i].path)
		if below && (rest == "" || fields[i].coversAllBelow() && strings.Contains(".[", rest[:1])) {
			return &fields[i]
		}
	}
	for _, l := range likes {
		if rest, ok := strings.CutPrefix(path, l.path); ok && (rest == "" || strings.Contains(".[", rest[:1])) {
			return lineOf(l.like + rest)
		}
	}
	return nil
}

func (f fieldLine) coversAllBelow() bool { return f.verdict == dropped || f.verdict == refused }

// A rule is the table for one Go type, as a tree. It has a line, or the rules of its items, or those of its fields.
type rule struct {
	line   *fieldLine
	items  *rule
	fields []fieldRule // in the order of their names
}

type fieldRule struct {
	name  string // in JSON
	index []int  // in Go
	rule  *rule
}

// ruleFor makes the rule for the type of the field with the path. A field that the table does not know is refused.
func ruleFor(path string, kind reflect.Type) *rule {
	if line := lineOf(path); line != nil {
		return &rule{line: line}
	}
	switch kind.Kind() { //nolint:exhaustive // the table has a line for each field of another kind that is known
	case reflect.Pointer:
		return ruleFor(path, kind.Elem())
	case reflect.Slice:
		return &rule{items: ruleFor(path+"[]", kind.Elem())}
	case reflect.Struct:
		if found := fieldRules(path, kind, nil); len(found) > 0 {
			slices.SortFunc(found, func(a, b fieldRule) int { return cmp.Compare(a.name, b.name) })
			return &rule{fields: found}
		}
	}
	return &rule{line: &fieldLine{path: path, verdict: refused}}
}

// fieldRules makes the rules of a struct's fields, those of structs that JSON shows inline included.
func fieldRules(path string, kind reflect.Type, index []int) []fieldRule {
	var out []fieldRule
	for i := range kind.NumField() {
		field, at := kind.Field(i), append(slices.Clone(index), i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" && field.Anonymous {
			out = append(out, fieldRules(path, field.Type, at)...)
			continue
		}
		out = append(out, fieldRule{name: name, index: at, rule: ruleFor(path+"."+name, field.Type)})
	}
	return out
}

// each visits the parts of the value for which a line of the table holds.
func (r *rule) each(value reflect.Value, visit func(*fieldLine, reflect.Value)) {
	if value.Kind() == reflect.Pointer {
		if value.IsNil() {
			return
		}
		if r.line == nil || !r.line.coversAllBelow() {
			value = value.Elem()
		}
	}
	switch {
	case r.line != nil:
		visit(r.line, value)
	case r.items != nil:
		for i := range value.Len() {
			r.items.each(value.Index(i), visit)
		}
	}
	for _, field := range r.fields {
		field.rule.each(value.FieldByIndex(field.index), visit)
	}
}

// A refusedField is a field that a provider does not take, with its value and the reason if they say more than that.
type refusedField struct{ path, value, why string }

func (f *refusedField) Error() string {
	text := bounded(f.path, maxMessage) + ": not allowed"
	if f.value != "" {
		text += " (" + bounded(f.value, maxWord) + ")"
	}
	if f.why != "" {
		text += ": " + f.why
	}
	return text
}

func (f *refusedField) under(step string) *refusedField {
	f.path = step + f.path
	return f
}

// firstRefused returns the first field in the value, by name, that a provider does not take; nil if it takes all. It
// takes out fields that say nothing, such as empty lists, where the table does not let them through.
func (r *rule) firstRefused(value reflect.Value) *refusedField {
	switch {
	case r.line != nil:
		return r.line.judge(value)
	case value.Kind() == reflect.Pointer:
		if value.IsNil() {
			return nil
		}
		return r.firstRefused(value.Elem())
	case r.items != nil:
		for i := range value.Len() {
			if found := r.items.firstRefused(value.Index(i)); found != nil {
				return found.under("[" + strconv.Itoa(i) + "]")
			}
		}
	}
	for _, field := range r.fields {
		if found := field.rule.firstRefused(value.FieldByIndex(field.index)); found != nil {
			return found.under("." + field.name)
		}
	}
	return nil
}

func (f *fieldLine) judge(value reflect.Value) *refusedField {
	if value.Kind() == reflect.Pointer && value.IsNil() || f.check == nil && !f.coversAllBelow() {
		return nil
	}
	failing := ""
	if f.check != nil {
		values := texts(value)
		i := slices.IndexFunc(values, func(text string) bool { return !f.check(text) })
		if i < 0 {
			return nil
		}
		failing = values[i]
	}
	switch {
	case isEmpty(value) && f.coversAllBelow():
		value.SetZero()
		return nil
	case f.verdict == dropped:
		return &refusedField{path: singlePath(value), value: failing}
	default:
		return &refusedField{path: singlePath(value), value: failing, why: f.why}
	}
}

// texts returns the text, or true or false, of a value, or those of a list.
func texts(value reflect.Value) []string {
	switch value.Kind() {
	case reflect.Pointer:
		return texts(value.Elem())
	case reflect.Bool:
		return []string{strconv.FormatBool(value.Bool())}
	case reflect.Slice:
		var out []string
		for i := range value.Len() {
			out = append(out, texts(value.Index(i))...)
		}
		return out
	default:
		return []string{value.String()}
	}
}

// isEmpty says whether a field says nothing. A pointer says something, even to an empty value.
func isEmpty(value reflect.Value) bool {
	if kind := value.Kind(); kind == reflect.Slice || kind == reflect.Map {
		return value.Len() == 0
	}
	return value.IsZero()
}

// singlePath follows objects of a single field, so that the message names what the author wrote.
func singlePath(value reflect.Value) string {
	raw, err := json.Marshal(value.Interface())
	if err != nil {
		return ""
	}
	path := ""
	for {
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) != nil || len(object) != 1 {
			return path
		}
		for key, inner := range object {
			path, raw = path+step(key), inner
		}
	}
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9]+$`)

// step is how a path goes on with a key.
func step(key string) string {
	if plainKey.MatchString(key) {
		return "." + key
	}
	return "[" + key + "]"
}
