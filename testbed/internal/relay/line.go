// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"time"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
)

// backlog is for how long a packet waits before a line of limited rate, at most. What would wait longer is lost, as in a
// router whose buffer is full.
const backlog = 100 * time.Millisecond

// line is one direction of a link.
type line struct {
	plan.Impairment
	chance func() float64 // from 0 up to, but not, 1
	idle   time.Time      // when all that was taken has left
}

// take tells when a packet arrives that comes now, or that it gets lost.
func (l *line) take(length int, now time.Time) (time.Time, bool) {
	if l.MTU > 0 && length > l.MTU {
		return time.Time{}, false
	}
	if l.Loss > 0 && l.chance() < l.Loss {
		return time.Time{}, false
	}
	leaves := now
	if l.Rate > 0 {
		if l.idle.Before(now) {
			l.idle = now
		}
		if l.idle.Sub(now) > backlog {
			return time.Time{}, false
		}
		l.idle = l.idle.Add(time.Duration(int64(length) * 8 * int64(time.Second) / l.Rate))
		leaves = l.idle
	}
	return leaves.Add(l.Delay), true
}
