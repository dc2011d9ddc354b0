// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"errors"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestRemoveLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newInternet(t, 2)
	c := w.clusters[0]
	spaces := []*space{c.pod, c.nodes[0].space, c.nodes[1].space}
	before := map[string][]string{}
	for _, s := range spaces {
		before[s.name] = s.snapshot()
	}
	w.apply()
	if cmp.Equal(before[c.pod.name], c.pod.snapshot()) {
		t.Error("the snapshot does not show what the gateway made")
	}
	for range 2 {
		c.ask((*Gateway).Remove)
		for _, n := range c.nodes {
			n.space.must(NewNode(NodeConfig{}).Remove) // not the one that made it
		}
		for _, s := range spaces {
			if diff := cmp.Diff(before[s.name], s.snapshot()); diff != "" {
				t.Errorf("%s before and after (-before +after):\n%s", s.name, diff)
			}
		}
	}
}

func TestRemoveLeavesWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "node")
	s.must(func() error {
		n := netlink.Route{Table: peersTable, Dst: ipNet(prefixes("198.51.100.0/24")[0], addr("198.51.100.0")), Type: unix.RTN_BLACKHOLE, Protocol: unix.RTPROT_STATIC}
		r := netlink.NewRule()
		r.Priority, r.Table = firstPriority, peersTable
		conn, _, err := natChain("other", nftables.ChainHookPostrouting, 0)
		if err != nil {
			return err
		}
		return errors.Join(netlink.RouteAdd(&n), netlink.RuleAdd(r), conn.Flush())
	})
	before := s.snapshot()
	s.must(NewNode(NodeConfig{}).Remove)
	if diff := cmp.Diff(before, s.snapshot()); diff != "" {
		t.Error(diff)
	}
}

func TestApplyingTheSameAgainWritesNothing(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	l.openSomething()
	l.apply()
	check(t, []question{{"home to guest", l.home1, l.lubeck.seen(l.hamburg, podAddress(1, 20)), true, netip.Addr{}}})
	for _, c := range l.clusters {
		if writes := c.pod.writes(func() { c.applyGateway(c.layout()) }); len(writes) > 0 {
			t.Errorf("the gateway of %s writes %v", c.name, writes)
		}
		have, err := c.gateway.direct.device.read()
		if err != nil {
			t.Fatal(err)
		}
		if changes := difference(have, Identity{PrivateKey: c.key, Port: wireguardPort}, tunnelMark, c.layout().Tunnels); len(changes) > 0 {
			t.Errorf("the tunnels of %s change: %v", c.name, changes)
		}
		for _, n := range c.nodes {
			again := func() { n.space.must(func() error { return NewNode(NodeConfig{}).Apply(c.nodeLayout(n)) }) }
			if writes := n.space.writes(again); len(writes) > 0 {
				t.Errorf("%s writes %v", n.space.name, writes)
			}
		}
	}
}

// writes returns what is written each time that it is done. The kernel tells of links on its own too, once, when they have
// come up.
func (s *space) writes(do func()) (writes []string) {
	s.t.Helper()
	for range 3 {
		heard := s.listen()
		do()
		if writes = heard(); len(writes) == 0 {
			break
		}
	}
	return writes
}

