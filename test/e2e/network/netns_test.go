// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// netnsOf returns the one of the node.
func netnsOf(t *testing.T, c *framework.Cluster, node string) framework.NetNS {
	t.Helper()
	found, err := c.NetNSOfNode(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// do runs a function in it. Sockets that the function opens stay in there.
func do(n framework.NetNS, f func() error) error {
	if n == "" {
		return f()
	}
	return lab.InNetns(string(n), f)
}

// listen has each packet of IP on any interface of the namespace noted, with the number of the interface, until the story ends.
func listen(t *testing.T, n framework.NetNS, note func(packet []byte, link int)) {
	t.Helper()
	var fd int
	err := do(n, func() (err error) {
		// Packets that a bridge takes are shown to those alone that want all kinds.
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(networkOrder(unix.ETH_P_ALL))); err != nil {
			return err
		}
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}))
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		buffer := make([]byte, 1<<16)
		for ctx.Err() == nil {
			n, from, err := unix.Recvfrom(fd, buffer, 0)
			if link, ok := from.(*unix.SockaddrLinklayer); err == nil && ok {
				note(buffer[:n], link.Ifindex)
			}
		}
	})
	t.Cleanup(func() {
		end()
		done.Wait()
		_ = unix.Close(fd)
	})
}

// networkOrder is how the kernel wants numbers of protocols.
func networkOrder(number uint16) uint16 {
	return binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, number))
}

// linkOutside returns the number that the other end of its only link has on this machine.
func linkOutside(t *testing.T, n framework.NetNS) int {
	t.Helper()
	out, err := n.Run(t.Context(), "ip -o link show eth0")
	if err != nil {
		t.Fatal(err)
	}
	var inside, outside int
	if _, err := fmt.Sscanf(out, "%d: eth0@if%d:", &inside, &outside); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	return outside
}
