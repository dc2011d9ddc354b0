// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
)

// maxAlias is how many bytes the kernel keeps of a link's alias.
const maxAlias = 255

// bridgeScript makes an existing bridge usable. Its alias says whose it is.
func bridgeScript(slot plan.Slot, owner string) string {
	return lines(
		fmt.Sprintf("link set %s alias %s up", slot.Bridge(), quote(alias(owner))),
		fmt.Sprintf("addr replace %s/%d dev %s", slot.Host(plan.IPv4), slot.Subnet(plan.IPv4).Bits(), slot.Bridge()),
	)
}

// linkScript joins a node's network namespace to the bridge, which gets its IPv6 address with the first node that needs that.
func linkScript(node plan.Node) string {
	slot, script := node.Cluster.Slot, []string(nil)
	if node.Cluster.HasIPv6() {
		address := netip.PrefixFrom(slot.Host(plan.IPv6), slot.Subnet(plan.IPv6).Bits())
		script = append(script, fmt.Sprintf("addr replace %s dev %s nodad", address, slot.Bridge()))
	}
	return lines(append(script,
		fmt.Sprintf("link add %s type veth peer name eth0 netns %s", node.Link(), node.Netns()),
		fmt.Sprintf("link set %s master %s alias %s up", node.Link(), slot.Bridge(), quote(node.Name())),
	)...)
}

// switchScript makes an existing switch usable.
func switchScript(cluster *plan.Cluster) string {
	return lines(fmt.Sprintf("link set %s alias %s up", cluster.Switch(), quote(cluster.Name+" switch")))
}

// joinScript puts the links of all nodes into a bridge.
func joinScript(cluster *plan.Cluster, bridge string) string {
	var script []string
	for _, node := range cluster.Nodes() {
		script = append(script, fmt.Sprintf("link set %s master %s", node.Link(), bridge))
	}
	return lines(script...)
}

// cableScript plugs both ends of the cable in.
func cableScript(cluster *plan.Cluster) string {
	inside, outside := cluster.Cable()
	return lines(
		fmt.Sprintf("link set %s master %s alias %s up", inside, cluster.Switch(), quote(cluster.Name+" cable, inside")),
		fmt.Sprintf("link set %s master %s alias %s up", outside, cluster.Slot.Bridge(), quote(cluster.Name+" cable, outside")),
	)
}

// insideScript sets up a node's network namespace from within.
func insideScript(node plan.Node) string {
	script := []string{"link set lo up", "link set eth0 up"}
	for _, family := range node.Cluster.Families() {
		script = append(script, addressScript(node, family)...)
	}
	return lines(script...)
}

// addressScript gives a node its address of a family, and its way out. Behind NAT, the way to other clusters is the control
// plane. Addresses of IPv6 are used at once, as nobody else has them.
func addressScript(node plan.Node, family plan.Family) []string {
	cluster, slot := node.Cluster, node.Cluster.Slot
	neighbours, routes := slot.Subnet(family), []string(nil)
	if node.BehindNAT() {
		neighbours = cluster.Subnet(family)
		routes = []string{
			fmt.Sprintf("route replace %s dev eth0", slot.Machine(family)),
			fmt.Sprintf("route replace %s via %s", slot.Subnet(family), cluster.ControlPlane().AddressOf(family)),
		}
	}
	address := fmt.Sprintf("addr replace %s/%d dev eth0", node.AddressOf(family), neighbours.Bits())
	if family == plan.IPv6 {
		address += " nodad"
	}
	return append(append([]string{address}, routes...), fmt.Sprintf("route replace default via %s", slot.Host(family)))
}

// routesScript leads each worker's ranges of pods to that worker, as seen from another node of the cluster.
func routesScript(node plan.Node, podCIDRs map[int]plan.Ranges) string {
	var routes []string
	for _, worker := range node.Cluster.Workers() {
		if worker.Number == node.Number {
			continue
		}
		for _, cidr := range podCIDRs[worker.Number] {
			routes = append(routes, fmt.Sprintf("route replace %s via %s", cidr, worker.AddressOf(plan.FamilyOf(cidr.Addr()))))
		}
	}
	return lines(routes...)
}

