package exchange

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

var (
	errUntamedQuantity = errors.New("is longer than 64 characters or has an exponent beyond 30")
	errTooMany         = errors.New("has too many entries")
)

// Decode reads an advertisement as a peer's API server gave it. Fields that it does not know are left out.
func Decode(object map[string]any) (*v1alpha1.Advertisement, error) {
	if err := checkBounds(object); err != nil {
		return nil, err
	}
	ad := &v1alpha1.Advertisement{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, ad); err != nil {
		return nil, fmt.Errorf("decode advertisement: %w", err)
	}
	return ad, nil
}

// checkBounds comes before decoding, since what is decoded costs more than the look at it: long lists are copied, and the
// decoder of quantities can be kept busy for minutes by a short text: it writes 1e-999999999 out. It says nothing of what
// has another type than it should; the decoder does.
func checkBounds(object map[string]any) error {
	spec, isMap := object["spec"].(map[string]any)
	if !isMap {
		return nil
	}
	if err := cmp.Or(
		checkList(spec, "images", maxImages, inner{"names", maxImageNames}),
		checkList(spec, "nested", maxNested, inner{"path", MaxDepth}),
		checkList(spec, "architectures", maxArchitectures, inner{}),
		checkQuantities("spec", spec),
	); err != nil {
		return err
	}
	nested, _ := spec["nested"].([]any)
	for i, offer := range nested {
		if err := checkQuantities("spec.nested["+strconv.Itoa(i)+"]", offer); err != nil {
			return err
		}
	}
	return nil
}

// inner is a list in each entry of a list.
type inner struct {
	field string
	most  int
}

func checkList(spec map[string]any, field string, most int, each inner) error {
	entries, _ := spec[field].([]any)
	if len(entries) > most {
		return fmt.Errorf("spec.%s %w: %d, more than %d", field, errTooMany, len(entries), most)
	}
	for i, entry := range entries {
		fields, _ := entry.(map[string]any)
		if list, _ := fields[each.field].([]any); len(list) > each.most {
			return fmt.Errorf("spec.%s[%d].%s %w: %d, more than %d", field, i, each.field, errTooMany, len(list), each.most)
		}
	}
	return nil
}

// quantities are where an offer, nested or not, has lists of quantities, and how long they may be.
var quantities = []struct {
	path []string
	most int
}{
	{[]string{"availability"}, maxNames},
	{[]string{"largestPod"}, maxNames},
	{[]string{"guarantee"}, maxNames},
	{[]string{"prices", "perHour"}, maxNames},
	{[]string{"prices", "perPlacement"}, maxPlacements},
}

func checkQuantities(field string, offer any) error {
	fields, isMap := offer.(map[string]any)
	if !isMap {
		return nil
	}
	for _, where := range quantities {
		value, _, err := unstructured.NestedFieldNoCopy(fields, where.path...)
		list, isMap := value.(map[string]any)
		if err != nil || !isMap {
			continue
		}
		at := field + "." + strings.Join(where.path, ".")
		if len(list) > where.most {
			return fmt.Errorf("%s %w: %d, more than %d", at, errTooMany, len(list), where.most)
		}
		for name, quantity := range list {
			if !tameValue(quantity) {
				return fmt.Errorf("%s[%.63q] %w", at, name, errUntamedQuantity)
			}
		}
	}
	return nil
}

// tameValue looks at numbers too: a quantity need not be written as a text.
func tameValue(value any) bool {
	switch quantity := value.(type) {
	case string:
		return sanitize.Quantity(quantity)
	case float64:
		return sanitize.Quantity(strconv.FormatFloat(quantity, 'g', -1, 64))
	default:
		return true
	}
}
