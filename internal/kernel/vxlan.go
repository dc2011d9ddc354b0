// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// vxlanID sets our VXLAN apart from others on the same port: "han".
const vxlanID = 0x68616e

// gatewayMAC is the hardware address of every gateway in its VXLAN: a node talks to the active one alone.
var gatewayMAC = net.HardwareAddr{0x02, 'h', 'a', 'n', 's', 'e'}

// nodeMAC derives the hardware address of a node from its first inner address, so that nobody has to ask for it. Addresses of IPv6 are
// hashed, since those of nodes in several subnets often end alike.
func nodeMAC(inner []netip.Addr) net.HardwareAddr {
	if len(inner) == 0 {
		return nil
	}
	bytes := inner[0].AsSlice()
	if inner[0].Is6() {
		hash := sha256.Sum256(bytes)
		bytes = hash[:]
	}
	return append(net.HardwareAddr{0x0a, 'h'}, bytes[len(bytes)-4:]...)
}

// A station is somebody in the VXLAN.
type station struct {
	mac   net.HardwareAddr
	outer netip.Addr   // where packets for it are sent
	inner []netip.Addr // its own addresses
}

// hop returns the next hop of routes to the station, not valid if there is none. For IPv6 it is made of the hardware address:
// the kernel takes no address of the station, because other routes lead there by another interface.
func (s station) hop(f family) netip.Addr {
	own := f.first(s.inner)
	if own.Is6() {
		return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 10: s.mac[0], 11: s.mac[1], 12: s.mac[2], 13: s.mac[3], 14: s.mac[4], 15: s.mac[5]})
	}
	return own
}

// ensureVXLAN makes hanse-vx with that hardware address, which reaches exactly those stations. The VXLAN floods nothing and
// learns nothing: a station that nobody told of is not there. An error beside an interface is about some stations alone.
func ensureVXLAN(port, mtu int, mac net.HardwareAddr, stations []station) (netlink.Link, error) {
	link, err := ensureVXLANLink(port, mtu, mac, slices.ContainsFunc(stations, func(s station) bool { return s.outer.Is6() }))
	if err != nil {
		return nil, fmt.Errorf("make interface %s: %w", vxlanLink, err)
	}
	if err := ensureForwarding(link); err != nil {
		return nil, err
	}
	if err := ensureNeighbours(link, neighboursOf(stations)); err != nil {
		return link, fmt.Errorf("tell %s its neighbours: %w", vxlanLink, err)
	}
	return link, nil
}

func ensureVXLANLink(port, mtu int, mac net.HardwareAddr, over6 bool) (netlink.Link, error) {
	link, err := netlink.LinkByName(vxlanLink)
	if err != nil && !isNoLink(err) {
		return nil, err
	}
	if err == nil && !sameVXLAN(link, port, over6) {
		if err := netlink.LinkDel(link); err != nil {
			return nil, err
		}
		link = nil
	}
	if link == nil {
		if link, err = addVXLAN(port, mtu, mac, over6); err != nil {
			return nil, err
		}
	}
	if link.Attrs().HardwareAddr.String() != mac.String() {
		if err := netlink.LinkSetHardwareAddr(link, mac); err != nil {
			return nil, err
		}
	}
	return link, ensureUp(link, mtu)
}

func sameVXLAN(link netlink.Link, port int, over6 bool) bool {
	v, ok := link.(*netlink.Vxlan)
	return ok && v.VxlanId == vxlanID && v.Port == port && !v.Learning && v.Group == nil && v.UDP6ZeroCSumRx == over6
}

func addVXLAN(port, mtu int, mac net.HardwareAddr, over6 bool) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = vxlanLink, mtu, mac
	v := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: vxlanID, Port: port}
	if over6 {
		v.SrcAddr = net.IPv6unspecified // the kernel takes it for IPv4 otherwise
		v.UDP6ZeroCSumRx = true         // the kernel tells this again, and not the address
	}
	if err := netlink.LinkAdd(v); err != nil {
		return nil, err
	}
	return netlink.LinkByName(vxlanLink)
}

// neighboursOf returns the entries that lead to the stations.
func neighboursOf(stations []station) map[string]netlink.Neigh {
	wanted := map[string]netlink.Neigh{}
	for _, s := range stations {
		add(wanted, netlink.Neigh{Family: unix.AF_BRIDGE, IP: s.outer.AsSlice(), HardwareAddr: s.mac, Flags: netlink.NTF_SELF})
		for _, f := range families {
			if hop := s.hop(f); hop.IsValid() {
				add(wanted, netlink.Neigh{Family: f.af, IP: hop.AsSlice(), HardwareAddr: s.mac})
			}
		}
	}
	return wanted
}

// ensureNeighbours makes exactly those entries.
func ensureNeighbours(link netlink.Link, wanted map[string]netlink.Neigh) error {
	have, err := neighbours(link)
	if err != nil {
		return err
	}
	var failed []error
	for key, n := range wanted {
		if _, ok := have[key]; !ok {
			n.LinkIndex, n.State = link.Attrs().Index, netlink.NUD_PERMANENT
			if err := netlink.NeighSet(&n); err != nil {
				failed = append(failed, fmt.Errorf("add %s: %w", key, err))
			}
		}
	}
	for key, n := range have {
		if _, ok := wanted[key]; ok || replaced(n, wanted) {
			continue
		}
		if err := netlink.NeighDel(&n); err != nil && !errors.Is(err, unix.ENOENT) {
			failed = append(failed, fmt.Errorf("remove %s: %w", key, err))
		}
	}
	return errors.Join(failed...)
}

// replaced reports whether a wanted entry has taken the place of that one.
func replaced(n netlink.Neigh, wanted map[string]netlink.Neigh) bool {
	for _, w := range wanted {
		sameHop := n.Family != unix.AF_BRIDGE && n.IP.Equal(w.IP)
		sameStation := n.Family == unix.AF_BRIDGE && n.HardwareAddr.String() == w.HardwareAddr.String()
		if w.Family == n.Family && (sameHop || sameStation) {
			return true
		}
	}
	return false
}

func add(all map[string]netlink.Neigh, n netlink.Neigh) { all[neighbourKey(n)] = n }

func neighbourKey(n netlink.Neigh) string {
	return fmt.Sprintf("%d %s %s", n.Family, n.IP, n.HardwareAddr)
}

// neighbours returns the permanent entries of an interface. All others are the kernel's own.
func neighbours(link netlink.Link) (map[string]netlink.Neigh, error) {
	found := map[string]netlink.Neigh{}
	for _, af := range []int{unix.AF_BRIDGE, unix.AF_INET, unix.AF_INET6} {
		all, err := netlink.NeighList(link.Attrs().Index, af)
		if err != nil {
			return nil, err
		}
		for _, n := range all {
			if n.State&netlink.NUD_PERMANENT != 0 && len(n.HardwareAddr) > 0 {
				n.Family = af
				if af == unix.AF_BRIDGE {
					n.Flags = netlink.NTF_SELF
				}
				add(found, n)
			}
		}
	}
	return found, nil
}
