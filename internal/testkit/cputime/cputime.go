// SPDX-License-Identifier: Apache-2.0

// Package cputime measures how much CPU time a function takes. Tests compare it with a limit to prove that hostile input
// costs little: unlike the time on the clock, CPU time does not grow while other processes keep the machine busy.
//
// Only tests import this package.
package cputime

import (
	"runtime"
	"time"
)

// Of returns the CPU time that f takes on its own goroutine. What f starts in other goroutines does not count.
func Of(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := ofThread()
	f()
	return ofThread() - before
}
