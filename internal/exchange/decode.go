package exchange

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	maxQuantityLength   = 64
	maxQuantityExponent = 30
)

var errUntamedQuantity = errors.New("is longer than 64 characters or has an exponent beyond 30")

// Decode reads an advertisement as a peer's API server gave it. Fields that it does not know are left out.
func Decode(object map[string]any) (*v1alpha1.Advertisement, error) {
	if err := checkQuantities(object); err != nil {
		return nil, err
	}
	ad := &v1alpha1.Advertisement{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, ad); err != nil {
		return nil, fmt.Errorf("decode advertisement: %w", err)
	}
	return ad, nil
}

// checkQuantities comes before decoding because the decoder of quantities can be kept busy for minutes by a short text:
// it writes 1e-999999999 out.
func checkQuantities(object map[string]any) error {
	for _, path := range [][]string{
		{"spec", "availability"}, {"spec", "largestPod"}, {"spec", "prices", "perHour"},
	} {
		list, found, err := unstructured.NestedFieldNoCopy(object, path...)
		if err != nil || !found {
			continue // the decoder says what is wrong with it
		}
		quantities, isMap := list.(map[string]any)
		if !isMap {
			continue
		}
		for name, quantity := range quantities {
			if text, isText := quantity.(string); isText && !tame(text) {
				return fmt.Errorf("%s[%.63q] %w", strings.Join(path, "."), name, errUntamedQuantity)
			}
		}
	}
	return nil
}

// tame reports whether a text can be parsed as a quantity in no time. It need not be one.
func tame(text string) bool {
	if len(text) > maxQuantityLength {
		return false
	}
	_, exponent, found := strings.Cut(strings.ToLower(text), "e")
	if !found || exponent == "" || exponent == "i" { // 1E and 1Ei are exa
		return true
	}
	n, err := strconv.Atoi(exponent)
	return err == nil && n >= -maxQuantityExponent && n <= maxQuantityExponent
}
