// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A Reach says which objects of a kind have copies at providers that run pods of their namespace.
type Reach string

// What an administrator can set for a kind.
const (
	// ReachAll are all objects.
	ReachAll Reach = "All"
	// ReachReferenced are those that a pod there refers to. No pod refers to a Service, so it has no meaning for these.
	ReachReferenced Reach = "Referenced"
	// ReachAnnotated are those that say so with v1alpha1.AnnotationReflect.
	ReachAnnotated Reach = "Annotated"
	// ReachNone are none.
	ReachNone Reach = "None"
)

// A Reaches is the Reach of each kind. A kind that is missing has its default.
type Reaches map[Kind]Reach

// ParseReaches reads texts such as Secret=Annotated. Of kinds besides our own there are those that are listed.
func ParseReaches(texts map[string]string, also []ListedKind) (Reaches, error) {
	all := Reaches{}
	for kind, reach := range texts {
		may := []Reach{ReachAll, ReachAnnotated, ReachNone}
		switch Kind(kind) {
		case ConfigMap, Secret:
			may = append(may, ReachReferenced)
		case Service, Ingress:
		case EndpointSlice:
			return nil, fmt.Errorf("an EndpointSlice goes with its Service, and is not set by itself")
		default:
			if !slices.ContainsFunc(also, func(l ListedKind) bool { return l.Name() == Kind(kind) }) {
				return nil, fmt.Errorf("objects of kind %q are not reflected: use %s, %s, %s, %s or a kind that is listed, such as Widget.example.org",
					kind, ConfigMap, Secret, Service, Ingress)
			}
		}
		if !slices.Contains(may, Reach(reach)) {
			return nil, fmt.Errorf("%q is not what objects of kind %s can be reflected by: use one of %s", reach, kind, listed(may))
		}
		all[Kind(kind)] = Reach(reach)
	}
	return all, nil
}

func listed(all []Reach) string {
	var texts []string
	for _, r := range all {
		texts = append(texts, string(r))
	}
	return strings.Join(texts, ", ")
}

// Of returns the Reach of the kind.
func (r Reaches) Of(kind Kind) Reach {
	if kind == EndpointSlice {
		kind = Service // with which they go
	}
	if set, ok := r[kind]; ok {
		return set
	}
	if kind.ByPods() {
		return ReachReferenced
	}
	return ReachAll
}

// SeesAll says whether objects are looked at that no pod refers to.
func (r Reach) SeesAll() bool { return r == ReachAll || r == ReachAnnotated }

// Wants says whether there is to be a copy of an object of the kind that no pod refers to, given its metadata.
func (r Reach) Wants(object metav1.Object) bool {
	return object.GetName() != RootCertificates && (r == ReachAll || r == ReachAnnotated && object.GetAnnotations()[v1alpha1.AnnotationReflect] == "true")
}

// Stays says why there is no copy of an object of the kind although a pod refers to it, or nothing if there is one.
func (r Reach) Stays(object metav1.Object) Refusal {
	switch {
	case isSkipped(object):
		return Keeps(object)
	case r == ReachNone:
		return "the administrators of this cluster let no object of its kind leave it"
	case r == ReachAnnotated && !r.Wants(object):
		return Refusal("it stays at home without the annotation " + v1alpha1.AnnotationReflect + "=true, as the administrators of this cluster have set")
	default:
		return ""
	}
}

// Keeps says why the author of an object keeps it at home, or nothing if it may go.
func Keeps(object metav1.Object) Refusal {
	if !isSkipped(object) {
		return ""
	}
	return Refusal("its label or annotation " + v1alpha1.LabelSkipReflection + " keeps it at home")
}

// isSkipped says whether the author of the object wants no copies of it.
func isSkipped(object metav1.Object) bool {
	return object.GetLabels()[v1alpha1.LabelSkipReflection] == "true" ||
		object.GetAnnotations()[v1alpha1.LabelSkipReflection] == "true"
}
