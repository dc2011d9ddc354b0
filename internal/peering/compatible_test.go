// SPDX-License-Identifier: Apache-2.0

package peering

import "testing"

func TestCompatible(t *testing.T) {
	tests := []struct {
		a, b string
		want bool
	}{
		{"v0.1.0", "v0.1.0", true},
		{"v0.1.0", "v0.2.7", true},
		{"v0.3.0", "v0.2.0-rc.1", true},
		{"v0.1.0", "v0.3.0", false},
		{"v1.0.0", "v0.9.0", false},
		{"dev", "dev", true},
		{"dev", "v0.1.0", false},
		{"nonsense", "v0.1.0", false},
	}
	for _, test := range tests {
		if got := compatible(test.a, test.b); got != test.want {
			t.Errorf("compatible(%q, %q) = %t", test.a, test.b, got)
		}
		if compatible(test.a, test.b) != compatible(test.b, test.a) {
			t.Errorf("%q and %q do not agree", test.a, test.b)
		}
	}
}
