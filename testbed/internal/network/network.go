// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
	"github.com/hanse-dev/hanse/testbed/internal/run"
)

// link is what ip(8) tells of a link.
type link struct {
	Name  string `json:"ifname"`
	Alias string `json:"ifalias"`
	Info  struct {
		Kind string `json:"info_kind"`
	} `json:"linkinfo"`
	Addresses []address `json:"addr_info"`
}

type address struct {
	Local  string `json:"local"`
	Length int    `json:"prefixlen"`
}

func (a address) overlaps(subnet netip.Prefix) bool {
	local, err := netip.ParseAddr(a.Local)
	return err == nil && netip.PrefixFrom(local, a.Length).Overlaps(subnet)
}

func links(ctx context.Context, args ...string) ([]link, error) {
	text, err := run.Output(ctx, "ip", append(args, "-json", "-details", "addr", "show")...)
	if err != nil {
		return nil, err
	}
	var found []link
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, fmt.Errorf("read links: %w", err)
	}
	return found, nil
}

// Find tells which slot the owner has on this machine. Where there is no ip(8), nobody can have made a bridge.
func Find(ctx context.Context, owner string) (plan.Slot, bool, error) {
	if _, err := exec.LookPath("ip"); err != nil {
		return 0, false, nil //nolint:nilerr // said above
	}
	found, err := links(ctx)
	if err != nil {
		return 0, false, err
	}
	slot, ok := slotOf(found, owner)
	return slot, ok, nil
}

func slotOf(found []link, owner string) (plan.Slot, bool) {
	for _, link := range found {
		if slot, ok := plan.SlotOf(link.Name); ok && link.Info.Kind == "bridge" && link.Alias == alias(owner) {
			return slot, true
		}
	}
	return 0, false
}

// errNoSlot is returned when the addresses of every slot are in use on this machine.
var errNoSlot = errors.New("no free range of addresses for a bridge: end some other testbed first")

// free is the preferred slot, or else the first, whose bridge does not exist (or belongs to nobody: whoever made it was killed before it could
// say) and whose addresses are not used on this machine.
func free(found []link, preferred plan.Slot) (plan.Slot, error) {
	for n := range plan.Slot(plan.Slots) {
		slot := (preferred + n) % plan.Slots
		taken := slices.ContainsFunc(found, func(link link) bool {
			if link.Name == slot.Bridge() {
				return link.Alias != ""
			}
			return slices.ContainsFunc(link.Addresses, func(a address) bool {
				return a.overlaps(slot.Subnet(plan.IPv4)) || a.overlaps(slot.Subnet(plan.IPv6))
			})
		})
		if !taken {
			return slot, nil
		}
	}
	return 0, errNoSlot
}

// Claim gives the owner a slot and its bridge: the one it has, or a free one, if possible the preferred. Whoever calls it
// holds a lock on the machine.
func Claim(ctx context.Context, owner string, preferred plan.Slot) (plan.Slot, error) {
	found, err := links(ctx)
	if err != nil {
		return 0, err
	}
	slot, ok := slotOf(found, owner)
	if !ok {
		if slot, err = free(found, preferred); err != nil {
			return 0, err
		}
		if !slices.ContainsFunc(found, func(link link) bool { return link.Name == slot.Bridge() }) {
			if err := run.Quietly(ctx, "ip", "link", "add", slot.Bridge(), "type", "bridge"); err != nil {
				return 0, err
			}
		}
	}
	if err := batch(ctx, bridgeScript(slot, owner)); err != nil {
		return 0, err
	}
	return slot, nft(ctx, hostRules(slot))
}

