package plan

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Slots is how many testbeds can exist on one machine at a time.
const Slots = 32

// firstSubnet is the second octet of the first slot's subnet: 10.210.0.0/16, then 10.211.0.0/16 and so on.
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
func (s Slot) Subnet() netip.Prefix {
	return netip.PrefixFrom(s.address(0, 0), 16)
}

// Host is the machine's own address on the bridge.
func (s Slot) Host() netip.Addr {
	return s.address(0, 1)
}

// NetnsPrefix starts the name of each network namespace of the testbed.
func (s Slot) NetnsPrefix() string {
	return s.Bridge() + "-"
}

// LinkPrefix starts the name of each link of the testbed at the machine's end.
func (s Slot) LinkPrefix() string {
	return fmt.Sprintf("h%d-", int(s))
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

func (s Slot) address(third, fourth int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(firstSubnet + int(s)), byte(third), byte(fourth)}) //nolint:gosec // each caller checks its bounds
}
