// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package gateway

import (
	"errors"
	"net"
)

// The gateway runs on Linux.
func (protocol) listen() (net.PacketConn, error) { return nil, errors.ErrUnsupported }
