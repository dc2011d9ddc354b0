package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/bench/lab"
)

// A netns is a network namespace, by the file that stands for it: that of a node of the testbed, or of a pod. An empty one is
// that of this process.
type netns string

// run runs a command line in it and returns what that prints.
func (n netns) run(ctx context.Context, line string) (string, error) {
	args := append([]string{"--net=" + string(n)}, strings.Fields(line)...)
	out, err := exec.CommandContext(ctx, "nsenter", args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s in %s: %w: %s", line, n, err, out)
	}
	return string(out), err
}

// netnsOf returns the one of the node.
func (c *cluster) netnsOf(t *testing.T, node string) netns {
	t.Helper()
	found, err := c.netns(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// do runs a function in it. Sockets that the function opens stay in there.
func (n netns) do(f func() error) error {
	if n == "" {
		return f()
	}
	return lab.InNetns(string(n), f)
}

// listen has each packet of IP on any interface of the namespace noted, with the number of the interface, until the story ends.
func (n netns) listen(t *testing.T, note func(packet []byte, link int)) {
	t.Helper()
	var fd int
	err := n.do(func() (err error) {
		// Packets that a bridge takes are shown to those alone that want all kinds.
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(networkOrder(unix.ETH_P_ALL))); err != nil {
			return err
		}
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}))
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		buffer := make([]byte, 1<<16)
		for ctx.Err() == nil {
			n, from, err := unix.Recvfrom(fd, buffer, 0)
			if link, ok := from.(*unix.SockaddrLinklayer); err == nil && ok {
				note(buffer[:n], link.Ifindex)
			}
		}
	})
	t.Cleanup(func() {
		end()
		done.Wait()
		_ = unix.Close(fd)
	})
}

// networkOrder is how the kernel wants numbers of protocols.
func networkOrder(number uint16) uint16 {
	return binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, number))
}

// linkOutside returns the number that the other end of its only link has on this machine.
func (n netns) linkOutside(t *testing.T) int {
	t.Helper()
	out, err := n.run(t.Context(), "ip -o link show eth0")
	if err != nil {
		t.Fatal(err)
	}
	var inside, outside int
	if _, err := fmt.Sscanf(out, "%d: eth0@if%d:", &inside, &outside); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	return outside
}

func (c *cluster) netns(ctx context.Context, name string) (netns, error) {
	address, err := c.addressOf(ctx, name)
	if err != nil {
		return "", err
	}
	all, err := os.ReadDir("/run/netns")
	if err != nil {
		return "", err
	}
	for _, entry := range all {
		n := netns("/run/netns/" + entry.Name())
		if out, err := n.run(ctx, "ip -o address show eth0"); err == nil && strings.Contains(out, " "+address+"/") {
			return n, nil
		}
	}
	return "", fmt.Errorf("no network namespace has the address %s of node %s", address, name)
}

// addressOf returns the address at which other nodes reach the node.
func (c *cluster) addressOf(ctx context.Context, name string) (string, error) {
	node, err := c.node(ctx, name)
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
func (n netns) state(ctx context.Context) ([]string, error) {
	var lines []string
	for _, line := range []string{
		"ip -o link show", "ip -4 route show table all", "ip -6 route show table all", "ip rule show", "ip -6 rule show", "nft list tables",
		`sysctl -a -r ^net\.ipv[46]\.((conf\.(all|default|eth0)\.(forwarding|rp_filter|accept_|arp_|send_redirects))|ip_forward)`,
	} {
		out, err := n.run(ctx, line)
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

// nodeStates returns the state of each worker.
func (c *cluster) nodeStates(ctx context.Context) (map[string][]string, error) {
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return nil, err
	}
	states := map[string][]string{}
	for i := range nodes.Items {
		name := nodes.Items[i].Name
		n, err := c.netns(ctx, name)
		if err != nil {
			return nil, err
		}
		if states[name], err = n.state(ctx); err != nil {
			return nil, err
		}
	}
	return states, nil
}

// hasNodesAgain checks that the nodes are as they were.
func (c *cluster) hasNodesAgain(ctx context.Context) error {
	before, err := remembered[map[string][]string](c, rememberedNodes)
	if err != nil {
		return err
	}
	now, err := c.nodeStates(ctx)
	if err != nil {
		return err
	}
	if diff := cmp.Diff(before, now); diff != "" {
		return fmt.Errorf("(-before +now)\n%s", diff)
	}
	return nil
}
