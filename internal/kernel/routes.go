// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Numbers by which our routes and rules are known.
const (
	// protocol marks routes and rules of ours, as others have theirs in /etc/iproute2/rt_protos.
	protocol = 104
	// peersTable has the ranges of peers, for everybody.
	peersTable = 10401
	// nodesTable has our own ranges, for what comes out of the tunnel.
	nodesTable = 10402
	// firstPriority is that of our first rule: behind the kernel's own, and before those of CNIs.
	firstPriority = 60
	// tunnelMark is on what WireGuard itself sends. It never goes into the tunnel, whatever its destination.
	tunnelMark = 0x68616e
)

// Metrics of our routes. A blackhole comes to bear when the interface of the other route is gone or down.
const (
	usual    = 100
	fallback = 4000
)

// A route leads to a range, or drops what is for it if it has no link.
type route struct {
	table   int
	to      netip.Prefix
	link    netlink.Link
	via     netip.Addr // if it is not valid, there is no next hop
	from    netip.Addr // source of what this machine itself sends there; the kernel chooses if it is not valid
	largest int        // packet; that of the link if 0
}

func (r route) netlink() netlink.Route {
	n := netlink.Route{
		Table: r.table, Protocol: protocol, Family: familyOf(r.to.Addr()), Priority: usual, Type: unix.RTN_UNICAST,
		Dst: &net.IPNet{IP: r.to.Masked().Addr().AsSlice(), Mask: net.CIDRMask(r.to.Bits(), r.to.Addr().BitLen())}, MTU: r.largest,
	}
	if r.link == nil {
		n.Type, n.Priority = unix.RTN_BLACKHOLE, fallback
		return n
	}
	n.LinkIndex = r.link.Attrs().Index
	if r.via.IsValid() {
		n.Gw = r.via.AsSlice()
		n.SetFlag(netlink.FLAG_ONLINK)
	} else {
		n.Scope = netlink.SCOPE_LINK
	}
	if r.from.IsValid() {
		n.Src = r.from.AsSlice()
	}
	return n
}

// blackholes drop what is for the ranges, as long as nothing better leads there.
func blackholes(ranges []netip.Prefix) []route {
	var all []route
	for _, f := range families {
		for _, p := range f.prefixes(ranges) {
			all = append(all, route{table: peersTable, to: p})
		}
	}
	return all
}

// ensureRoutes makes our tables have exactly those routes. One that cannot be made is in the way of no other.
func ensureRoutes(all []route) error {
	wanted, places := map[string]netlink.Route{}, map[string]bool{}
	for _, r := range all {
		n := r.netlink()
		wanted[routeKey(n)], places[place(n)] = n, true
	}
	have, err := ourRoutes()
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	var failed []error
	for key, n := range wanted {
		if _, ok := have[key]; ok {
			continue
		}
		if err := netlink.RouteReplace(&n); err != nil {
			failed = append(failed, fmt.Errorf("add route to %s: %w", n.Dst, err))
		}
	}
	for key, n := range have {
		if _, ok := wanted[key]; ok || places[place(n)] {
			continue
		}
		if err := netlink.RouteDel(&n); err != nil && !errors.Is(err, unix.ESRCH) {
			failed = append(failed, fmt.Errorf("remove route to %s: %w", n.Dst, err))
		}
	}
	return errors.Join(failed...)
}

// place is where a route replaces another one.
func place(n netlink.Route) string {
	return fmt.Sprintf("%d %s %d", n.Table, destinationOf(n), n.Priority)
}

func routeKey(n netlink.Route) string {
	if n.Type == unix.RTN_BLACKHOLE {
		n.LinkIndex = 0 // the kernel says lo for IPv6
	}
	return fmt.Sprintf("%s %d %d %s %s %d", place(n), n.Type, n.LinkIndex, n.Gw, n.Src, n.MTU)
}

// destinationOf names the default route in one way.
func destinationOf(n netlink.Route) string {
	if n.Dst == nil {
		return fmt.Sprintf("default %d", n.Family)
	}
	if ones, _ := n.Dst.Mask.Size(); ones == 0 {
		return fmt.Sprintf("default %d", n.Family)
	}
	return n.Dst.String()
}

