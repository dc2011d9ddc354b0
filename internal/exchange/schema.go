// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/charts"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// maxKey is the longest key of a map: the longest name that Kubernetes has for a label or a resource.
const maxKey = 317

var errTooMany = errors.New("more than there may be")

// A schema is what the CustomResourceDefinition says about one field of an advertisement. A peer's advertisement is held
// to it here, because the API server of a hostile peer may not do so. So a new field is checked as soon as it has bounds
// in the API.
type schema struct {
	Properties map[string]*schema `json:"properties"`
	Required   []string           `json:"required"`

	Values        *schema `json:"additionalProperties"` // of a map
	MaxProperties *int    `json:"maxProperties"`

	Items    *schema  `json:"items"`
	MinItems int      `json:"minItems"`
	MaxItems *int     `json:"maxItems"`
	ListType string   `json:"x-kubernetes-list-type"`
	ListKeys []string `json:"x-kubernetes-list-map-keys"`

	MinLength int            `json:"minLength"`
	MaxLength *int           `json:"maxLength"`
	Pattern   *regexp.Regexp `json:"pattern"`
	Enum      []string       `json:"enum"`

	Minimum  *int64 `json:"minimum"`
	Quantity bool   `json:"x-kubernetes-int-or-string"`
}

// offerSchema is that of the spec of an advertisement.
var offerSchema = sync.OnceValue(func() *schema {
	text, err := charts.Hanse.ReadFile("hanse/crds/hanse.dev_advertisements.yaml")
	definition := struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPI schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}{}
	if err := cmp.Or(err, yaml.Unmarshal(text, &definition)); err != nil {
		panic(fmt.Sprintf("read the definition of advertisements, which is a part of this program: %v", err))
	}
	return definition.Spec.Versions[0].Schema.OpenAPI.Properties["spec"]
})

// walk calls check for the value and everything in it that the schema knows, until there is an error. What check has not
// refused for its size is bounded.
func (s *schema) walk(field string, value any, check func(s *schema, field string, value any) error) error {
	if s == nil || value == nil {
		return nil
	}
	if err := check(s, field, value); err != nil {
		return err
	}
	switch value := value.(type) {
	case map[string]any:
		return s.walkObject(field, value, check)
	case []any:
		for i, item := range value {
			if err := s.Items.walk(field+"["+strconv.Itoa(i)+"]", item, check); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *schema) walkObject(field string, value map[string]any, check func(s *schema, field string, value any) error) error {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if err := s.Properties[name].walk(field+"."+name, value[name], check); err != nil {
			return err
		}
	}
	if s.Values == nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(value)) {
		if err := s.Values.walk(field+"["+strings.Trim(quoted(key), `"`)+"]", value[key], check); err != nil {
			return err
		}
	}
	return nil
}

// checkSize refuses what would take long to decode. Long lists are copied, and the decoder of quantities can be kept busy
// for minutes by a short text, because it writes out 1e-999999999.
func (s *schema) checkSize(field string, value any) error {
	switch value := value.(type) {
	case []any:
		return checkCount(field, len(value), s.MaxItems)
	case map[string]any:
		return checkCount(field, len(value), s.MaxProperties)
	case string:
		if s.Quantity && !sanitize.Quantity(value) {
			return refused(v1alpha1.ReasonInvalidField, "%s %w", field, sanitize.ErrQuantity)
		}
	case float64: // a quantity need not be written as a text
		if s.Quantity && !sanitize.Quantity(strconv.FormatFloat(value, 'g', -1, 64)) {
			return refused(v1alpha1.ReasonInvalidField, "%s %w", field, sanitize.ErrQuantity)
		}
	}
	return nil
}

func checkCount(field string, count int, most *int) error {
	if most != nil && count > *most {
		return refused(v1alpha1.ReasonInvalidField, "%s has %d entries, %w: %d", field, count, errTooMany, *most)
	}
	return nil
}

// checkValue refuses what an API server with this definition would refuse.
func (s *schema) checkValue(field string, value any) error {
	if err := s.checkSize(field, value); err != nil {
		return err
	}
	switch value := value.(type) {
	case []any:
		return s.checkList(field, value)
	case map[string]any:
		return s.checkMap(field, value)
	case string:
		return s.checkText(field, value)
	case int64:
		if s.Minimum != nil && value < *s.Minimum {
			return refused(v1alpha1.ReasonInvalidQuantity, "%s is %d, less than it may be: %d", field, value, *s.Minimum)
		}
	}
	return nil
}

func (s *schema) checkList(field string, list []any) error {
	if len(list) < s.MinItems {
		return refused(v1alpha1.ReasonInvalidField, "%s has %d entries, fewer than %d", field, len(list), s.MinItems)
	}
	if s.ListType != "set" && len(s.ListKeys) == 0 {
		return nil
	}
	seen := map[string]bool{}
	for _, item := range list {
		key := item
		if fields, isMap := item.(map[string]any); isMap && len(s.ListKeys) > 0 {
			key = fields[s.ListKeys[0]]
		}
		text := fmt.Sprint(key)
		if seen[text] {
			return refused(v1alpha1.ReasonInvalidField, "%s has %s twice", field, quoted(text))
		}
		seen[text] = true
	}
	return nil
}

func (s *schema) checkMap(field string, object map[string]any) error {
	for _, name := range s.Required {
		if object[name] != nil {
			continue
		}
		reason := v1alpha1.ReasonInvalidField
		if required := s.Properties[name]; required != nil && required.Values != nil && required.Values.Quantity {
			reason = v1alpha1.ReasonInvalidQuantity
		}
		return refused(reason, "%s.%s is missing", field, name)
	}
	for key := range object {
		if s.Values != nil && !s.Values.Quantity && len(key) > maxKey {
			return refused(v1alpha1.ReasonInvalidField, "%s has a key of more than %d characters", field, maxKey)
		}
	}
	return nil
}

func (s *schema) checkText(field, text string) error {
	switch {
	case s.Quantity: // which the decoder has read
		return nil
	case s.MaxLength != nil && len(text) > *s.MaxLength && utf8.RuneCountInString(text) > *s.MaxLength:
		return refused(v1alpha1.ReasonInvalidField, "%s has more than %d characters", field, *s.MaxLength)
	case len(text) < s.MinLength:
		return refused(v1alpha1.ReasonInvalidField, "%s has fewer than %d characters", field, s.MinLength)
	case s.Pattern != nil && !s.Pattern.MatchString(text):
		return refused(v1alpha1.ReasonInvalidField, "%s is %s: it must match %s", field, quoted(text), s.Pattern)
	case len(s.Enum) > 0 && !slices.Contains(s.Enum, text):
		return refused(v1alpha1.ReasonInvalidField, "%s is %s: it must be one of %s", field, quoted(text), strings.Join(s.Enum, ", "))
	default:
		return nil
	}
}

// Decode reads an advertisement as a peer's API server gave it. Fields that it does not know are left out.
func Decode(object map[string]any) (*v1alpha1.Advertisement, error) {
	if err := offerSchema().walk("spec", object["spec"], (*schema).checkSize); err != nil {
		return nil, err
	}
	ad := &v1alpha1.Advertisement{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, ad); err != nil {
		return nil, fmt.Errorf("decode advertisement: %w", err)
	}
	return ad, nil
}
