// SPDX-License-Identifier: Apache-2.0

package netprobe

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// isTooLong reports whether a packet was not sent because the path takes only shorter ones.
func isTooLong(err error) bool { return errors.Is(err, unix.EMSGSIZE) }

// keepWhole has packets of the socket sent whole or not at all.
func keepWhole(conn *net.UDPConn, v6 bool) error {
	level, option, value := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO
	if v6 {
		level, option, value = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO
	}
	return control(conn, func(fd int) error { return unix.SetsockoptInt(fd, level, option, value) })
}

// pathMTU is what the kernel knows of the path of a connected socket.
func pathMTU(conn *net.UDPConn, v6 bool) (mtu int, err error) {
	level, option := unix.IPPROTO_IP, unix.IP_MTU
	if v6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU
	}
	failed := control(conn, func(fd int) error {
		mtu, err = unix.GetsockoptInt(fd, level, option)
		return err
	})
	return mtu, failed
}

func control(conn *net.UDPConn, do func(fd int) error) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var done error
	err = raw.Control(func(fd uintptr) { done = do(int(fd)) })
	return errors.Join(err, done)
}