// Release takes everything away that has the slot's number, whether or not it was made to the end.
func Release(ctx context.Context, slot plan.Slot) error {
	names, err := namespaces(slot.NetnsPrefix())
	if err != nil {
		return err
	}
	found, err := links(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, link := range found {
		if link.Name == slot.Bridge() || strings.HasPrefix(link.Name, slot.LinkPrefix()) {
			errs = append(errs, deleteLink(ctx, link.Name))
		}
	}
	for _, name := range names {
		errs = append(errs, run.Quietly(ctx, "ip", "netns", "delete", name))
	}
	errs = append(errs, tidyNamespaces())
	rules := lines("table inet "+slot.Table(), "delete table inet "+slot.Table())
	return errors.Join(append(errs, nft(ctx, rules))...)
}

// tidyNamespaces removes the folder of named network namespaces, which ip(8) makes and mounts on itself, unless somebody
// else has one there.
func tidyNamespaces() error {
	entries, err := os.ReadDir(namespaceDir)
	if errors.Is(err, fs.ErrNotExist) || len(entries) > 0 {
		return nil
	}
	if err != nil {
		return err
	}
	// Not being mounted is as good as no longer being so.
	if err := syscall.Unmount(namespaceDir, 0); err != nil && !errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("unmount %s: %w", namespaceDir, err)
	}
	if err := os.Remove(namespaceDir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// deleteLink leaves it to the kernel whether the link still exists: one end of a pair goes with the other.
func deleteLink(ctx context.Context, name string) error {
	err := run.Quietly(ctx, "ip", "link", "delete", name)
	if exists(name) {
		return err
	}
	return nil
}

func exists(link string) bool {
	_, err := os.Stat("/sys/class/net/" + link)
	return err == nil
}

// Ensure joins a node to the bridge. A node that is joined already is left alone.
func Ensure(ctx context.Context, node plan.Node) error {
	if joined(ctx, node) {
		return nil
	}
	if err := Remove(ctx, node); err != nil {
		return err
	}
	if err := run.Quietly(ctx, "ip", "netns", "add", node.Netns()); err != nil {
		return err
	}
	if err := batch(ctx, linkScript(node)); err != nil {
		return err
	}
	if err := batch(ctx, insideScript(node), "-netns", node.Netns()); err != nil {
		return err
	}
	if node.Cluster.HasIPv6() {
		if err := Inside(ctx, node, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding"); err != nil {
			return err
		}
	}
	return Inside(ctx, node, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
}

// joined tells whether the last steps of Ensure were reached.
func joined(ctx context.Context, node plan.Node) bool {
	if _, err := os.Stat(node.NetnsPath()); err != nil {
		return false
	}
	if !exists(node.Link()) {
		return false
	}
	forwards, err := run.Output(ctx, "nsenter", "--net="+node.NetnsPath(), "cat", "/proc/sys/net/ipv4/ip_forward")
	return err == nil && strings.TrimSpace(string(forwards)) == "1"
}

// Remove takes a node's link and network namespace away.
func Remove(ctx context.Context, node plan.Node) error {
	var errs []error
	if exists(node.Link()) {
		errs = append(errs, deleteLink(ctx, node.Link()))
	}
	if _, err := os.Stat(node.NetnsPath()); err == nil {
		errs = append(errs, run.Quietly(ctx, "ip", "netns", "delete", node.Netns()))
	}
	return errors.Join(errs...)
}

// Route leads the pods' ranges to their workers, on the control plane and on each worker.
func Route(ctx context.Context, cluster *plan.Cluster, podCIDRs map[int]plan.Ranges) error {
	for _, node := range cluster.Nodes() {
		if script := routesScript(node, podCIDRs); script != "" {
			if err := batch(ctx, script, "-netns", node.Netns()); err != nil {
				return err
			}
		}
	}
	return nil
}

// Filter puts the packet filter of each node of the cluster in place of the one that it had.
func Filter(ctx context.Context, cluster *plan.Cluster, cuts []Cut, subnets map[string][]netip.Prefix) error {
	for _, node := range cluster.Nodes() {
		rules := strings.NewReader(nodeRules(node, cuts, subnets))
		if _, err := run.WithInput(ctx, rules, "nsenter", "--net="+node.NetnsPath(), "nft", "-f", "-"); err != nil {
			return fmt.Errorf("packet filter of node %s: %w", node.Name(), err)
		}
		if node.TranslatesAddresses() {
			if err := Inside(ctx, node, "sh", "-ec", forgetUDP); err != nil {
				return err
			}
		}
	}
	return nil
}

// forgetUDP has a node forget UDP connections on which nothing is sent after 30 s, as home routers do. That can be set once
// the packet filter follows connections.
const forgetUDP = `for timeout in udp_timeout udp_timeout_stream; do
	echo 30 > /proc/sys/net/netfilter/nf_conntrack_$timeout
done`

// Detour leads the connections that the cluster's nodes and pods open to one address to another. The zero address ends
// that.
func Detour(ctx context.Context, cluster *plan.Cluster, from, to netip.AddrPort) error {
	for _, node := range cluster.Nodes() {
		rules := strings.NewReader(detourRules(from, to))
		if _, err := run.WithInput(ctx, rules, "nsenter", "--net="+node.NetnsPath(), "nft", "-f", "-"); err != nil {
			return fmt.Errorf("detour of node %s: %w", node.Name(), err)
		}
	}
	return nil
}

// Inside runs a command in a node's network namespace.
func Inside(ctx context.Context, node plan.Node, command ...string) error {
	return run.Quietly(ctx, "nsenter", append([]string{"--net=" + node.NetnsPath(), "--"}, command...)...)
}

// Paths lists the files of the network namespaces whose names begin so.
func Paths(prefix string) ([]string, error) {
	names, err := namespaces(prefix)
	for i, name := range names {
		names[i] = filepath.Join(namespaceDir, name)
	}
	return names, err
}

// namespaceDir is where ip(8) keeps named network namespaces.
const namespaceDir = "/run/netns"

func namespaces(prefix string) ([]string, error) {
	entries, err := os.ReadDir(namespaceDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), prefix) {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

func batch(ctx context.Context, script string, args ...string) error {
	_, err := run.WithInput(ctx, strings.NewReader(script), "ip", append(args, "-batch", "-")...)
	if err != nil {
		return fmt.Errorf("%w; the script was:\n%s", err, script)
	}
	return nil
}

func nft(ctx context.Context, rules string) error {
	_, err := run.WithInput(ctx, strings.NewReader(rules), "nft", "-f", "-")
	return err
}
