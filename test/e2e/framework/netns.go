// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// A NetNS is a network namespace, by the file that stands for it: that of a node of the testbed, or of a pod. An empty one is
// that of this process.
type NetNS string

// Run runs a command line in it and returns what that prints.
func (n NetNS) Run(ctx context.Context, line string) (string, error) {
	args := append([]string{"--net=" + string(n)}, strings.Fields(line)...)
	out, err := exec.CommandContext(ctx, "nsenter", args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s in %s: %w: %s", line, n, err, out)
	}
	return string(out), err
}

// NetNSOfNode returns the network namespace of the node.
func (c *Cluster) NetNSOfNode(ctx context.Context, name string) (NetNS, error) {
	address, err := c.AddressOfNode(ctx, name)
	if err != nil {
		return "", err
	}
	all, err := os.ReadDir("/run/netns")
	if err != nil {
		return "", err
	}
	for _, entry := range all {
		n := NetNS("/run/netns/" + entry.Name())
		if out, err := n.Run(ctx, "ip -o address show eth0"); err == nil && strings.Contains(out, " "+address+"/") {
			return n, nil
		}
	}
	return "", fmt.Errorf("no network namespace has the address %s of node %s", address, name)
}

// AddressOfNode returns the address at which other nodes reach the node.
func (c *Cluster) AddressOfNode(ctx context.Context, name string) (string, error) {
	node, err := c.GetNode(ctx, name)
	if err != nil {
		return "", err
	}
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address, nil
		}
	}
	return "", fmt.Errorf("node %s has no address", name)
}

// state is what the network of the node is made of, without what comes and goes with pods and Services.
func (n NetNS) state(ctx context.Context) ([]string, error) {
	var lines []string
	for _, line := range []string{
		"ip -o link show", "ip -4 route show table all", "ip -6 route show table all", "ip rule show", "ip -6 rule show", "nft list tables",
		`sysctl -a -r ^net\.ipv[46]\.((conf\.(all|default|eth0)\.(forwarding|rp_filter|accept_|arp_|send_redirects))|ip_forward)`,
	} {
		out, err := n.Run(ctx, line)
		if err != nil {
			return nil, err
		}
		for found := range strings.Lines(out) {
			if !strings.Contains(found, "veth") && !strings.Contains(found, "cni0") && !strings.Contains(found, "kube-proxy") {
				lines = append(lines, line+": "+strings.TrimSpace(found))
			}
		}
	}
	slices.Sort(lines)
	return lines, nil
}

// NodeStates returns the state of each worker.
func (c *Cluster) NodeStates(ctx context.Context) (map[string][]string, error) {
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return nil, err
	}
	states := map[string][]string{}
	for i := range nodes.Items {
		name := nodes.Items[i].Name
		n, err := c.NetNSOfNode(ctx, name)
		if err != nil {
			return nil, err
		}
		if states[name], err = n.state(ctx); err != nil {
			return nil, err
		}
	}
	return states, nil
}
