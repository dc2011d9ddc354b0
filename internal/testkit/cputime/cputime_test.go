// SPDX-License-Identifier: Apache-2.0

package cputime

import (
	"testing"
	"time"
)

func TestWorkCountsAndWaitingDoesNot(t *testing.T) {
	worked := Of(func() {
		for began := ofThread(); ofThread()-began < 20*time.Millisecond; {
			continue
		}
	})
	if worked < 20*time.Millisecond {
		t.Errorf("20ms of work are counted as %s", worked)
	}
	waited := Of(func() { <-time.After(200 * time.Millisecond) })
	if waited > 100*time.Millisecond {
		t.Errorf("200ms of waiting are counted as %s", waited)
	}
}
