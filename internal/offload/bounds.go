package offload

import "strings"

const (
	maxMessage     = 1024
	maxTermination = 4096
	maxWord        = 128
	maxReference   = 1024
)

// bounded cuts a string to so many bytes at a rune's edge, and makes it valid UTF-8.
func bounded(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ToValidUTF8(s, "")
}
