// SPDX-License-Identifier: Apache-2.0

package exchange

import "testing"

func TestRoundedHasTwoDigits(t *testing.T) {
	for n, want := range map[int64]int64{0: 0, 9: 9, 99: 99, 104: 100, 105: 110, 999: 1000, 123456: 120000} {
		if got := Rounded(n); got != want {
			t.Errorf("Rounded(%d) = %d, want %d", n, got, want)
		}
	}
}
