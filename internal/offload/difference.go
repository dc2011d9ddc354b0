package offload

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
)

// firstDifference returns the path of the first field, by name, in which two values of the same type differ as JSON,
// and "" if there is none. Most do not differ, which is found out sooner without JSON.
func firstDifference(a, b any) (string, error) {
	if equality.Semantic.DeepEqual(a, b) {
		return "", nil
	}
	left, err := asTree(a)
	if err != nil {
		return "", err
	}
	right, err := asTree(b)
	if err != nil {
		return "", err
	}
	return differs("", left, right), nil
}

func asTree(value any) (any, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode the pod: %w", err)
	}
	var tree any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return nil, fmt.Errorf("decode the pod: %w", err)
	}
	return tree, nil
}

func differs(path string, a, b any) string {
	switch a := a.(type) {
	case map[string]any:
		if b, ok := b.(map[string]any); ok {
			return mapDiffers(path, a, b)
		}
	case []any:
		if b, ok := b.([]any); ok && len(a) == len(b) {
			return listDiffers(path, a, b)
		}
	default:
		if reflect.DeepEqual(a, b) {
			return ""
		}
		return path
	}
	return deepest(path, a)
}

func mapDiffers(path string, a, b map[string]any) string {
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if found := differs(join(path, key), a[key], b[key]); found != "" {
			return found
		}
	}
	for _, key := range slices.Sorted(maps.Keys(b)) {
		if _, ok := a[key]; !ok {
			return join(path, key)
		}
	}
	return ""
}

func listDiffers(path string, a, b []any) string {
	for i := range a {
		if found := differs(fmt.Sprintf("%s[%d]", path, i), a[i], b[i]); found != "" {
			return found
		}
	}
	return ""
}

// deepest follows objects of a single field, so that the message names what the author wrote.
func deepest(path string, value any) string {
	fields, ok := value.(map[string]any)
	if !ok || len(fields) != 1 {
		return path
	}
	for key, inner := range fields {
		return deepest(join(path, key), inner)
	}
	return path
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9]+$`)

func join(path, key string) string {
	switch {
	case !plainKey.MatchString(key):
		return path + "[" + key + "]"
	case path == "":
		return key
	default:
		return path + "." + key
	}
}
