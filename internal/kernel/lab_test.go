// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// A space is a network namespace without a name: it ends with the test process, however that ends.
type space struct {
	t    testing.TB
	name string
	ns   netns.NsHandle
}

// newSpace makes a namespace, or skips the test where that is not allowed.
func newSpace(t testing.TB, name string) *space {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	s := &space{t: t, name: name}
	inThread(func() {
		var err error
		if s.ns, err = netns.New(); err != nil {
			t.Errorf("make a network namespace: %v", err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() { _ = s.ns.Close() })
	s.must(func() error { return setUp("lo") })
	s.sysctl("net/ipv6/conf/default/accept_dad", "0")
	s.sysctl("net/ipv6/conf/all/accept_dad", "0")
	return s
}

// inThread runs a function in a thread of its own, which ends with it: its namespace does not matter any more.
func inThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
}

// do runs a function in the namespace.
func (s *space) do(f func() error) (err error) {
	inThread(func() {
		if err = netns.Set(s.ns); err == nil {
			err = f()
		}
	})
	return err
}

func (s *space) must(f func() error) {
	s.t.Helper()
	if err := s.do(f); err != nil {
		s.t.Fatalf("%s: %v", s.name, err)
	}
}

func (s *space) sysctl(path, value string) {
	s.t.Helper()
	s.must(func() error { return os.WriteFile("/proc/sys/"+path, []byte(value), 0) })
}

func setUp(link string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

// wire joins two namespaces by a pair of interfaces.
func wire(a *space, nameA string, b *space, nameB string) {
	a.t.Helper()
	a.must(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = nameA
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: nameB, PeerNamespace: netlink.NsFd(b.ns)})
	})
	a.must(func() error { return setUp(nameA) })
	b.must(func() error { return setUp(nameB) })
}

func (s *space) bridge(name string, ports ...string) {
	s.t.Helper()
	s.must(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		bridge := &netlink.Bridge{LinkAttrs: attrs}
		if err := netlink.LinkAdd(bridge); err != nil {
			return err
		}
		return setUp(name)
	})
	for _, p := range ports {
		s.plug(name, p)
	}
}

func (s *space) plug(bridge, port string) {
	s.t.Helper()
	s.must(func() error {
		b, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		p, err := netlink.LinkByName(port)
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(p, b)
	})
}

func (s *space) address(link string, prefixes ...string) {
	s.t.Helper()
	s.must(func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return err
		}
		for _, text := range prefixes {
			p := netip.MustParsePrefix(text)
			a := &netlink.Addr{IPNet: ipNet(p, p.Addr())}
			if p.Addr().Is6() {
				a.Flags = unix.IFA_F_NODAD
			}
			if err := netlink.AddrAdd(l, a); err != nil {
				return fmt.Errorf("address %s: %w", p, err)
			}
		}
		return nil
	})
}

// remove takes the addresses off whatever interface has them.
func (s *space) remove(prefixes ...string) {
	s.t.Helper()
	s.must(func() error {
		have, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
		if err != nil {
			return err
		}
		for _, a := range have {
			if slices.Contains(prefixes, a.IPNet.String()) {
				if err := netlink.AddrDel(nil, &a); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (s *space) route(to, via string) {
	s.t.Helper()
	p, hop := netip.MustParsePrefix(to), netip.MustParseAddr(via)
	s.must(func() error {
		if err := netlink.RouteAdd(&netlink.Route{Dst: ipNet(p, p.Masked().Addr()), Gw: hop.AsSlice()}); err != nil {
			return fmt.Errorf("route to %s: %w", to, err)
		}
		return nil
	})
}

func ipNet(p netip.Prefix, a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(p.Bits(), a.BitLen())}
}

// bridgesAlone keeps the kernel from showing what passes a bridge to tables for routed packets, as some distributions have it.
func (s *space) bridgesAlone() {
	for _, f := range []string{"iptables", "ip6tables"} {
		path := "net/bridge/bridge-nf-call-" + f
		if _, err := os.Stat("/proc/sys/" + path); err == nil {
			s.sysctl(path, "0")
		}
	}
}
