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

var (
	errUnknownField = errors.New("is no field that a policy can change")
	errOwnKey       = errors.New("is Hanse's own: a policy cannot change it")
)

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
			patch.Labels, err = texts(value, checkLabel)
		case "flags":
			patch.Flags, err = texts(value, checkFlag)
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
			patch.Labels, err = texts(value, checkPodLabel)
		case "annotations":
			patch.Annotations, err = texts(value, checkAnnotation)
		case "nodeSelector":
			patch.NodeSelector, err = texts(value, checkLabel)
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

func resources(value ast.Value) (map[corev1.ResourceName]resource.Quantity, error) {
	return entries[corev1.ResourceName](value, maxEntries, func(name string, value ast.Value) (resource.Quantity, error) {
		if err := checkResource(name); err != nil {
			return resource.Quantity{}, err
		}
		amount, err := quantity(value)
		if err != nil {
			return amount, err
		}
		return whole(corev1.ResourceName(name), amount)
	})
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
			read.PerHour, err = amounts[corev1.ResourceName](value, maxEntries, checkResource)
		case "perPlacement":
			read.PerPlacement, err = amounts[string](value, maxPlacements, checkImage)
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

func amounts[K ~string](value ast.Value, most int, check func(name string) error) (map[K]resource.Quantity, error) {
	return entries[K](value, most, func(name string, value ast.Value) (resource.Quantity, error) {
		if err := check(name); err != nil {
			return resource.Quantity{}, err
		}
		return quantity(value)
	})
}

func texts(value ast.Value, check func(key, value string) error) (map[string]string, error) {
	return entries[string](value, maxEntries, func(key string, value ast.Value) (string, error) {
		t, err := text(value, maxAnnotation)
		if err != nil {
			return "", err
		}
		return t, check(key, t)
	})
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

// checkResource refuses what a Node cannot have as a resource.
func checkResource(name string) error {
	standard := always(corev1.ResourceName(name)) || strings.HasPrefix(name, corev1.ResourceHugePagesPrefix)
	if len(validation.IsQualifiedName(name)) > 0 || !standard && !strings.Contains(name, "/") {
		return errors.New("is not the name of a node's resource")
	}
	return nil
}

func checkImage(name string) error {
	if name == "" || len(name) > maxImageName {
		return fmt.Errorf("is not an image: a name has 1 to %d characters", maxImageName)
	}
	return nil
}

func checkLabel(key, value string) error {
	if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
		return errors.New("is not a label")
	}
	return nil
}

func checkPodLabel(key, value string) error {
	if v1alpha1.IsOwn(key) {
		return errOwnKey
	}
	return checkLabel(key, value)
}

func checkAnnotation(key, _ string) error {
	switch {
	case v1alpha1.IsOwn(key):
		return errOwnKey
	case len(validation.IsQualifiedName(strings.ToLower(key))) > 0:
		return errors.New("is not an annotation")
	default:
		return nil
	}
}

func checkFlag(key, value string) error {
	if key == "" || len(key) > maxFlagKey || len(value) > maxText {
		return fmt.Errorf("is not a flag: a key has 1 to %d characters and a value at most %d", maxFlagKey, maxText)
	}
	return nil
}
