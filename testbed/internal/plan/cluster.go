// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
)

// Bounds of what fits into the addresses of one testbed.
const (
	MaxClusters = 250
	MaxWorkers  = 100
)

// Ports are where the components of a control plane listen. In a network namespace of their own they are the usual
// ones; without root all clusters share the machine's loopback interface, and each gets ports of its own.
type Ports struct {
	APIServer         int `json:"apiServer"`
	EtcdClient        int `json:"etcdClient"`
	EtcdPeer          int `json:"etcdPeer"`
	ControllerManager int `json:"controllerManager"`
	Scheduler         int `json:"scheduler"`
	KWOK              int `json:"kwok"`
}

// UsualPorts are the ports of a control plane that has a network namespace of its own.
var UsualPorts = Ports{
	APIServer: 6443, EtcdClient: 2379, EtcdPeer: 2380, ControllerManager: 10257, Scheduler: 10259, KWOK: 10247,
}

// Cluster is one cluster of the testbed.
type Cluster struct {
	Name     string  `json:"name"`
	Slot     Slot    `json:"slot"`
	Index    int     `json:"index"` // from 1; it decides the cluster's addresses
	Rootless bool    `json:"rootless,omitempty"`
	Ports    Ports   `json:"ports"`
	Options  Options `json:"options"`

	Dir string `json:"-"` // the cluster's folder of state
	Bin string `json:"-"` // the folder of binaries
}

