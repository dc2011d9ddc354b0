// SPDX-License-Identifier: Apache-2.0

package lab

import "testing"

func TestThereAreNodesForAllPods(t *testing.T) {
	for pods, want := range map[int]int{0: 10, 1000: 10, 1001: 11, 10_000: 100} {
		if got := NodesFor(pods); got != want {
			t.Errorf("%d nodes for %d pods, want %d", got, pods, want)
		}
	}
}
