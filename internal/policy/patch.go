package policy

import (
	"errors"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Bounds of patches: those of the API, and of what a pod can carry.
const (
	maxEntries    = 64
	maxPlacements = 100
	maxText       = 253
	maxFlagKey    = 317
	maxImageName  = 500
	maxAnnotation = 4096
	maxQuoted     = 80
)

var errUnknownField = errors.New("is no field that a policy can change")

func offerPatch(fields ast.Object) (*OfferPatch, error) {
	patch := &OfferPatch{}
	err := eachEntry(fields, func(field string, value ast.Value) (err error) {
		switch field {
		case "availability":
			patch.Availability, err = resources(value)
		case "largestPod":
			patch.LargestPod, err = resources(value)
		case "prices":
			patch.Prices, err = prices(value)
		case "labels":
			patch.Labels, err = texts(value, labelProblem)
		case "flags":
			patch.Flags, err = texts(value, flagProblem)
		case "hideImages":
			patch.HideImages, err = boolean(value)
		default:
			err = errUnknownField
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return patch, nil
}

func podPatch(fields ast.Object) (*PodPatch, error) {
	patch := &PodPatch{}
	err := eachEntry(fields, func(field string, value ast.Value) (err error) {
		switch field {
		case "labels":
			patch.Labels, err = texts(value, podLabelProblem)
		case "annotations":
			patch.Annotations, err = texts(value, annotationProblem)
		case "nodeSelector":
			patch.NodeSelector, err = texts(value, labelProblem)
		case "priorityClassName":
			patch.PriorityClassName, err = className(value)
		case "runtimeClassName":
			patch.RuntimeClassName, err = className(value)
		default:
			err = errUnknownField
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return patch, nil
}

func resources(value ast.Value) (corev1.ResourceList, error) {
	fields, err := object(value, maxEntries)
	if err != nil {
		return nil, err
	}
	list := make(corev1.ResourceList, fields.Len())
	err = eachEntry(fields, func(name string, value ast.Value) error {
		if problem := resourceProblem(name); problem != "" {
			return errors.New(problem)
		}
		amount, err := quantity(value)
		if err != nil {
			return err
		}
		list[corev1.ResourceName(name)], err = whole(corev1.ResourceName(name), amount)
		return err
	})
	return list, err
}

// prices reads the prices of an offer. None at all make it free.
func prices(value ast.Value) (*v1alpha1.Prices, error) {
	fields, err := object(value, maxEntries)
	if err != nil {
		return nil, err
	}
	read := &v1alpha1.Prices{}
	err = eachEntry(fields, func(field string, value ast.Value) (err error) {
		switch field {
		case "currency":
			read.Currency, err = currency(value)
		case "perHour":
			read.PerHour, err = amounts[corev1.ResourceName](value, maxEntries, resourceProblem)
		case "perPlacement":
			read.PerPlacement, err = amounts[string](value, maxPlacements, imageProblem)
		default:
			err = errUnknownField
		}
		return err
	})
	if err == nil && read.Currency == "" && len(read.PerHour)+len(read.PerPlacement) > 0 {
		err = errors.New("has amounts and no currency")
	}
	return read, err
}

func amounts[K ~string](value ast.Value, most int, problem func(string) string) (map[K]resource.Quantity, error) {
	fields, err := object(value, most)
	if err != nil {
		return nil, err
	}
	read := make(map[K]resource.Quantity, fields.Len())
	err = eachEntry(fields, func(name string, value ast.Value) error {
		if problem := problem(name); problem != "" {
			return errors.New(problem)
		}
		amount, err := quantity(value)
		read[K(name)] = amount
		return err
	})
	return read, err
}

func texts(value ast.Value, problem func(key, value string) string) (map[string]string, error) {
	fields, err := object(value, maxEntries)
	if err != nil {
		return nil, err
	}
	read := make(map[string]string, fields.Len())
	err = eachEntry(fields, func(key string, value ast.Value) error {
		t, err := text(value, maxAnnotation)
		if err != nil {
			return err
		}
		if problem := problem(key, t); problem != "" {
			return errors.New(problem)
		}
		read[key] = t
		return nil
	})
	return read, err
}

func currency(value ast.Value) (string, error) {
	code, err := text(value, len("EUR"))
	if err != nil {
		return "", err
	}
	if len(code) != 3 || strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return "", errors.New("must be three capital letters, such as EUR")
	}
	return code, nil
}

func className(value ast.Value) (string, error) {
	name, err := text(value, maxText)
	if err == nil && len(validation.IsDNS1123Subdomain(name)) > 0 {
		err = errors.New("is not the name of a class")
	}
	return name, err
}

// resourceProblem says why a Node cannot have the resource.
func resourceProblem(name string) string {
	standard := always(corev1.ResourceName(name)) || strings.HasPrefix(name, corev1.ResourceHugePagesPrefix)
	if len(validation.IsQualifiedName(name)) > 0 || !standard && !strings.Contains(name, "/") {
		return "is not the name of a node's resource"
	}
	return ""
}

func imageProblem(name string) string {
	if name == "" || len(name) > maxImageName {
		return fmt.Sprintf("is not an image: a name has 1 to %d characters", maxImageName)
	}
	return ""
}

func labelProblem(key, value string) string {
	if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
		return "is not a label"
	}
	return ""
}

func podLabelProblem(key, value string) string {
	if v1alpha1.IsOwn(key) {
		return "is Hanse's own: a policy cannot change it"
	}
	return labelProblem(key, value)
}

func annotationProblem(key, _ string) string {
	switch {
	case v1alpha1.IsOwn(key):
		return "is Hanse's own: a policy cannot change it"
	case len(validation.IsQualifiedName(strings.ToLower(key))) > 0:
		return "is not an annotation"
	default:
		return ""
	}
}

func flagProblem(key, value string) string {
	if key == "" || len(key) > maxFlagKey || len(value) > maxText {
		return fmt.Sprintf("is not a flag: a key has 1 to %d characters and a value at most %d", maxFlagKey, maxText)
	}
	return ""
}
