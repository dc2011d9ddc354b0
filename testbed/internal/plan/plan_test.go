// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// dual are the options of a cluster with so many workers, IPv4 and IPv6.
func dual(workers int) Options {
	options := DefaultOptions()
	options.Workers = workers
	options.PodCIDR, options.ServiceCIDR = cidr("10.244.0.0/16,fd00:10:244::/56"), cidr("10.96.0.0/12,fd00:10:96::/112")
	return options
}

func TestNamesAndAddressesOfANode(t *testing.T) {
	cluster := &Cluster{Name: "lubeck", Slot: 3, Index: 2, Dir: "/state/lubeck", Options: dual(2)}
	worker := cluster.Workers()[1]
	got := map[string]string{
		"name": worker.Name(), "address": worker.Address().String(), "netns": worker.NetnsPath(),
		"mountns": worker.MountnsPath(), "cgroup": worker.Cgroup(), "dir": worker.Dir(), "logs": worker.LogDir(),
		"control plane": cluster.ControlPlane().Name(), "its address": cluster.ControlPlane().Address().String(),
		"subnet": cluster.Subnet(IPv4).String(), "bridge": cluster.Slot.Bridge(), "host": cluster.Slot.Host(IPv4).String(),
		"by IPv6": worker.AddressOf(IPv6).String(), "IPv6 subnet": cluster.Subnet(IPv6).String(), "IPv6 host": cluster.Slot.Host(IPv6).String(),
	}
	want := map[string]string{
		"name": "lubeck-worker-2", "address": "10.213.2.12", "netns": "/run/netns/hanse3-lubeck-2",
		"mountns": "/run/hanse-testbed-3/hanse3-lubeck-2", "cgroup": "/hanse-testbed-3/lubeck-2",
		"dir": "/state/lubeck/worker-2", "logs": "/state/lubeck/logs/worker-2",
		"control plane": "lubeck-control-plane", "its address": "10.213.2.1",
		"subnet": "10.213.2.0/24", "bridge": "hanse3", "host": "10.213.0.1",
		"by IPv6": "fd00:213::2:12", "IPv6 subnet": "fd00:213::2:0/112", "IPv6 host": "fd00:213::1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestNoTwoNodesShareAnythingOnTheMachine(t *testing.T) {
	taken := map[string]string{} // name or address → whose
	for _, slot := range []Slot{0, 1, Slots - 1} {
		for index, name := range []string{"a", "a-1", "lubeck", strings.Repeat("x", 30)} {
			cluster := &Cluster{Name: name, Slot: slot, Index: index + 1, Options: dual(12)}
			inside, outside := cluster.Cable()
			for _, link := range []string{cluster.Switch(), inside, outside} {
				if other, ok := taken[link]; ok {
					t.Errorf("%s is both %s's and that of a cable", link, other)
				}
				taken[link] = name
			}
			for _, node := range cluster.Nodes() {
				things := []string{node.Netns(), node.Link(), node.Cgroup(), node.MountnsPath()}
				for _, address := range node.Addresses() {
					things = append(things, address.String())
					if !slot.Subnet(FamilyOf(address)).Contains(address) {
						t.Errorf("%s is not in %s", address, slot.Subnet(FamilyOf(address)))
					}
				}
				for _, thing := range things {
					owner := node.Netns()
					if other, ok := taken[thing]; ok && other != owner {
						t.Errorf("%s is both %s's and %s's", thing, other, owner)
					}
					taken[thing] = owner
				}
				if len(node.Link()) > 15 {
					t.Errorf("link %s: the kernel takes names of at most 15 characters", node.Link())
				}
			}
		}
	}
}

func TestSlotOfIsTheInverseOfBridge(t *testing.T) {
	for slot := range Slot(Slots) {
		if got, ok := SlotOf(slot.Bridge()); !ok || got != slot {
			t.Errorf("SlotOf(%q) = %d, %v", slot.Bridge(), got, ok)
		}
	}
	for _, name := range []string{"", "hanse", "hanse-1", "hanse32", "hanse03", "hanse+1", "docker0", "xhanse1"} {
		if slot, ok := SlotOf(name); ok {
			t.Errorf("SlotOf(%q) = %d, want none", name, slot)
		}
	}
}

func TestParseNetnsIsTheInverseOfNetns(t *testing.T) {
	for _, name := range []string{"a", "a-1", "a-1-2"} {
		cluster := &Cluster{Name: name, Slot: 1, Options: dual(11)}
		for _, node := range cluster.Nodes() {
			got, number, ok := Slot(1).ParseNetns(node.Netns())
			if !ok || got != name || number != node.Number {
				t.Errorf("ParseNetns(%q) = %q, %d, %v", node.Netns(), got, number, ok)
			}
		}
	}
	for _, netns := range []string{"", "hanse1-", "hanse1-a", "hanse1--1", "hanse11-a-1", "hanse2-a-1", "cni-1"} {
		if name, number, ok := Slot(1).ParseNetns(netns); ok {
			t.Errorf("ParseNetns(%q) = %q, %d, want none", netns, name, number)
		}
	}
}

func TestServiceAddresses(t *testing.T) {
	cluster := &Cluster{Options: Options{ServiceCIDR: cidr("10.96.0.0/12")}}
	if got := cluster.KubernetesService().String(); got != "10.96.0.1" {
		t.Errorf("kubernetes.default is at %s", got)
	}
	if got := cluster.DNS()[0].String(); got != "10.96.0.10" {
		t.Errorf("cluster DNS is at %s", got)
	}
}

func TestValidateName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "lubeck": true, "lubeck-2": true, strings.Repeat("x", 30): true,
		"": false, "-a": false, "a-": false, "2a": false, "Lubeck": false, "a.b": false, "../x": false,
		strings.Repeat("x", 31): false, "images": false, "locks": false,
	} {
		if err := ValidateName(name); (err == nil) != want {
			t.Errorf("ValidateName(%q) = %v, want valid: %v", name, err, want)
		}
	}
}

func TestFreeIndexIsTheFirstThatNobodyHas(t *testing.T) {
	if got, err := FreeIndex([]*Cluster{{Index: 1}, {Index: 3}}); err != nil || got != 2 {
		t.Errorf("got %d, %v", got, err)
	}
	full := make([]*Cluster, MaxClusters)
	for i := range full {
		full[i] = &Cluster{Index: i + 1}
	}
	if got, err := FreeIndex(full); err == nil {
		t.Errorf("got %d of a full testbed", got)
	}
}
