// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A Verb says what must be done about one object in a twin namespace.
type Verb string

// What there is to do.
const (
	// Create the copy.
	Create Verb = "create"
	// Update the copy, which is one of an earlier version.
	Update Verb = "update"
	// Replace the copy, which is one of another object of the name: what is immutable or of another type cannot be
	// updated.
	Replace Verb = "replace"
	// Delete the copy.
	Delete Verb = "delete"
	// Yield to an object of the name that is not ours.
	Yield Verb = "yield"
	// Withhold an object that is wanted and must stay at home. There is no copy of it.
	Withhold Verb = "withhold"
)

// A Step is what must be done about one object.
type Step struct {
	Verb Verb
	Name string
	// Source is the object at home, if it is there.
	Source *Source
	// Found is the metadata of the object of the name in the twin, if it is there.
	Found metav1.Object
}

// A Source is what Plan must know of an object at home.
type Source struct {
	UID types.UID
	// Name is that of the object at home, where it is not that of the copy.
	Name string
	// Version is another one whenever the copy must be.
	Version string
	// Stays says why it must stay at home. It is empty if it may go.
	Stays Refusal
}

// SourceOf is the source whose copies are of each version of the object, given its metadata.
func SourceOf(object metav1.Object, reach Reach) *Source {
	return &Source{UID: object.GetUID(), Version: object.GetResourceVersion(), Stays: reach.Stays(object)}
}

// A Sight is what is seen of the objects of one kind, in one namespace and its twin, by their names.
type Sight struct {
	// Wanted are the names of which there is to be a copy.
	Wanted map[string]bool
	// Sources are the objects at home. If none are wanted they need not be known.
	Sources map[string]*Source
	// Found is the metadata of the objects in the twin, whosever they are.
	Found map[string]metav1.Object
}

// Plan returns what must be done so that the twin has a copy of exactly what is wanted, sorted by name.
func Plan(seen Sight) []Step {
	names := map[string]bool{}
	maps.Copy(names, seen.Wanted)
	for name := range seen.Found {
		names[name] = true
	}
	var steps []Step
	for _, name := range slices.Sorted(maps.Keys(names)) {
		step := Step{Name: name, Source: seen.Sources[name], Found: seen.Found[name]}
		if step.Verb = judge(step, seen.Wanted[name]); step.Verb != "" {
			steps = append(steps, step)
		}
	}
	return steps
}

func judge(s Step, wanted bool) Verb {
	copied := s.Found != nil && IsCopy(s.Found)
	switch {
	case !wanted || s.Source == nil:
		return deleteIf(copied, s.Found)
	case s.Found == nil && s.Source.Stays != "":
		return Withhold
	case s.Found == nil:
		return Create
	case !copied:
		return Yield
	case s.Source.Stays != "":
		return deleteIf(copied, s.Found)
	case s.Found.GetDeletionTimestamp() != nil:
		return "" // it is made again when it is gone
	case s.Found.GetAnnotations()[v1alpha1.AnnotationOriginUID] != string(s.Source.UID):
		return Replace
	case s.Found.GetAnnotations()[v1alpha1.AnnotationOriginVersion] != s.Source.Version:
		return Update
	default:
		return ""
	}
}

func deleteIf(copied bool, found metav1.Object) Verb {
	if copied && found.GetDeletionTimestamp() == nil {
		return Delete
	}
	return ""
}

// IsCopy says whether the object in a twin namespace is a copy of one of ours. Any other is never touched.
func IsCopy(found metav1.Object) bool { return isOurs(found) && !HoldsTokens(found) }

func isOurs(found metav1.Object) bool {
	return found.GetLabels()[v1alpha1.LabelReflected] == "true" && found.GetAnnotations()[v1alpha1.AnnotationOriginUID] != ""
}
