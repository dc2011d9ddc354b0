// SPDX-License-Identifier: Apache-2.0

package cputime

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// ofThread returns the CPU time that the calling thread has taken so far.
func ofThread() time.Duration {
	now := unix.Timespec{}
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		panic(fmt.Sprintf("read the CPU time of a thread: %v", err))
	}
	return time.Duration(now.Nano())
}
