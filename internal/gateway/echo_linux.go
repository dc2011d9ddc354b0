// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// listen opens a socket for echoes, whose packets are sent whole or not at all, whatever the kernel believes of the way.
func (f protocol) listen() (net.PacketConn, error) {
	level, option, value := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE
	if f.family == unix.AF_INET6 {
		level, option, value = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE
	}
	fd, err := unix.Socket(f.family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, f.number)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), "echo") // closed here: what is returned has a copy
	if err := unix.SetsockoptInt(fd, level, option, value); err != nil {
		return nil, errors.Join(os.NewSyscallError("setsockopt", err), file.Close())
	}
	conn, err := net.FilePacketConn(file)
	return conn, errors.Join(err, file.Close())
}
