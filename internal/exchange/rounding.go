// SPDX-License-Identifier: Apache-2.0

package exchange

// Rounded returns n with two significant digits. What is measured is told so, because it changes more seldom then.
func Rounded(n int64) int64 {
	unit := secondDigit(n)
	return (n + unit/2) / unit * unit
}

// roundedDown is Rounded for what must not be told larger than it is.
func roundedDown(n int64) int64 {
	unit := secondDigit(n)
	return n / unit * unit
}

// secondDigit returns what the second significant digit stands for, 1 at least.
func secondDigit(n int64) int64 {
	unit := int64(1)
	for n/unit >= 100 {
		unit *= 10
	}
	return unit
}
