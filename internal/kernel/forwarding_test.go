// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestForwardingOfIPv6IsSwitchedOn(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "gateway")
	s.sysctl("net/ipv6/conf/all/forwarding", "0")
	for range 2 {
		s.must(Forward6)
	}
	s.must(func() error {
		if got := read6("all/forwarding"); got != "1" {
			t.Errorf("the sysctl is %q", got)
		}
		return nil
	})
}

func TestItIsSaidWhyIPv6IsNotForwarded(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "gateway")
	s.sysctl("net/ipv6/conf/all/forwarding", "0")
	if err := s.do(func() error { return errors.Join(readOnly("/proc/sys"), Forward6()) }); !errors.Is(err, fs.ErrPermission) && !errors.Is(err, unix.EROFS) {
		t.Errorf("where /proc/sys cannot be written: got %v", err)
	}
	s.sysctl("net/ipv6/conf/all/disable_ipv6", "1")
	if err := s.do(Forward6); !errors.Is(err, ErrNoIPv6) {
		t.Errorf("where there is no IPv6: got %v", err)
	}
}

// readOnly makes a folder read-only for the calling thread, as container engines do.
func readOnly(path string) error {
	return errors.Join(
		unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount(path, path, "", unix.MS_BIND, ""),
		unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""),
	)
}

func TestIPv4PassesWhereTheGatewayHasNoIPv6(t *testing.T) {
	t.Parallel()
	w := newInternet(t, 2)
	lubeck, hamburg := w.clusters[0], w.clusters[1]
	home, guest := lubeck.newPod("home", 2, 10).serve(), hamburg.newPod("guest", 2, 20).serve()
	hamburg.guests["lubeck"] = []netip.Addr{podAddress(2, 20), podAddress6(2, 20)}
	lubeck.pod.sysctl("net/ipv6/conf/all/disable_ipv6", "1")
	lubeck.pod.sysctl("net/ipv6/conf/default/disable_ipv6", "1")
	w.apply()
	check(t, []question{
		{"home to guest", home, lubeck.seen(hamburg, podAddress(2, 20)), true, netip.Addr{}},
		{"guest to home", guest, hamburg.seen(lubeck, podAddress(2, 10)), true, netip.Addr{}},
		{"home to guest over IPv6", home, lubeck.seen(hamburg, podAddress6(2, 20)), false, netip.Addr{}},
	})
}

func TestConnectionsGoOnThatWentAnotherWay(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "gateway")
	s.must(Liberal)
	s.must(func() error {
		got, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal")
		if err == nil && string(got) != "1\n" {
			t.Errorf("the sysctl is %q", got)
		}
		return nil // else connections are not tracked
	})
	if err := s.do(func() error { return errors.Join(readOnly("/proc/sys"), Liberal()) }); err == nil {
		t.Error("nobody says that /proc/sys cannot be written")
	}
}
