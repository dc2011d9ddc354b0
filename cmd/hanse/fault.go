// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/hanse-dev/hanse/internal/fault"
)

// killed is the exit code of a process that was ended by kill -9, which a fault stands for.
const killed = 137

// faultFlags are the hidden ones of the fault suite. No administrator wants them.
type faultFlags struct {
	offset time.Duration
}

func (f *faultFlags) bind(flags *pflag.FlagSet) {
	flags.Func("fail-at", "point NAME[:N] at which the process ends as if it were killed", func(point string) error {
		return fault.Arm(point, func() { os.Exit(killed) })
	})
	flags.DurationVar(&f.offset, "clock-offset", 0, "by how much the clock is wrong")
	hide(flags, "fail-at", "clock-offset")
}

// hide keeps flags out of the help: those of tests, and those that hardly any administrator wants to set.
func hide(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		if err := flags.MarkHidden(name); err != nil {
			panic(err) // there is no such flag
		}
	}
}

// clock is what the process takes for the time. It is used for all that is compared with what others wrote down. Leader
// election, time limits of requests and client-go's own back-offs measure how long something takes, for which no clock
// has to be right.
func (f *faultFlags) clock() clock.WithTickerAndDelayedExecution {
	if f.offset == 0 {
		return clock.RealClock{}
	}
	return wrongClock{offset: f.offset}
}

// wrongClock is off, and runs as fast as the right one. Timers and tickers are those of the real clock: how long they
// wait does not depend on what time it is. The times that it tells have a monotonic part, which is off by as much, so
// that the time between two of them stays right when somebody sets the machine's clock.
type wrongClock struct {
	clock.RealClock

	offset time.Duration
}

// Now returns what this clock takes for the time.
func (c wrongClock) Now() time.Time { return c.RealClock.Now().Add(c.offset) }

// Since returns how long ago that was by this clock.
func (c wrongClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
