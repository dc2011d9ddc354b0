// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
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

// A reader reads the value of a rule or of a field.
type reader func(value ast.Value) error

// into makes a reader that puts what it reads into the field.
func into[V any](field *V, read func(ast.Value) (V, error)) reader {
	return func(value ast.Value) (err error) {
		*field, err = read(value)
		return err
	}
}

// readFields reads the fields of an object, and returns how many it has.
func readFields(value ast.Value, fields map[string]reader) (int, error) {
	from, err := object(value, maxEntries)
	if err != nil {
		return 0, err
	}
	return from.Len(), eachEntry(from, func(field string, value ast.Value) error {
		if fields[field] == nil {
			return errUnknownField
		}
		return fields[field](value)
	})
}

func offerFields(p *OfferPatch) map[string]reader {
	return map[string]reader{
		"availability": into(&p.Availability, resources),
		"largestPod":   into(&p.LargestPod, resources),
		"prices":       into(&p.Prices, prices),
		"labels":       into(&p.Labels, texts[v1alpha1.Text](checkLabel)),
		"flags":        into(&p.Flags, texts[v1alpha1.Text](checkFlag)),
		"hideImages":   into(&p.HideImages, boolean),
	}
}

func podFields(p *PodPatch) map[string]reader {
	return map[string]reader{
		"labels":            into(&p.Labels, texts[string](checkPodLabel)),
		"annotations":       into(&p.Annotations, texts[string](checkAnnotation)),
		"nodeSelector":      into(&p.NodeSelector, texts[string](checkLabel)),
		"priorityClassName": into(&p.PriorityClassName, className),
		"runtimeClassName":  into(&p.RuntimeClassName, className),
	}
}

func resources(value ast.Value) (corev1.ResourceList, error) {
	return entries[corev1.ResourceName](value, maxEntries, func(name string, value ast.Value) (resource.Quantity, error) {
		amount, err := amountOf(checkResource, name, value)
		if err == nil {
			amount, err = whole(corev1.ResourceName(name), amount)
		}
		return amount, err
	})
}

// prices reads the prices of an offer. None at all make it free.
func prices(value ast.Value) (*v1alpha1.Prices, error) {
	read := &v1alpha1.Prices{}
	_, err := readFields(value, map[string]reader{
		"currency":     into(&read.Currency, currency),
		"perHour":      into(&read.PerHour, amounts[corev1.ResourceName](maxEntries, checkResource)),
		"perPlacement": into(&read.PerPlacement, amounts[string](maxPlacements, checkImage)),
	})
	if err == nil && read.Currency == "" && len(read.PerHour)+len(read.PerPlacement) > 0 {
		err = errors.New("has amounts and no currency")
	}
	return read, err
}

func amounts[K ~string](most int, check func(name string) error) func(ast.Value) (map[K]resource.Quantity, error) {
	return func(value ast.Value) (map[K]resource.Quantity, error) {
		return entries[K](value, most, func(name string, value ast.Value) (resource.Quantity, error) { return amountOf(check, name, value) })
	}
}

func amountOf(check func(name string) error, name string, value ast.Value) (resource.Quantity, error) {
	if err := check(name); err != nil {
		return resource.Quantity{}, err
	}
	return quantity(value)
}

func texts[V ~string](check func(key, value string) error) func(ast.Value) (map[string]V, error) {
	return func(value ast.Value) (map[string]V, error) {
		return entries[string](value, maxEntries, func(key string, value ast.Value) (V, error) {
			t, err := text(value, maxAnnotation)
			return V(t), cmp.Or(err, check(key, t))
		})
	}
}

func currency(value ast.Value) (string, error) {
	code, err := text(value, len("EUR"))
	if err == nil && (len(code) != 3 || strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "") {
		err = errors.New("must be three capital letters, such as EUR")
	}
	return code, err
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
	standard := slices.Contains(mandatory, corev1.ResourceName(name)) || strings.HasPrefix(name, corev1.ResourceHugePagesPrefix)
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