func TestNewPodCostsElementsAlone(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	l.hamburg.guests["lubeck"] = append(l.hamburg.guests["lubeck"], podAddress(1, 21))
	for _, test := range []struct {
		name  string
		space *space
		apply func()
		want  map[string]int
	}{
		{"gateway of the provider", l.hamburg.pod, func() { l.hamburg.applyGateway(l.hamburg.layout()) }, map[string]int{"add elements": 2, "generation": 1}},
		{"gateway of home", l.lubeck.pod, func() { l.lubeck.applyGateway(l.lubeck.layout()) }, map[string]int{"add elements": 1, "generation": 1}},
		{"node, in two tables", l.hamburg.nodes[1].space, l.hamburg.apply, map[string]int{"add elements": 6, "generation": 2}},
	} {
		heard := test.space.listen()
		test.apply()
		writes := map[string]int{}
		for _, w := range heard() {
			writes[w]++
		}
		if diff := cmp.Diff(test.want, writes); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestNewProcessTakesOverAfterACrash(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	questions := []question{
		{"home to guest", l.home1, l.lubeck.seen(l.hamburg, podAddress(1, 20)), true, l.hamburg.seen(l.lubeck, podAddress(1, 10))},
		{"guest to home", l.guest2, l.hamburg.seen(l.lubeck, podAddress(2, 10)), true, l.lubeck.seen(l.hamburg, podAddress(2, 20))},
	}
	check(t, questions)
	l.lubeck.ask(func(g *Gateway) error {
		l.lubeck.gateway = NewGateway(g.config)
		return g.Close() // its interface ends with a process
	})
	heard := l.lubeck.pod.listen(unix.NETLINK_NETFILTER)
	l.lubeck.apply()
	if writes := heard(); len(writes) > 0 {
		t.Errorf("the new process writes %v", writes)
	}
	check(t, questions)
}

func TestWhatOthersBrokeIsMended(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	closed := []question{{"home to own pod of the provider", l.home1, l.lubeck.seen(l.hamburg, podAddress(1, 40)), false, netip.Addr{}}}
	open := []question{{"home to guest", l.home1, l.lubeck.seen(l.hamburg, podAddress(1, 20)), true, l.hamburg.seen(l.lubeck, podAddress(1, 10))}}
	for name, damage := range map[string]func() error{
		"rules are gone": func() error {
			conn, err := nftables.New()
			if err != nil {
				return err
			}
			conn.FlushTable(&nftables.Table{Name: tableName, Family: nftables.TableFamilyINet})
			return conn.Flush()
		},
		"the table is gone": func() error { return removeTable(nftables.TableFamilyINet) },
		"elements are gone": func() error {
			conn, err := nftables.New()
			if err != nil {
				return err
			}
			conn.FlushSet(&nftables.Set{Table: &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}, Name: "arriving4"})
			return conn.Flush()
		},
		"the VXLAN is gone":        func() error { return removeLink(vxlanLink) },
		"the tunnel is gone":       func() error { return removeLink(tunnelLink) },
		"routes are gone":          func() error { return ensureRoutes(nil) },
		"rules of routes are gone": func() error { return ensureRules(nil, nil) },
		"the VXLAN is another": func() error {
			if err := removeLink(vxlanLink); err != nil {
				return err
			}
			attrs := netlink.NewLinkAttrs()
			attrs.Name = vxlanLink
			return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
		},
	} {
		l.hamburg.pod.must(damage)
		l.hamburg.apply()
		check(t, append(open, closed...))
		if t.Failed() {
			t.Fatalf("after this: %s", name)
		}
	}
}

func TestPeerThatIsGoneLeavesNothing(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	bremen := l.bremen
	l.clusters = l.clusters[:2]
	l.lubeck.apply()
	for _, s := range []*space{l.lubeck.pod, l.lubeck.nodes[0].space} {
		for _, line := range s.snapshot() {
			for _, seen := range seenRanges(l.lubeck.seesItself(bremen)) {
				if strings.Contains(line, seen.String()) {
					t.Errorf("%s still has %s", s.name, line)
				}
			}
		}
	}
	check(t, []question{{"home to guest", l.home1, l.lubeck.seen(l.hamburg, podAddress(1, 20)), true, netip.Addr{}}})
}

func TestVXLANIsMadeOnceOverEitherFamily(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "node")
	s.must(func() error {
		last := 0
		for _, outer := range []netip.Addr{addr("192.0.2.1"), addr("192.0.2.2"), addr("2001:db8::1"), addr("2001:db8::2"), addr("192.0.2.1")} {
			gateway := station{mac: gatewayMAC, outer: outer, inner: []netip.Addr{addr("10.244.1.2"), addr("fd10::2")}}
			link, err := ensureVXLAN(DefaultVXLANPort, innerMTU, nodeMAC([]netip.Addr{addr("172.20.0.1")}), []station{gateway})
			if err != nil {
				return err
			}
			have, err := neighbours(link)
			if err != nil {
				return err
			}
			if diff := cmp.Diff(slices.Sorted(maps.Keys(neighboursOf([]station{gateway}))), slices.Sorted(maps.Keys(have))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", outer, diff)
			}
			if same := link.Attrs().Index == last; last != 0 && same != strings.HasSuffix(outer.String(), "2") {
				t.Errorf("%s: the interface is the same: %t", outer, same)
			}
			last = link.Attrs().Index
		}
		return nil
	})
}

// Others list the tables of a node. Many an nft ends at what it does not understand, so there must be nothing of that.
func TestOthersCanListOurTables(t *testing.T) {
	t.Parallel()
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Skip("needs nft, which the package nftables has")
	}
	l := newLeague(t)
	l.openSomething()
	l.apply()
	for _, s := range []*space{l.hamburg.pod, l.hamburg.nodes[0].space} {
		for _, flag := range []string{"--stateless", "--json"} {
			s.must(func() error {
				said, err := exec.Command(nft, flag, "list", "ruleset").CombinedOutput() //nolint:noctx // ends at once
				if err != nil {
					t.Errorf("%s with %s: %v: %s", s.name, flag, err, said[max(0, len(said)-300):])
				}
				return nil
			})
		}
	}
}

func TestNodesOfDifferentSubnetsHaveDifferentHardwareAddresses(t *testing.T) {
	made := map[string]string{}
	for _, text := range []string{"172.20.0.1", "172.20.0.2", "fd20::1", "fd20:0:0:1::1", "fd20:0:0:2::1", "fd20::ac14:1"} {
		mac := nodeMAC([]netip.Addr{addr("%s", text)}).String()
		if other, taken := made[mac]; taken || len(mac) != len(gatewayMAC.String()) {
			t.Errorf("%s and %s have %s", text, other, mac)
		}
		made[mac] = text
	}
}
