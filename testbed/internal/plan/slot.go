// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"strconv"
	"strings"
)

// Slots is how many testbeds can exist on one machine at a time.
const Slots = 32

// firstSubnet is the second octet of the first slot's subnet: 10.210.0.0/16, then 10.211.0.0/16 and so on. IPv6 addresses have the
// same digits: fd00:210::1:11 is where 10.210.1.11 is.
const firstSubnet = 210

// prefix starts every name that a testbed gives to something outside its own folder.
const prefix = "hanse"

// Slot numbers the testbeds of one machine. A testbed claims one by making the bridge of that number.
type Slot int

// SlotOf tells the slot that a bridge of this name belongs to.
func SlotOf(bridge string) (Slot, bool) {
	number, ok := strings.CutPrefix(bridge, prefix)
	if !ok {
		return 0, false
	}
	slot, err := strconv.Atoi(number)
	if err != nil || slot < 0 || slot >= Slots || Slot(slot).Bridge() != bridge {
		return 0, false
	}
	return Slot(slot), true
}

// Bridge is the name of the bridge that joins all nodes of the testbed.
func (s Slot) Bridge() string {
	return fmt.Sprintf("%s%d", prefix, int(s))
}

// Subnet is the range of the addresses on the bridge.
func (s Slot) Subnet(family Family) netip.Prefix {
	return netip.PrefixFrom(s.address(family, 0, 0), map[Family]int{IPv4: 16, IPv6: 64}[family])
}

// Host is the machine's own address on the bridge.
func (s Slot) Host(family Family) netip.Addr {
	return s.address(family, 0, 1)
}

// NetnsPrefix starts the name of each network namespace of the testbed.
func (s Slot) NetnsPrefix() string {
	return s.Bridge() + "-"
}

// LinkPrefix starts the name of each link of the testbed at the machine's end.
func (s Slot) LinkPrefix() string {
	return fmt.Sprintf("h%d-", int(s))
}

// link names a link at the machine's end. Such names are short, so it is a hash; the link's alias is readable.
func (s Slot) link(of string) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(of))
	return fmt.Sprintf("%s%08x", s.LinkPrefix(), hash.Sum32())
}

// Machine is the range on the bridge that is the machine's own: no cluster has addresses of it.
func (s Slot) Machine(family Family) netip.Prefix {
	return s.part(family, 0)
}

// RunDir is the folder of what lives no longer than the machine is up: the handles of mount namespaces.
func (s Slot) RunDir() string {
	return fmt.Sprintf("/run/%s-testbed-%d", prefix, int(s))
}

// Cgroup is the testbed's control group in each hierarchy.
func (s Slot) Cgroup() string {
	return fmt.Sprintf("/%s-testbed-%d", prefix, int(s))
}

// Table is the name of the testbed's table of packet filter rules.
func (s Slot) Table() string {
	return fmt.Sprintf("%s_testbed_%d", prefix, int(s))
}

// part is one of the 256 parts of the subnet: the machine's or a cluster's.
func (s Slot) part(family Family, index int) netip.Prefix {
	return netip.PrefixFrom(s.address(family, index, 0), map[Family]int{IPv4: 24, IPv6: 112}[family])
}

func (s Slot) address(family Family, part, number int) netip.Addr {
	second := firstSubnet + int(s)
	if family == IPv6 {
		return netip.MustParseAddr(fmt.Sprintf("fd00:%d::%d:%d", second, part, number))
	}
	return netip.AddrFrom4([4]byte{10, byte(second), byte(part), byte(number)}) //nolint:gosec // each caller checks its bounds
}
