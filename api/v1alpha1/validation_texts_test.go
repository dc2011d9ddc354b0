// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"
	"strings"
)

// manyClasses are so many more.
func manyClasses(count int) string {
	var text strings.Builder
	for i := range count {
		fmt.Fprintf(&text, ", {name: more-%d, podLabels: {app: more}}", i)
	}
	return text.String()
}

// manyRanges are so many ranges.
func manyRanges(count int) string {
	var ranges []string
	for i := range count {
		ranges = append(ranges, fmt.Sprintf("10.%d.0.0/16", i))
	}
	return "[" + strings.Join(ranges, ", ") + "]"
}