// hostRules keep what is on the bridge from being forwarded to the world outside, and the other way round.
func hostRules(slot plan.Slot) string {
	return lines(
		fmt.Sprintf("table inet %s", slot.Table()),
		fmt.Sprintf("delete table inet %s", slot.Table()),
		fmt.Sprintf("table inet %s {", slot.Table()),
		"  chain forward {",
		"    type filter hook forward priority filter",
		fmt.Sprintf("    iifname %q oifname != %q drop", slot.Bridge(), slot.Bridge()),
		fmt.Sprintf("    iifname != %q oifname %q drop", slot.Bridge(), slot.Bridge()),
		"  }",
		"}",
	)
}

// detourRules lead new connections elsewhere, those of pods and those of the node itself.
func detourRules(from, to netip.AddrPort) string {
	rules := []string{"table inet detour", "delete table inet detour"}
	if to.IsValid() {
		lead := fmt.Sprintf("    %s daddr %s tcp dport %d dnat %s to %s",
			plan.FamilyOf(from.Addr()), from.Addr(), from.Port(), plan.FamilyOf(to.Addr()), to)
		rules = append(rules, "table inet detour {",
			"  chain prerouting {", "    type nat hook prerouting priority dstnat", lead, "  }",
			"  chain output {", "    type nat hook output priority -100", lead, "  }",
			"}")
	}
	return lines(rules...)
}

// Cut is a partition: nothing that From sends, or with OneWay no connection that From opens, gets to To.
type Cut struct {
	From   string `json:"from"`
	To     string `json:"to"`
	OneWay bool   `json:"oneWay,omitempty"`
}

// nodeRules are the packet filter of one node: its pods reach the bridge under the node's address, packets of clusters that it
// is cut off from are dropped where they arrive, and behind NAT all that nobody here has asked for.
func nodeRules(node plan.Node, cuts []Cut, subnets map[string][]netip.Prefix) string {
	script := []string{
		"table inet testbed",
		"delete table inet testbed",
		"table inet testbed {",
		"  chain postrouting {",
		"    type nat hook postrouting priority srcnat",
	}
	script = append(script, masquerades(node)...)
	script = append(script,
		"  }",
		"  chain cut {",
		"    type filter hook prerouting priority mangle", // after connections are told apart, before addresses change
	)
	script = append(script, refusals(node.Cluster, cuts, subnets)...)
	return lines(append(script, "  }", "}")...)
}

func masquerades(node plan.Node) []string {
	var rules []string
	for _, pods := range node.Cluster.Options.PodCIDR {
		family := plan.FamilyOf(pods.Addr())
		rules = append(rules, fmt.Sprintf("    oifname \"eth0\" %s saddr %s %s daddr != %s masquerade", family, pods, family, pods))
		if node.TranslatesAddresses() {
			rules = append(rules, fmt.Sprintf("    oifname \"eth0\" %s saddr %s %s masquerade",
				family, node.Cluster.Subnet(family), others("daddr", node.Cluster, family)))
		}
	}
	return rules
}

func refusals(cluster *plan.Cluster, cuts []Cut, subnets map[string][]netip.Prefix) []string {
	var rules []string
	if cluster.Options.NAT {
		// Neighbours find each other by IPv6 packets of no connection: those pass.
		for _, family := range cluster.Families() {
			rules = append(rules, fmt.Sprintf("    iifname \"eth0\" %s ct state { invalid, new } drop", others("saddr", cluster, family)))
		}
	}
	for _, cut := range cuts {
		if cut.To != cluster.Name {
			continue
		}
		direction := ""
		if cut.OneWay {
			direction = "ct direction original "
		}
		for _, subnet := range subnets[cut.From] {
			rules = append(rules, fmt.Sprintf("    iifname \"eth0\" %s saddr %s %sdrop", plan.FamilyOf(subnet.Addr()), subnet, direction))
		}
	}
	return rules
}

// others matches packets to (daddr) or of (saddr) nodes of other clusters.
func others(side string, cluster *plan.Cluster, family plan.Family) string {
	return fmt.Sprintf("%s %s %s %s %s != { %s, %s }",
		family, side, cluster.Slot.Subnet(family), family, side, cluster.Subnet(family), cluster.Slot.Machine(family))
}

func alias(text string) string {
	if len(text) > maxAlias {
		return text[len(text)-maxAlias:]
	}
	return text
}

// quote makes one word of a text in a script of ip(8).
func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

func lines(text ...string) string {
	if len(text) == 0 {
		return ""
	}
	return strings.Join(text, "\n") + "\n"
}
