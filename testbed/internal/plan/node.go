package plan

import (
	"fmt"
	"hash/fnv"
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

// Address is the node's address on the bridge.
func (n Node) Address() netip.Addr {
	if n.Number == 0 {
		return n.Cluster.Slot.address(n.Cluster.Index, 1)
	}
	return n.Cluster.Slot.address(n.Cluster.Index, firstWorker+n.Number)
}

// Netns is the name of the node's network namespace.
func (n Node) Netns() string {
	return fmt.Sprintf("%s%s-%d", n.Cluster.Slot.NetnsPrefix(), n.Cluster.Name, n.Number)
}

// NetnsPath is the file that stands for the node's network namespace.
func (n Node) NetnsPath() string {
	return filepath.Join("/run/netns", n.Netns())
}

// Link is the name of the node's link to the bridge, at the machine's end. Names of links are short, so it is a hash;
// the link's alias is readable.
func (n Node) Link() string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(n.Netns()))
	return fmt.Sprintf("%s%08x", n.Cluster.Slot.LinkPrefix(), hash.Sum32())
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
