// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// A setting is one of IPv4 on one interface.
type setting struct {
	name   string
	number uint16 // IPV4_DEVCONF_... of the kernel
	value  uint32
}

// What comes in from our interfaces is forwarded. Its source need not be reached by the interface that it came from, because
// the two ways to a pod on the gateway's own node differ.
var settings = []setting{
	{"forwarding", 1, 1},
	{"rp_filter", 8, 2},
}

// ensureForwarding lets the kernel forward what comes in from an interface of ours, and changes nothing about any other one.
// It does so by netlink, because /proc/sys cannot be written in a container.
func ensureForwarding(link netlink.Link) error {
	for _, s := range settings {
		have, err := os.ReadFile(filepath.Join("/proc/sys/net/ipv4/conf", link.Attrs().Name, s.name))
		if err != nil {
			return fmt.Errorf("read whether %s forwards: %w", link.Attrs().Name, err)
		}
		if string(bytes.TrimSpace(have)) == strconv.Itoa(int(s.value)) {
			continue
		}
		if err := configure(link, s); err != nil {
			return fmt.Errorf("set %s of %s: %w", s.name, link.Attrs().Name, err)
		}
	}
	return nil
}

func configure(link netlink.Link, s setting) error {
	request := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(link.Attrs().Index) //nolint:gosec // an interface index is an int32
	request.AddData(message)
	families := nl.NewRtAttr(unix.IFLA_AF_SPEC|unix.NLA_F_NESTED, nil)
	inet := families.AddRtAttr(unix.AF_INET|unix.NLA_F_NESTED, nil)
	inet.AddRtAttr(unix.IFLA_INET_CONF|unix.NLA_F_NESTED, nil).AddRtAttr(int(s.number), nl.Uint32Attr(s.value))
	request.AddData(families)
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// Forward6 lets the kernel forward IPv6, which it does for all interfaces of a network namespace or for none. The error is
// ErrNoIPv6 where there is no IPv6. Any other one means that somebody with more rights must set the sysctl that it names.
func Forward6() error {
	if !has6() {
		return ErrNoIPv6
	}
	if read6("all/forwarding") == "1" {
		return nil
	}
	if err := os.WriteFile(filepath.Join(settings6, "all/forwarding"), []byte("1"), 0); err != nil {
		return fmt.Errorf("set sysctl net.ipv6.conf.all.forwarding to 1: %w", err)
	}
	return nil
}

// Liberal has the kernel go on with TCP connections of which a part went another way: through another gateway, or directly. Else it
// would drop what does not follow from what it saw of them last. It changes nothing where connections are not tracked.
func Liberal() error {
	err := os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal", []byte("1"), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("set sysctl net.netfilter.nf_conntrack_tcp_be_liberal to 1: %w", err)
	}
	return nil
}

const settings6 = "/proc/sys/net/ipv6/conf"

// has6 reports whether interfaces that are made now have IPv6.
func has6() bool { return read6("all/disable_ipv6") == "0" && read6("default/disable_ipv6") == "0" }

// read6 returns a setting of IPv6, nothing if there is none.
func read6(path string) string {
	have, _ := os.ReadFile(filepath.Join(settings6, path)) //nolint:gosec // paths of ours
	return string(bytes.TrimSpace(have))
}