func ourRoutes() (map[string]netlink.Route, error) {
	found := map[string]netlink.Route{}
	for _, f := range families {
		for _, table := range []int{peersTable, nodesTable} {
			filter := &netlink.Route{Table: table, Protocol: protocol}
			all, err := netlink.RouteListFiltered(f.af, filter, netlink.RT_FILTER_TABLE)
			if err != nil {
				return nil, err
			}
			for _, n := range all {
				if n.Protocol == protocol {
					found[routeKey(n)] = n
				}
			}
		}
	}
	return found, nil
}

// A policy says which packets a table is for.
type policy struct {
	from  string     // interface by which they come in; any if empty
	src   netip.Addr // their source; any if it is not valid
	table int        // 0 drops them
	// vxlan is for packets of our VXLAN on that port alone, to that range. The default route of the table is not for them.
	vxlan int
	to    netip.Prefix
}

// ensureRules makes exactly those rules, the first of which comes first, for those families.
func ensureRules(policies []policy, wantedFamilies []family) error {
	wanted := map[string]*netlink.Rule{}
	for _, f := range wantedFamilies {
		for i, p := range policies {
			if r := p.rule(f, firstPriority+i); r != nil {
				wanted[ruleKey(r)] = r
			}
		}
	}
	have, err := ourRules()
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	var failed []error
	for key, r := range wanted {
		if _, ok := have[key]; !ok {
			if err := netlink.RuleAdd(r); err != nil {
				failed = append(failed, fmt.Errorf("add rule %d: %w", r.Priority, err))
			}
		}
	}
	for key, r := range have {
		if _, ok := wanted[key]; !ok {
			if err := netlink.RuleDel(r); err != nil && !errors.Is(err, unix.ENOENT) {
				failed = append(failed, fmt.Errorf("remove rule %d: %w", r.Priority, err))
			}
		}
	}
	return errors.Join(failed...)
}

// rule returns nil if the policy is about the other family.
func (p policy) rule(f family, priority int) *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Priority, r.Protocol, r.Table, r.IifName = f.af, priority, protocol, p.table, p.from
	if p.src.IsValid() {
		if !f.is(p.src) {
			return nil
		}
		r.Src = &net.IPNet{IP: p.src.AsSlice(), Mask: net.CIDRMask(p.src.BitLen(), p.src.BitLen())}
	}
	if p.vxlan > 0 {
		if !f.is(p.to.Addr()) {
			return nil
		}
		port := uint16(p.vxlan) //nolint:gosec // a port
		r.IPProto, r.Dport = unix.IPPROTO_UDP, netlink.NewRulePortRange(port, port)
		r.Dst = &net.IPNet{IP: p.to.Masked().Addr().AsSlice(), Mask: net.CIDRMask(p.to.Bits(), p.to.Addr().BitLen())}
		if p.table != 0 {
			r.SuppressPrefixlen = 0
		}
	}
	if p.table == peersTable {
		r.Mark, r.Invert = tunnelMark, true
	}
	if p.table == 0 {
		r.Type = unix.RTN_BLACKHOLE
	}
	return r
}

func ruleKey(r *netlink.Rule) string {
	port := netlink.RulePortRange{}
	if r.Dport != nil {
		port = *r.Dport
	}
	return fmt.Sprintf("%d %d %d %s %s %d %t %s %d %d %d",
		r.Family, r.Priority, r.Table, r.IifName, r.Src, r.Mark, r.Invert, r.Dst, r.IPProto, port, r.SuppressPrefixlen)
}

func ourRules() (map[string]*netlink.Rule, error) {
	found := map[string]*netlink.Rule{}
	for _, f := range families {
		all, err := netlink.RuleList(f.af)
		if errors.Is(err, unix.EAFNOSUPPORT) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, r := range all {
			if r.Protocol == protocol {
				r.Family = f.af
				found[ruleKey(&r)] = &r
			}
		}
	}
	return found, nil
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
