// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
)

func lubeck() *plan.Cluster {
	options := plan.DefaultOptions()
	options.Workers = 2
	return &plan.Cluster{Name: "lubeck", Slot: 3, Index: 1, Options: options}
}

func behindNAT() *plan.Cluster {
	cluster := lubeck()
	cluster.Options.NAT = true
	return cluster
}

// withIPv6 is behind NAT, and IPv6 is its main family.
func withIPv6() *plan.Cluster {
	cluster := behindNAT()
	cluster.Options.PodCIDR = ranges("fd00:10:244::/56,10.244.0.0/16")
	return cluster
}

func ranges(text string) plan.Ranges {
	found, err := plan.ParseRanges(text)
	if err != nil {
		panic(err)
	}
	return found
}

func TestScripts(t *testing.T) {
	worker := lubeck().Workers()[0]
	inside, outside := lubeck().Cable()
	control := lubeck().ControlPlane()
	podCIDRs := map[int]plan.Ranges{1: ranges("10.244.0.0/24"), 2: ranges("10.244.7.0/24,fd00:10:244:7::/64")}
	for _, test := range []struct {
		name, got string
		want      []string
	}{
		{"the bridge says whose it is", bridgeScript(3, `/home/a "b"/.testbed`), []string{
			`link set hanse3 alias "/home/a \"b\"/.testbed" up`,
			`addr replace 10.213.0.1/16 dev hanse3`,
		}},
		{"a link joins a node to the bridge", linkScript(worker), []string{
			`link add ` + worker.Link() + ` type veth peer name eth0 netns hanse3-lubeck-1`,
			`link set ` + worker.Link() + ` master hanse3 alias "lubeck-worker-1" up`,
		}},
		{"a node has its address and a way out", insideScript(worker), []string{
			`link set lo up`, `link set eth0 up`, `addr replace 10.213.1.11/16 dev eth0`, `route replace default via 10.213.0.1`,
		}},
		{"behind NAT the control plane is the way to others", insideScript(behindNAT().Workers()[0]), []string{
			`link set lo up`, `link set eth0 up`, `addr replace 10.213.1.11/24 dev eth0`, `route replace 10.213.0.0/24 dev eth0`,
			`route replace 10.213.0.0/16 via 10.213.1.1`, `route replace default via 10.213.0.1`,
		}},
		{"which has its own way", insideScript(behindNAT().ControlPlane()), []string{
			`link set lo up`, `link set eth0 up`, `addr replace 10.213.1.1/16 dev eth0`, `route replace default via 10.213.0.1`,
		}},
		{"a worker routes to the others, not to itself", routesScript(worker, podCIDRs), []string{
			`route replace 10.244.7.0/24 via 10.213.1.12`, `route replace fd00:10:244:7::/64 via fd00:213::1:12`,
		}},
		{"the control plane routes to all workers", routesScript(lubeck().ControlPlane(), podCIDRs), []string{
			`route replace 10.244.0.0/24 via 10.213.1.11`, `route replace 10.244.7.0/24 via 10.213.1.12`,
			`route replace fd00:10:244:7::/64 via fd00:213::1:12`,
		}},
		{"with IPv6 the bridge has an address of that", linkScript(withIPv6().ControlPlane()), []string{
			`addr replace fd00:213::1/64 dev hanse3 nodad`,
			`link add ` + control.Link() + ` type veth peer name eth0 netns hanse3-lubeck-0`,
			`link set ` + control.Link() + ` master hanse3 alias "lubeck-control-plane" up`,
		}},
		{"and a node has two of all", insideScript(withIPv6().Workers()[0]), []string{
			`link set lo up`, `link set eth0 up`,
			`addr replace fd00:213::1:11/112 dev eth0 nodad`, `route replace fd00:213::/112 dev eth0`,
			`route replace fd00:213::/64 via fd00:213::1:1`, `route replace default via fd00:213::1`,
			`addr replace 10.213.1.11/24 dev eth0`, `route replace 10.213.0.0/24 dev eth0`,
			`route replace 10.213.0.0/16 via 10.213.1.1`, `route replace default via 10.213.0.1`,
		}},
		{"a switch says whose it is", switchScript(lubeck()), []string{
			`link set ` + lubeck().Switch() + ` alias "lubeck switch" up`,
		}},
		{"all nodes are in the switch", joinScript(lubeck(), lubeck().Switch()), []string{
			`link set ` + lubeck().ControlPlane().Link() + ` master ` + lubeck().Switch(),
			`link set ` + worker.Link() + ` master ` + lubeck().Switch(),
			`link set ` + lubeck().Workers()[1].Link() + ` master ` + lubeck().Switch(),
		}},
		{"the cable leads from the switch to the bridge", cableScript(lubeck()), []string{
			`link set ` + inside + ` master ` + lubeck().Switch() + ` alias "lubeck cable, inside" up`,
			`link set ` + outside + ` master hanse3 alias "lubeck cable, outside" up`,
		}},
		{"without ranges there are no routes", routesScript(worker, nil), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(lines(test.want...), test.got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestLongAliasKeepsItsEnd(t *testing.T) {
	if got := alias(strings.Repeat("x", 300) + "/end"); len(got) != maxAlias || !strings.HasSuffix(got, "/end") {
		t.Errorf("got %d characters: %s", len(got), got)
	}
}

func TestCutsDropWhatArrives(t *testing.T) {
	subnets := map[string][]netip.Prefix{
		"lubeck": ranges("10.213.1.0/24"), "hamburg": ranges("10.213.2.0/24"), "wismar": ranges("10.213.3.0/24,fd00:213::3:0/112"),
	}
	for _, test := range []struct {
		name string
		cuts []Cut
		want []string // lines with a drop
	}{
		{"no cut", nil, nil},
		{"from another cluster", []Cut{{From: "hamburg", To: "lubeck"}}, []string{`iifname "eth0" ip saddr 10.213.2.0/24 drop`}},
		{"one way, replies still arrive", []Cut{{From: "hamburg", To: "lubeck", OneWay: true}}, []string{
			`iifname "eth0" ip saddr 10.213.2.0/24 ct direction original drop`,
		}},
		{"from one with two families", []Cut{{From: "wismar", To: "lubeck"}}, []string{
			`iifname "eth0" ip saddr 10.213.3.0/24 drop`, `iifname "eth0" ip6 saddr fd00:213::3:0/112 drop`,
		}},
		{"to another cluster is that one's to drop", []Cut{{From: "lubeck", To: "hamburg"}}, nil},
		{"from a cluster that is gone", []Cut{{From: "bremen", To: "lubeck"}}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for line := range strings.Lines(nodeRules(lubeck().ControlPlane(), test.cuts, subnets)) {
				if strings.HasSuffix(line, "drop\n") {
					got = append(got, strings.TrimSpace(line))
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestPodsLeaveUnderTheNodesAddress(t *testing.T) {
	for _, test := range []struct {
		of   *plan.Cluster
		want string
	}{
		{lubeck(), `oifname "eth0" ip saddr 10.244.0.0/16 ip daddr != 10.244.0.0/16 masquerade`},
		{withIPv6(), `oifname "eth0" ip6 saddr fd00:10:244::/56 ip6 daddr != fd00:10:244::/56 masquerade`},
	} {
		if got := nodeRules(test.of.ControlPlane(), nil, nil); !strings.Contains(got, test.want) {
			t.Errorf("want %s in:\n%s", test.want, got)
		}
	}
}

func TestDetourLeadsBothFamilies(t *testing.T) {
	for from, want := range map[string]string{
		"10.213.2.1:6443":      "ip daddr 10.213.2.1 tcp dport 6443 dnat ip to 10.213.0.1:7000",
		"[fd00:213::2:1]:6443": "ip6 daddr fd00:213::2:1 tcp dport 6443 dnat ip6 to [fd00:213::1]:7000",
	} {
		to := "10.213.0.1:7000"
		if strings.HasPrefix(from, "[") {
			to = "[fd00:213::1]:7000"
		}
		if got := detourRules(netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)); !strings.Contains(got, want) {
			t.Errorf("want %s in:\n%s", want, got)
		}
	}
}

func TestNATHidesWorkersAndRefusesWhatNobodyAskedFor(t *testing.T) {
	const (
		hide   = `oifname "eth0" ip saddr 10.213.1.0/24 ip daddr 10.213.0.0/16 ip daddr != { 10.213.1.0/24, 10.213.0.0/24 } masquerade`
		refuse = `iifname "eth0" ip saddr 10.213.0.0/16 ip saddr != { 10.213.1.0/24, 10.213.0.0/24 } ct state { invalid, new } drop`
	)
	for _, test := range []struct {
		name          string
		node          plan.Node
		hides, refuse bool
	}{
		{"the control plane behind NAT does both", behindNAT().ControlPlane(), true, true},
		{"a worker behind NAT refuses", behindNAT().Workers()[0], false, true},
		{"a control plane elsewhere does neither", lubeck().ControlPlane(), false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			rules := nodeRules(test.node, nil, nil)
			if strings.Contains(rules, hide) != test.hides || strings.Contains(rules, refuse) != test.refuse {
				t.Errorf("rules:\n%s", rules)
			}
		})
	}
}

func TestNothingIsForwardedBetweenTheBridgeAndTheWorld(t *testing.T) {
	rules := hostRules(3)
	for _, want := range []string{`iifname "hanse3" oifname != "hanse3" drop`, `iifname != "hanse3" oifname "hanse3" drop`} {
		if !strings.Contains(rules, want) {
			t.Errorf("want %s in:\n%s", want, rules)
		}
	}
}

func bridge(name, alias string) link {
	found := link{Name: name, Alias: alias}
	found.Info.Kind = "bridge"
	return found
}

func TestFreeSlot(t *testing.T) {
	used := link{Name: "eth0", Addresses: []address{{Local: "10.211.7.9", Length: 24}}}
	wide := link{Name: "eth0", Addresses: []address{{Local: "10.1.2.3", Length: 8}}}
	for _, test := range []struct {
		name            string
		found           []link
		preferred, want plan.Slot
		wantErr         bool
	}{
		{"nothing there", nil, 0, 0, false},
		{"the preferred one", nil, 7, 7, false},
		{"the preferred one is another's", []link{bridge("hanse31", "/other")}, 31, 0, false},
		{"a testbed there", []link{bridge("hanse0", "/other")}, 0, 1, false},
		{"a bridge that nobody got to call theirs", []link{bridge("hanse0", "")}, 0, 0, false},
		{"addresses in use", []link{bridge("hanse0", "/other"), used}, 0, 2, false},
		{"all addresses in use", []link{wide}, 0, 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := free(test.found, test.preferred)
			if got != test.want || (err != nil) != test.wantErr {
				t.Errorf("got %d, %v", got, err)
			}
		})
	}
}

func TestSlotOfOwner(t *testing.T) {
	notABridge := link{Name: "hanse2", Alias: "/mine"}
	found := []link{bridge("hanse0", "/other"), notABridge, bridge("hanse5", "/mine")}
	if slot, ok := slotOf(found, "/mine"); !ok || slot != 5 {
		t.Errorf("got %d, %v", slot, ok)
	}
	if slot, ok := slotOf(found, "/nobody"); ok {
		t.Errorf("got %d", slot)
	}
}
