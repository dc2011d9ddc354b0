// SPDX-License-Identifier: Apache-2.0

// Package sanitize makes texts that others wrote safe to parse and to store.
package sanitize

import (
	"strconv"
	"strings"
)

const (
	// MaxLength is how many characters the text of a quantity may have.
	MaxLength = 64
	// maxExponent is beyond any amount that means something, and far below what takes time.
	maxExponent = 30
)

// Quantity reports whether a text can be parsed as a quantity quickly; it need not be a quantity. Without this check a
// short text such as 1e-999999999 keeps the decoder busy for minutes, because the decoder writes all its digits out.
func Quantity(text string) bool {
	if len(text) > MaxLength {
		return false
	}
	_, exponent, found := strings.Cut(strings.ToLower(text), "e")
	if !found || exponent == "" || exponent == "i" { // 1E and 1Ei are exa
		return true
	}
	n, err := strconv.Atoi(exponent)
	return err == nil && n >= -maxExponent && n <= maxExponent
}

// Text returns the text. If the text has more than most bytes, Text returns its beginning and three dots, cut between
// characters. The most is at least 3.
func Text(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("...")], "") + "..."
}
