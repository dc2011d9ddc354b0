// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Names of our interfaces.
const (
	tunnelLink  = "hanse-wg"
	relayedLink = "hanse-wg-relay" // of tunnels that lead through the gateways of others
	tunnelLinks = tunnelLink + "*" // both
	vxlanLink   = "hanse-vx"
)

func ensureUp(link netlink.Link, mtu int) error {
	if link.Attrs().MTU != mtu {
		if err := netlink.LinkSetMTU(link, mtu); err != nil {
			return fmt.Errorf("set MTU %d: %w", mtu, err)
		}
	}
	if link.Attrs().Flags&net.FlagUp != 0 {
		return nil
	}
	return netlink.LinkSetUp(link)
}

func isNoLink(err error) bool {
	var none netlink.LinkNotFoundError
	return errors.As(err, &none)
}

// removeLink deletes an interface, if there is one.
func removeLink(name string) error {
	link, err := netlink.LinkByName(name)
	if isNoLink(err) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil {
		return fmt.Errorf("remove interface %s: %w", name, err)
	}
	return nil
}

// ensureAddresses gives an interface exactly those addresses, each for itself alone, beside those of the link that the kernel
// makes.
func ensureAddresses(link netlink.Link, addresses []netip.Addr) error {
	have, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	found := map[netip.Addr]bool{}
	for _, h := range have {
		a, _ := netip.AddrFromSlice(h.IP)
		a = a.Unmap()
		found[a] = true
		if !a.IsLinkLocalUnicast() && !slices.Contains(addresses, a) {
			if err := netlink.AddrDel(link, &h); err != nil {
				return fmt.Errorf("remove %s: %w", a, err)
			}
		}
	}
	for _, a := range addresses {
		if found[a] {
			continue
		}
		address := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
		if a.Is6() {
			address.Flags = unix.IFA_F_NODAD // nobody else is on this link
		}
		if err := netlink.AddrAdd(link, address); err != nil {
			return fmt.Errorf("add %s: %w", a, err)
		}
	}
	return nil
}