var clusterName = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,28}[a-z0-9])?$`)

// ValidateName tells whether a cluster may have this name.
func ValidateName(name string) error {
	if !clusterName.MatchString(name) {
		return fmt.Errorf("cluster name %q: want at most 30 small letters, digits and hyphens, a letter first", name)
	}
	if reserved[name] {
		return fmt.Errorf("cluster name %q is taken by a folder of the testbed's own", name)
	}
	return nil
}

// reserved are the names in the testbed's folder that are no clusters.
var reserved = map[string]bool{"images": true, "locks": true, "slot": true}

var (
	errRootlessWorkers = errors.New("workers need root: without it there are control planes and simulated nodes only")
	errRootlessNAT     = errors.New("NAT needs root: without it all clusters share the loopback interface")
	errRootlessIPv6    = errors.New("IPv6 needs root: without it all clusters share the loopback interface")
	errFull            = errors.New("the testbed is full")
)

// FreeIndex is the first index that none of the clusters has.
func FreeIndex(others []*Cluster) (int, error) {
	taken := map[int]bool{}
	for _, other := range others {
		taken[other.Index] = true
	}
	for index := 1; index <= MaxClusters; index++ {
		if !taken[index] {
			return index, nil
		}
	}
	return 0, errFull
}

// Validate tells what is wrong with the cluster that was asked for.
func (c *Cluster) Validate() error {
	if c.Rootless && c.Options.Workers > 0 {
		return errRootlessWorkers
	}
	if c.Rootless && c.Options.NAT {
		return errRootlessNAT
	}
	if c.Rootless && c.HasIPv6() {
		return errRootlessIPv6
	}
	return c.Options.Validate()
}

// ControlPlane is the node of the control plane.
func (c *Cluster) ControlPlane() Node {
	return Node{Cluster: c}
}

// Workers are the nodes that run containers.
func (c *Cluster) Workers() []Node {
	workers := make([]Node, 0, c.Options.Workers)
	for number := 1; number <= c.Options.Workers; number++ {
		workers = append(workers, Node{Cluster: c, Number: number})
	}
	return workers
}

// Nodes are the control plane and the workers.
func (c *Cluster) Nodes() []Node {
	return append([]Node{c.ControlPlane()}, c.Workers()...)
}

// Families are the kinds of addresses that the cluster has, the main one first.
func (c *Cluster) Families() []Family { return c.Options.PodCIDR.Families() }

// HasIPv6 tells whether IPv6 is one of them.
func (c *Cluster) HasIPv6() bool { return slices.Contains(c.Families(), IPv6) }

// Subnet is the part of the bridge's range that the cluster's nodes have their addresses of a family from.
func (c *Cluster) Subnet(family Family) netip.Prefix { return c.Slot.part(family, c.Index) }

// Subnets are those of each family of the cluster.
func (c *Cluster) Subnets() []netip.Prefix {
	var subnets []netip.Prefix
	for _, family := range c.Families() {
		subnets = append(subnets, c.Subnet(family))
	}
	return subnets
}

// Linked tells whether the cluster has a bad link to somebody. Then its nodes are on a switch of their own, and a cable leads
// from there to the bridge.
func (c *Cluster) Linked() bool { return len(c.Options.Links) > 0 }

// Switch is the name of the cluster's own switch.
func (c *Cluster) Switch() string { return c.linkName("switch") }

// Cable are the names of the two ends of the cable: that in the switch and that in the bridge.
func (c *Cluster) Cable() (inside, outside string) {
	return c.linkName("inside"), c.linkName("outside")
}

func (c *Cluster) linkName(of string) string {
	return c.Slot.link(c.Slot.NetnsPrefix() + c.Name + " " + of)
}

// Address is where the control plane is reached.
func (c *Cluster) Address() netip.Addr { return c.Addresses()[0] }

// Addresses are all at which the control plane is reached: one of each family, the main one first.
func (c *Cluster) Addresses() []netip.Addr {
	if c.Rootless {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	return c.ControlPlane().Addresses()
}

// APIServer is where the API server listens.
func (c *Cluster) APIServer() netip.AddrPort {
	return netip.AddrPortFrom(c.Address(), uint16(c.Ports.APIServer)) //nolint:gosec // a port
}

// Server is the URL of the API server.
func (c *Cluster) Server() string { return fmt.Sprintf("https://%s", c.APIServer()) }

// DNS are the addresses of the Service of cluster DNS, the main one first: the tenth of each range, by convention.
func (c *Cluster) DNS() []netip.Addr { return c.Options.ServiceCIDR.nth(10) }

// KubernetesService is the address of the Service default/kubernetes: the first of the main range.
func (c *Cluster) KubernetesService() netip.Addr {
	return c.Options.ServiceCIDR.nth(1)[0]
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string {
	return filepath.Join(c.Dir, "kubeconfig")
}

// PKIDir is the folder of keys and certificates.
func (c *Cluster) PKIDir() string {
	return filepath.Join(c.Dir, "pki")
}

// LogDir is the folder of logs.
func (c *Cluster) LogDir() string {
	return filepath.Join(c.Dir, "logs")
}

// PIDDir is the folder of what is known of running processes.
func (c *Cluster) PIDDir() string {
	return filepath.Join(c.Dir, "pids")
}

// Kubernetes is the path of the binary with all components of Kubernetes.
func (c *Cluster) Kubernetes() string {
	return filepath.Join(c.Bin, "kubernetes-"+c.Options.Kubernetes)
}

// HasMetrics tells whether the cluster has metrics-server, which needs the root that workers need.
func (c *Cluster) HasMetrics() bool { return c.Options.Metrics && !c.Rootless }

// HasStorage tells whether claims get volumes, which are on the disks of workers.
func (c *Cluster) HasStorage() bool {
	return (c.Options.Storage || c.Options.Snapshots) && !c.Rootless
}

// HasSnapshots tells whether snapshots of these volumes can be taken.
func (c *Cluster) HasSnapshots() bool { return c.Options.Snapshots && !c.Rootless }

// SnapshotController is the path of that program.
func (c *Cluster) SnapshotController() string { return filepath.Join(c.Bin, "snapshot-controller") }

// SnapshotDefinitions is the folder of the definitions of what that program works on.
func (c *Cluster) SnapshotDefinitions() string { return c.SnapshotController() + "-definitions" }

// HasIngress tells whether an ingress controller runs, which is a pod.
func (c *Cluster) HasIngress() bool { return c.Options.Ingress && c.Options.Workers > 0 }

// Traefik is the path of that program.
func (c *Cluster) Traefik() string { return filepath.Join(c.Bin, "traefik") }
