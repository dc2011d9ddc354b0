// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// DefaultLinkTimeout is the default of Config.LinkTimeout. The kernel counts keep-alives in whole seconds, so less than
// this cannot be had.
const DefaultLinkTimeout = 3 * time.Second

// A liveness says how the kernel finds out that a connection is dead: an idle one is asked by keep-alives, and what was
// sent over a busy one must be acknowledged in time. It costs us nothing until that happens.
type liveness struct {
	keepAlive net.KeepAliveConfig
	// unanswered is for how long nothing may come back before the connection is given up.
	unanswered time.Duration
	// dial is how long connecting may take. While a peer is cut off this is how often it is tried, and so how soon it is
	// known that it is back: the kernel itself would wait longer each time.
	dial time.Duration
}

// livenessWithin returns a liveness by which a cut is known after two thirds of the time. The last third is for a new
// connection: one that was lost to a single lost packet is no news yet.
func livenessWithin(limit time.Duration) liveness {
	const margin = 100 * time.Millisecond // a keep-alive that is sent at the last moment counts
	step := max(limit/6, time.Second)
	return liveness{
		keepAlive: net.KeepAliveConfig{
			Enable: true, Idle: max(limit/3, time.Second), Interval: step, Count: max(int(limit/3/step), 1),
		},
		unanswered: limit*2/3 - margin,
		dial:       limit / 2,
	}
}

// isLost says whether err tells that the other end of a connection has not answered for too long.
func isLost(err error) bool {
	for _, lost := range []error{syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH} {
		if errors.Is(err, lost) {
			return true
		}
	}
	return false
}
