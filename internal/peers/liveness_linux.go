// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// control bounds, on a socket that is about to connect, for how long what was sent may stay unacknowledged. It bounds
// keep-alives too, instead of their number.
func (l liveness) control(_, _ string, socket syscall.RawConn) error {
	var failed error
	err := socket.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(l.unanswered.Milliseconds()))
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("set TCP_USER_TIMEOUT: %w", err)
	}
	return nil
}
