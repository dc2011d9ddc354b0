// Package tame makes texts that others wrote fit to be parsed, and to be stored.
package tame

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

// Quantity reports whether a text can be parsed as a quantity in no time. It need not be one. The decoder can be kept busy
// for minutes by a short text: it writes 1e-999999999 out.
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

// Text returns the text, or if it has more bytes than most its beginning with three dots, cut between characters. The most
// is at least 3.
func Text(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("...")], "") + "..."
}
