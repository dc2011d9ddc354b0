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
		fmt.Sprintf("addr replace %s/%d dev %s", slot.Host(), slot.Subnet().Bits(), slot.Bridge()),
	)
}

// linkScript joins a node's network namespace to the bridge.
func linkScript(node plan.Node) string {
	return lines(
		fmt.Sprintf("link add %s type veth peer name eth0 netns %s", node.Link(), node.Netns()),
		fmt.Sprintf("link set %s master %s alias %s up", node.Link(), node.Cluster.Slot.Bridge(), quote(node.Name())),
	)
}

// insideScript sets up a node's network namespace from within.
func insideScript(node plan.Node) string {
	slot := node.Cluster.Slot
	return lines(
		"link set lo up",
		"link set eth0 up",
		fmt.Sprintf("addr replace %s/%d dev eth0", node.Address(), slot.Subnet().Bits()),
		fmt.Sprintf("route replace default via %s", slot.Host()),
	)
}

// routesScript leads each worker's range of pods to that worker, as seen from another node of the cluster.
func routesScript(node plan.Node, podCIDRs map[int]netip.Prefix) string {
	var routes []string
	for _, worker := range node.Cluster.Workers() {
		if cidr, ok := podCIDRs[worker.Number]; ok && worker.Number != node.Number {
			routes = append(routes, fmt.Sprintf("route replace %s via %s", cidr, worker.Address()))
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
	rules := []string{"table ip detour", "delete table ip detour"}
	if to.IsValid() {
		lead := fmt.Sprintf("    ip daddr %s tcp dport %d dnat to %s", from.Addr(), from.Port(), to)
		rules = append(rules, "table ip detour {",
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

// nodeRules are the packet filter of one node: its pods reach the bridge under the node's address, and packets of
// clusters that it is cut off from are dropped where they arrive.
func nodeRules(node plan.Node, cuts []Cut, subnets map[string]netip.Prefix) string {
	cluster := node.Cluster
	script := []string{
		"table inet testbed",
		"delete table inet testbed",
		"table inet testbed {",
		"  chain postrouting {",
		"    type nat hook postrouting priority srcnat",
		fmt.Sprintf("    oifname \"eth0\" ip saddr %s ip daddr != %s masquerade", cluster.Options.PodCIDR, cluster.Options.PodCIDR),
		"  }",
		"  chain cut {",
		"    type filter hook prerouting priority mangle", // after connections are told apart, before addresses change
	}
	for _, cut := range cuts {
		subnet, known := subnets[cut.From]
		if cut.To != cluster.Name || !known {
			continue
		}
		direction := ""
		if cut.OneWay {
			direction = "ct direction original "
		}
		script = append(script, fmt.Sprintf("    iifname \"eth0\" ip saddr %s %sdrop", subnet, direction))
	}
	return lines(append(script, "  }", "}")...)
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
