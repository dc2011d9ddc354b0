// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// leaf is a field of a pod that has no fields below it.
type leaf struct {
	path string
	kind reflect.Type
}

// leaves returns all fields of spec and status of a pod, in the order of Kubernetes.
func leaves() []leaf {
	var out []leaf
	walk("spec", reflect.TypeFor[corev1.PodSpec](), &out)
	walk("status", reflect.TypeFor[corev1.PodStatus](), &out)
	return out
}

// values are types that have fields in Go and none in JSON.
var values = []reflect.Type{
	reflect.TypeFor[resource.Quantity](), reflect.TypeFor[metav1.Time](), reflect.TypeFor[intstr.IntOrString](),
	reflect.TypeFor[metav1.FieldsV1](),
}

func walk(path string, kind reflect.Type, out *[]leaf) {
	switch {
	case kind.Kind() == reflect.Pointer:
		walk(path, kind.Elem(), out)
	case kind.Kind() == reflect.Slice && kind.Elem().Kind() == reflect.Struct:
		walk(path+"[]", kind.Elem(), out)
	case kind.Kind() == reflect.Struct && !isValue(kind):
		for i := range kind.NumField() {
			name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
			if name == "" {
				walk(path, kind.Field(i).Type, out)
				continue
			}
			walk(path+"."+name, kind.Field(i).Type, out)
		}
	default:
		*out = append(*out, leaf{path, kind})
	}
}

func isValue(kind reflect.Type) bool {
	for _, value := range values {
		if kind == value {
			return true
		}
	}
	return false
}
