// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"path/filepath"
)

// Node is one machine of a cluster: number 0 is the control plane, the others are its workers.
type Node struct {
	Cluster *Cluster
	Number  int
}

// firstWorker is the last octet of the first worker's address, less one; the control plane has 1.
const firstWorker = 10

// Name is the name of the node in Kubernetes.
func (n Node) Name() string {
	if n.Number == 0 {
		return n.Cluster.Name + "-control-plane"
	}
	return fmt.Sprintf("%s-worker-%d", n.Cluster.Name, n.Number)
}

// Address is the node's main address on the bridge.
func (n Node) Address() netip.Addr { return n.Addresses()[0] }

// Addresses are the node's on the bridge: one of each family of its cluster, the main one first.
func (n Node) Addresses() []netip.Addr {
	var addresses []netip.Addr
	for _, family := range n.Cluster.Families() {
		addresses = append(addresses, n.AddressOf(family))
	}
	return addresses
}

// AddressOf is the node's address of a family that its cluster has.
func (n Node) AddressOf(family Family) netip.Addr {
	number := 1
	if n.Number > 0 {
		number = firstWorker + n.Number
	}
	return n.Cluster.Slot.address(family, n.Cluster.Index, number)
}

// BehindNAT tells whether the node reaches other clusters under the control plane's address alone.
func (n Node) BehindNAT() bool { return n.Cluster.Options.NAT && n.Number > 0 }

// TranslatesAddresses tells whether the node is the one through which the others of its cluster reach other clusters.
func (n Node) TranslatesAddresses() bool { return n.Cluster.Options.NAT && n.Number == 0 }

// Netns is the name of the node's network namespace.
func (n Node) Netns() string {
	return fmt.Sprintf("%s%s-%d", n.Cluster.Slot.NetnsPrefix(), n.Cluster.Name, n.Number)
}

// NetnsPath is the file that stands for the node's network namespace.
func (n Node) NetnsPath() string {
	return filepath.Join("/run/netns", n.Netns())
}

// Link is the name of the node's link to the bridge, at the machine's end.
func (n Node) Link() string {
	return n.Cluster.Slot.link(n.Netns())
}

// MountnsPath is the file that stands for the worker's mount namespace.
func (n Node) MountnsPath() string {
	return filepath.Join(n.Cluster.Slot.RunDir(), n.Netns())
}

// Cgroup is the worker's control group in each hierarchy.
func (n Node) Cgroup() string {
	return fmt.Sprintf("%s/%s-%d", n.Cluster.Slot.Cgroup(), n.Cluster.Name, n.Number)
}

// Dir is the node's folder: its disk, so to say.
func (n Node) Dir() string {
	return filepath.Join(n.Cluster.Dir, n.short())
}

// ConfigDir is where the configuration files of the node's components are.
func (n Node) ConfigDir() string {
	return filepath.Join(n.Cluster.Dir, "config", n.short())
}

// LibraryDir is the worker's /var/lib.
func (n Node) LibraryDir() string {
	return filepath.Join(n.Dir(), "var-lib")
}

// LogDir is the worker's /var/log.
func (n Node) LogDir() string {
	return filepath.Join(n.Cluster.LogDir(), n.short())
}

func (n Node) short() string {
	if n.Number == 0 {
		return "control-plane"
	}
	return fmt.Sprintf("worker-%d", n.Number)
}
