// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// snapshot describes all that a namespace has: links, addresses, routes, rules, tables, settings.
func (s *space) snapshot() []string {
	s.t.Helper()
	var lines []string
	s.must(func() error {
		for _, read := range []func() ([]string, error){linkLines, routeLines, tableLines, sysctls} {
			more, err := read()
			if err != nil {
				return err
			}
			lines = append(lines, more...)
		}
		return nil
	})
	slices.Sort(lines)
	return lines
}

func linkLines() ([]string, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, l := range links {
		lines = append(lines, fmt.Sprintf("link %s %s %d %s", l.Attrs().Name, l.Type(), l.Attrs().MTU, l.Attrs().Flags))
		addresses, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return nil, err
		}
		for _, a := range addresses {
			lines = append(lines, fmt.Sprintf("address %s %s", l.Attrs().Name, a.IPNet))
		}
	}
	return lines, nil
}

func routeLines() ([]string, error) {
	var lines []string
	for _, f := range families {
		routes, err := netlink.RouteListFiltered(f.af, &netlink.Route{}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			lines = append(lines, fmt.Sprintf("route %d %s", r.Table, r))
		}
		rules, err := netlink.RuleList(f.af)
		if err != nil {
			return nil, err
		}
		for _, r := range rules {
			lines = append(lines, fmt.Sprintf("rule %d %s %d", r.Family, r, r.Protocol))
		}
	}
	return lines, nil
}

func tableLines() ([]string, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, err
	}
	tables, err := conn.ListTables()
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, t := range tables {
		lines = append(lines, fmt.Sprintf("table %s %d", t.Name, t.Family))
	}
	return lines, nil
}

// sysctls reads all settings of IP, but for those that the kernel itself moves.
func sysctls() ([]string, error) {
	var lines []string
	for _, root := range []string{"/proc/sys/net/ipv4", "/proc/sys/net/ipv6", "/proc/sys/net/core"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			value, err := os.ReadFile(path)
			if err == nil && filepath.Base(path) != "stable_secret" {
				lines = append(lines, path+" "+strings.TrimSpace(string(value)))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return lines, nil
}

// messages of the kernel about what was written, by netlink family and type.
var messages = map[int]map[uint16]string{
	unix.NETLINK_ROUTE: {
		unix.RTM_NEWLINK: "add link", unix.RTM_DELLINK: "remove link", unix.RTM_NEWADDR: "add address", unix.RTM_DELADDR: "remove address",
		unix.RTM_NEWROUTE: "add route", unix.RTM_DELROUTE: "remove route", unix.RTM_NEWRULE: "add rule", unix.RTM_DELRULE: "remove rule",
	},
	unix.NETLINK_NETFILTER: {
		unix.NFT_MSG_NEWTABLE: "add table", unix.NFT_MSG_DELTABLE: "remove table", unix.NFT_MSG_NEWSETELEM: "add elements",
		unix.NFT_MSG_DELSETELEM: "remove elements", unix.NFT_MSG_NEWRULE: "add rule of a table", unix.NFT_MSG_NEWGEN: "generation",
	},
}

// listen hears what is written in the namespace, by those families of netlink or by all, until what it returns is called.
func (s *space) listen(families ...int) func() []string {
	s.t.Helper()
	if len(families) == 0 {
		families = slices.Sorted(maps.Keys(messages))
	}
	groups := map[int][]int{
		unix.NETLINK_ROUTE: {
			unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
			unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
		},
		unix.NETLINK_NETFILTER: {unix.NFNLGRP_NFTABLES},
	}
	sockets := map[int]int{}
	s.must(func() (err error) {
		for _, f := range families {
			if sockets[f], err = subscribe(f, groups[f]); err != nil {
				return err
			}
		}
		return nil
	})
	return func() []string {
		var heard []string
		for _, f := range families {
			heard = append(heard, drain(sockets[f], messages[f])...)
			_ = unix.Close(sockets[f])
		}
		return heard
	}
}

func subscribe(family int, groups []int) (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, family)
	if err != nil {
		return 0, err
	}
	address := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	for _, g := range groups {
		address.Groups |= 1 << (g - 1)
	}
	return fd, unix.Bind(fd, address)
}

func drain(fd int, names map[uint16]string) []string {
	var heard []string
	buffer := make([]byte, 1<<17)
	for {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if err != nil {
			return heard
		}
		all, err := syscall.ParseNetlinkMessage(buffer[:n])
		if err != nil {
			return append(heard, err.Error())
		}
		for _, m := range all {
			kind := m.Header.Type
			if kind>>8 == unix.NFNL_SUBSYS_NFTABLES {
				kind &= 0xff
			}
			name, ok := names[kind]
			if !ok {
				name = fmt.Sprintf("message %d", kind)
			}
			heard = append(heard, name)
		}
	}
}
