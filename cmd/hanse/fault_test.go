// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestWrongClockIsOffAndRunsAsFast(t *testing.T) {
	flags := faultFlags{offset: 10 * time.Minute}
	wrong := flags.clock()
	if ahead := time.Until(wrong.Now()); ahead < 9*time.Minute || ahead > 11*time.Minute {
		t.Errorf("the clock is %s ahead, want 10m", ahead)
	}
	start := wrong.Now()
	if passed := wrong.Since(start); passed < 0 || passed > time.Minute {
		t.Errorf("%s have passed, want hardly any", passed)
	}
	if age := wrong.Since(time.Now()); age < 9*time.Minute {
		t.Errorf("what was written just now by a right clock is %s old, want 10m", age)
	}
}

func TestFaultFlagsAreHidden(t *testing.T) {
	for _, command := range newCommand().Commands() {
		for _, name := range []string{"fail-at", "clock-offset"} {
			if flag := command.Flags().Lookup(name); flag != nil && !flag.Hidden {
				t.Errorf("hanse %s shows --%s", command.Name(), name)
			}
		}
	}
	flags, set := faultFlags{}, pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.bind(set)
	if set.Parse([]string{"--fail-at=nowhere"}) == nil {
		t.Error("a point that does not exist was armed")
	}
}
