// SPDX-License-Identifier: Apache-2.0

package sanitize

import (
	"strings"
	"testing"
)

func TestQuantity(t *testing.T) {
	for text, want := range map[string]bool{
		"1": true, "100m": true, "1Ei": true, "1E": true, "1e3": true, "1e-9": true, "-5": true, "": true, "lots": true, "nonsense": false,
		"1e30": true, "1e31": false, "1E-31": false, "1e-999999999": false, "1e99999999999999999999": false, "1e+5": true, "1ex": false,
		strings.Repeat("9", MaxLength): true, strings.Repeat("9", MaxLength+1): false,
	} {
		if got := Quantity(text); got != want {
			t.Errorf("%q: got %v", text, got)
		}
	}
}

func TestText(t *testing.T) {
	for _, test := range []struct {
		text string
		most int
		want string
	}{
		{"", 3, ""}, {"abc", 3, "abc"}, {"abcd", 3, "..."}, {"abcdefgh", 7, "abcd..."}, {"äöüäöü", 12, "äöüäöü"}, {"äöüäöü", 8, "äö..."},
	} {
		if got := Text(test.text, test.most); got != test.want {
			t.Errorf("%q within %d: got %q, want %q", test.text, test.most, got, test.want)
		}
	}
}
