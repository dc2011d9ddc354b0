// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Traffic reads what has gone over the process's open TCP connections to an address, as the kernel counts it: what TLS
// makes of the requests and the answers, without headers of packets and without what had to be sent again.
func (p Process) Traffic(to netip.AddrPort) (Traffic, error) {
	traffic, err := p.traffic(to)
	if err != nil {
		return nil, fmt.Errorf("read connections of %s: %w", p.Name, err)
	}
	return traffic, nil
}

func (p Process) traffic(to netip.AddrPort) (Traffic, error) {
	folder := filepath.Join("/proc", strconv.Itoa(p.PID), "fd")
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	process, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(process) }() // nothing was written
	traffic := Traffic{}
	for _, file := range files {
		target, err := os.Readlink(filepath.Join(folder, file.Name()))
		if err != nil || !strings.HasPrefix(target, "socket:") {
			continue // it was closed meanwhile, or is no connection
		}
		fd, err := strconv.Atoi(file.Name())
		if err != nil {
			return nil, err
		}
		if err := traffic.add(process, fd, to); err != nil {
			return nil, err
		}
	}
	return traffic, nil
}

// add adds the connection behind another process's file, if that is one to the address.
func (t Traffic) add(process, file int, to netip.AddrPort) error {
	socket, err := unix.PidfdGetfd(process, file, 0)
	if errors.Is(err, unix.EBADF) {
		return nil // closed meanwhile
	}
	if err != nil {
		return fmt.Errorf("get file %d: %w", file, err)
	}
	defer func() { _ = unix.Close(socket) }() // the other process has its own
	peer, err := unix.Getpeername(socket)
	if err != nil || addressOf(peer) != to {
		return nil // it is not connected, or not to there
	}
	id, err := unix.GetsockoptUint64(socket, unix.SOL_SOCKET, unix.SO_COOKIE)
	if err != nil {
		return err
	}
	info, err := unix.GetsockoptTCPInfo(socket, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return err
	}
	t[id] = Bytes{Sent: info.Bytes_acked, Received: info.Bytes_received}
	return nil
}

func addressOf(peer unix.Sockaddr) netip.AddrPort {
	switch at := peer.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port)) //nolint:gosec // a port
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(at.Addr).Unmap(), uint16(at.Port)) //nolint:gosec // a port
	}
	return netip.AddrPort{}
}
