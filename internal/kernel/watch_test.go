// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"errors"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// watch keeps a copy of each packet that passes an interface, until what it returns is called, which returns them.
func (s *space) watch(link string) func() [][]byte {
	s.t.Helper()
	var fd int
	s.must(func() (err error) {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return err
		}
		const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all); err != nil {
			return err
		}
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}),
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 0),
			promiscuous(fd, l.Attrs().Index),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: l.Attrs().Index}),
		)
	})
	var packets [][]byte
	end := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		buffer := make([]byte, 1<<17)
		for {
			n, _, err := unix.Recvfrom(fd, buffer, 0)
			switch {
			case err == nil:
				packets = append(packets, append([]byte{}, buffer[:n]...))
			case isClosed(end):
				return
			}
		}
	})
	stop := sync.OnceFunc(func() {
		close(end)
		watching.Wait()
		_ = unix.Close(fd)
	})
	s.t.Cleanup(stop)
	return func() [][]byte {
		stop()
		return packets
	}
}

func promiscuous(fd, index int) error {
	return unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &unix.PacketMreq{
		Ifindex: int32(index), Type: unix.PACKET_MR_PROMISC,
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
