// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/hanse-dev/hanse/internal/overlay"
)

// Ranges that every cluster has.
var (
	podRanges     = prefixes("10.244.0.0/16", "fd10::/56")
	serviceRanges = prefixes("10.96.0.0/12", "fd10:96::/112")
)

const (
	wireguardPort = 51820
	outerMTU      = 1500
	innerMTU      = 1380
)

// A cluster is a gateway and two nodes with pods. Everything in it has the same addresses as in every other one, its nodes too.
type cluster struct {
	world     *internet
	number    int
	name      string
	outer     netip.AddrPort // where the gateway is reached
	key       wgtypes.Key
	pod       *space // of the gateway
	gatewayAt []netip.Addr
	gateway   *Gateway
	busy      sync.Mutex
	nodes     []*node

	endDialling func() // see internet.dial

	guests    map[string][]netip.Addr      // peer → its pods that run here
	sentOn    map[string][]netip.Addr      // peer → its pods that this cluster has sent on, as it sees them
	dialsOnly bool                         // see newRelayedLeague
	direct    map[string]bool              // peer → whether guests of lubeck are sent to it directly; see newDirectLeague
	open      map[string][]overlay.Opening // peer → at the gateway
	openHere  map[string][]overlay.Opening // peer → on nodes
}

type node struct {
	number int
	space  *space
	fabric *Node
	inner  []netip.Addr
}

// An internet is a bridge to which the first node of each cluster is wired. Each second node is behind the first.
type internet struct {
	*space
	clusters []*cluster
}

// newInternet makes so many clusters, of the names of cities.
func newInternet(t testing.TB, count int) *internet {
	t.Helper()
	w := &internet{space: newSpace(t, "internet")}
	w.bridge("br0")
	w.address("br0", "192.0.2.1/24", "2001:db8::1/64")
	for i := range count {
		w.clusters = append(w.clusters, w.newCluster(t, i+1, []string{"lubeck", "hamburg", "bremen"}[i]))
	}
	w.dial()
	return w
}

func (w *internet) newCluster(t testing.TB, number int, name string) *cluster {
	t.Helper()
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{
		world: w, number: number, name: name, key: key, gateway: NewGateway(GatewayConfig{Log: logr.Discard()}),
		gatewayAt: []netip.Addr{podAddress(1, 2), podAddress6(1, 2)},
		guests:    map[string][]netip.Addr{}, sentOn: map[string][]netip.Addr{}, open: map[string][]overlay.Opening{}, openHere: map[string][]overlay.Opening{},
		outer: netip.AddrPortFrom(addr("192.0.2.%d", 10+number), wireguardPort),
	}
	for i := 1; i <= 2; i++ {
		c.nodes = append(c.nodes, newNode(t, c, i))
	}
	first, second := c.nodes[0], c.nodes[1]
	wire(first.space, "lan0", second.space, "lan0")
	port := fmt.Sprintf("wan%d", number)
	wire(first.space, "wan0", w.space, port)
	w.plug("br0", port)
	first.space.address("wan0", c.outer.Addr().String()+"/24", fmt.Sprintf("2001:db8::%d/64", 10+number))
	for i, n := range c.nodes {
		other := c.nodes[1-i]
		n.space.address("lan0", n.inner[0].String()+"/24", n.inner[1].String()+"/64")
		n.space.route(fmt.Sprintf("10.244.%d.0/24", other.number), other.inner[0].String())
		n.space.route(fmt.Sprintf("fd10:0:0:%d::/64", other.number), other.inner[1].String())
	}
	first.space.route("0.0.0.0/0", "192.0.2.1")
	first.space.route("::/0", "2001:db8::1")
	second.space.route("0.0.0.0/0", first.inner[0].String())
	second.space.route("::/0", first.inner[1].String())
	c.pod = c.newPod("gateway", 1, 2)
	c.pod.sysctl("net/ipv4/ip_forward", "0")
	c.pod.sysctl("net/ipv6/conf/all/forwarding", "1") // as the init container of a gateway does
	first.hostPort(wireguardPort, podAddress(1, 2))
	t.Cleanup(func() {
		if err := c.gateway.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func newNode(t testing.TB, c *cluster, number int) *node {
	t.Helper()
	n := &node{
		number: number, space: newSpace(t, fmt.Sprintf("%s-%d", c.name, number)), fabric: NewNode(NodeConfig{}),
		inner: []netip.Addr{addr("172.20.0.%d", number), addr("fd20::%d", number)},
	}
	n.space.bridge("cni0")
	n.space.address("cni0", fmt.Sprintf("10.244.%d.1/24", number), fmt.Sprintf("fd10:0:0:%d::1/64", number))
	n.space.sysctl("net/ipv4/ip_forward", "1")
	n.space.sysctl("net/ipv6/conf/all/forwarding", "1")
	n.space.must(n.masquerade)
	n.space.bridgesAlone()
	return n
}

// newPod makes a pod on the node of that number, with the address of that last number.
func (c *cluster) newPod(name string, nodeNumber, last int) *space {
	n := c.nodes[nodeNumber-1]
	pod := newSpace(n.space.t, c.name+"/"+name)
	port := fmt.Sprintf("veth%d", last)
	wire(pod, "eth0", n.space, port)
	n.space.plug("cni0", port)
	pod.address("eth0", podAddress(nodeNumber, last).String()+"/24", podAddress6(nodeNumber, last).String()+"/64")
	pod.route("0.0.0.0/0", fmt.Sprintf("10.244.%d.1", nodeNumber))
	pod.route("::/0", fmt.Sprintf("fd10:0:0:%d::1", nodeNumber))
	return pod
}

func podAddress(node, last int) netip.Addr { return addr("10.244.%d.%d", node, last) }

func podAddress6(node, last int) netip.Addr { return addr("fd10:0:0:%d::%d", node, last) }

// masquerade does what CNIs do to what leaves the pod network.
func (n *node) masquerade() error {
	conn, chain, err := natChain("cni", nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource)
	if err != nil {
		return err
	}
	for _, f := range families {
		mine, all := f.newSet("mine").ofPrefixes(), f.newSet("all").ofPrefixes()
		mine.addPrefixes(f, prefixes(fmt.Sprintf("10.244.%d.0/24", n.number), fmt.Sprintf("fd10:0:0:%d::/64", n.number)), "")
		all.addPrefixes(f, podRanges, "")
		for i, s := range []*set{mine, all} {
			d := s.definition(chain.Table, uint32(i+1))
			if err := conn.AddSet(d, s.encode(missing(s.elements, nil))); err != nil {
				return err
			}
		}
		outside := expression{f.load(destination), &expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: "all" + f.suffix, Invert: true}}
		conn.AddRule(&nftables.Rule{Table: chain.Table, Chain: chain, Exprs: rule(
			f.packet(), f.in("mine", source), outside, expression{&expr.Masq{}},
		)})
		conn.AddRule(&nftables.Rule{Table: chain.Table, Chain: chain, Exprs: rule(f.packet(), to("wan0"), expression{&expr.Masq{}})})
	}
	return conn.Flush()
}

// hostPort leads a UDP port of the node to a pod, as the portmap plugin does.
func (n *node) hostPort(port uint16, pod netip.Addr) {
	n.space.t.Helper()
	n.space.must(func() error {
		conn, chain, err := natChain("portmap", nftables.ChainHookPrerouting, *nftables.ChainPriorityNATDest)
		if err != nil {
			return err
		}
		conn.AddRule(&nftables.Rule{Table: chain.Table, Chain: chain, Exprs: rule(
			ipv4.packet(), toThisMachine(), transport(unix.IPPROTO_UDP), destinationPort(port), ipv4.toAddress(expr.NATTypeDestNAT, pod),
		)})
		return conn.Flush()
	})
}

// service leads a cluster IP to one endpoint on every node, as kube-proxy does.
func (c *cluster) service(ip, endpoint netip.Addr) {
	for _, n := range c.nodes {
		n.space.t.Helper()
		n.space.must(func() error {
			conn, chain, err := natChain("kube-proxy", nftables.ChainHookPrerouting, *nftables.ChainPriorityNATDest)
			if err != nil {
				return err
			}
			conn.AddRule(&nftables.Rule{Table: chain.Table, Chain: chain, Exprs: rule(
				ipv4.packet(), ipv4.within(netip.PrefixFrom(ip, 32), destination), ipv4.toAddress(expr.NATTypeDestNAT, endpoint),
			)})
			return conn.Flush()
		})
	}
}

func natChain(name string, hook *nftables.ChainHook, priority nftables.ChainPriority) (*nftables.Conn, *nftables.Chain, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, nil, err
	}
	t := conn.AddTable(&nftables.Table{Name: name, Family: nftables.TableFamilyINet})
	c := base(name, nftables.ChainTypeNAT, hook, priority)
	return conn, conn.AddChain(c.definition(t)), nil
}

func addr(format string, args ...any) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf(format, args...))
}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}
