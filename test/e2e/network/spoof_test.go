// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// netnsOfPod returns the network namespace of a pod that runs on this machine, by one of its processes.
func netnsOfPod(t *testing.T, uid types.UID, executable string) framework.NetNS {
	t.Helper()
	pid, err := framework.ProcessOfPod(uid, executable)
	if err != nil {
		t.Fatal(err)
	}
	return framework.NetNS(fmt.Sprintf("/proc/%d/ns/net", pid))
}

// A forger puts packets of UDP with any source on an interface, past all rules of that machine.
type forger struct {
	fd int
	to unix.SockaddrLinklayer
}

// forge begins to forge packets on an interface, for its router if it has one.
func forge(t *testing.T, n framework.NetNS, link string) *forger {
	t.Helper()
	f := &forger{}
	err := do(n, func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return err
		}
		f.to = unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_IP), Ifindex: l.Attrs().Index}
		neighbours, err := netlink.NeighList(l.Attrs().Index, unix.AF_INET)
		if err != nil {
			return err
		}
		for _, router := range neighbours {
			if len(router.HardwareAddr) > 0 {
				f.to.Halen = uint8(copy(f.to.Addr[:], router.HardwareAddr))
			}
		}
		f.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(f.fd) })
	return f
}

func (f *forger) send(p forged) error {
	const header, ports = 20, 8
	packet := []byte{0: 0x45, 8: 64, 9: unix.IPPROTO_UDP, header + ports - 1: 0}
	binary.BigEndian.PutUint16(packet[2:], uint16(header+ports+len(p.text())))
	copy(packet[12:], p.from.AsSlice())
	copy(packet[16:], p.to.AsSlice())
	binary.BigEndian.PutUint16(packet[10:], checksum(packet[:header]))
	binary.BigEndian.PutUint16(packet[20:], forgedPort)
	binary.BigEndian.PutUint16(packet[22:], forgedPort)
	binary.BigEndian.PutUint16(packet[24:], uint16(ports+len(p.text())))
	return unix.Sendto(f.fd, append(packet, p.text()...), 0, &f.to)
}

// forgedPort is that of nobody.
const forgedPort = 9797

// checksum is that of a header of IPv4.
func checksum(header []byte) uint16 {
	var sum uint32
	for i := 0; i < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	return ^uint16(sum&0xffff + sum>>16)
}

// A forged packet says in its payload what it pretends.
type forged struct {
	name     string
	from, to netip.Addr
}

func (p forged) text() string { return "forged " + p.name + ";" }

// A lookout notes which forged packets pass any interface of some network namespaces.
type lookout struct {
	mu   sync.Mutex
	seen map[string]int // name → how often
}

func lookOut(t *testing.T, all ...framework.NetNS) *lookout {
	t.Helper()
	l := &lookout{seen: map[string]int{}}
	for _, n := range all {
		listen(t, n, func(packet []byte, _ int) { l.note(packet) })
	}
	return l
}

// lookIntoTunnel notes what the active gateway of the cluster puts into its tunnel.
func lookIntoTunnel(t *testing.T, c *framework.Cluster) *lookout {
	t.Helper()
	l, gateway := &lookout{seen: map[string]int{}}, gatewayNetns(t, c)
	tunnel := 0
	if err := do(gateway, func() error {
		link, err := netlink.LinkByName("hanse-wg")
		if err == nil {
			tunnel = link.Attrs().Index
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	listen(t, gateway, func(packet []byte, link int) {
		if link == tunnel {
			l.note(packet)
		}
	})
	return l
}

func (l *lookout) note(packet []byte) {
	_, rest, forged := strings.Cut(string(packet), "forged ")
	name, _, whole := strings.Cut(rest, ";")
	if forged && whole {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.seen[name]++
	}
}

func (l *lookout) times(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[name]
}

// A forgery is what one forger sends, and where it must not show.
type forgery struct {
	by     *forger
	honest forged   // one that arrives
	forged []forged // those that do not
	// places are the interfaces of the pod that is sent to and of all nodes of its cluster, and then more.
	places []*lookout
}

// attempt sends an honest packet until that arrives, then what is forged, and then the honest one again, behind which all has
// arrived that does.
func (f forgery) attempt(t *testing.T) {
	t.Helper()
	f.awaitHonest(t, "before")
	for range 3 {
		for _, p := range f.forged {
			if err := f.by.send(p); err != nil {
				t.Errorf("send a packet %s: %v", p.name, err)
			}
		}
	}
	f.awaitHonest(t, "after")
	for _, p := range f.forged {
		for i, place := range f.places {
			if times := place.times(p.name); times > 0 {
				t.Errorf("a packet sent %s shows %d times at place %d", p.name, times, i)
			}
		}
	}
}

func (f forgery) awaitHonest(t *testing.T, when string) {
	t.Helper()
	before := f.places[0].times(f.honest.name)
	framework.Eventually(t, "a packet sent "+f.honest.name+" arrives "+when+" what is forged", func(context.Context) error {
		if f.places[0].times(f.honest.name) > before {
			return nil
		}
		return errors.Join(f.by.send(f.honest), errors.New("it has not arrived yet"))
	})
}

// pretending returns packets to one address from others: what is pretended → the source.
func pretending(to string, sources map[string]string) []forged {
	var all []forged
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		all = append(all, forged{name, netip.MustParseAddr(sources[name]), netip.MustParseAddr(to)})
	}
	return all
}

// A forgers' stage has pods of lubeck at home and at two providers, and one of a provider of its own.
type forgersStage struct {
	here, other, away, atHamburg, local *framework.NetworkPod
	awayAtBremen                        string // the address of away at bremen itself
	hereSeen                            string // the address of here at bremen
	guest                               string // the address of a pod of hamburg's that runs at lubeck
}

func setForgersStage(ctx context.Context, t *testing.T) forgersStage {
	t.Helper()
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	away := lubeck.StartNetworkPods(t, ns, map[string]*framework.Cluster{"away": bremen, "at-hamburg": hamburg})
	hamburg.StartNetworkPod(t, hamburg.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote), "guest", lubeck)
	here := lubeck.StartNetworkPod(t, ns, "here", nil, framework.OnNode(lubeck.WorkerNames(t)[0]))
	s := forgersStage{
		here: here, away: away["away"], atHamburg: away["at-hamburg"],
		other: lubeck.StartNetworkPod(t, ns, "other", nil, framework.OnNode(lubeck.WorkerNames(t)[1])),
		local: bremen.StartNetworkPod(t, bremen.CreateNamespace(t), "local", nil), awayAtBremen: guestAddress(t, bremen, "away"),
		hereSeen: lubeck.TranslateToPeer(ctx, t, bremen, here.Address), guest: guestAddress(t, lubeck, "guest"),
	}
	s.here.ExpectReaches(t, s.away, s.away.Address)
	s.away.ExpectReaches(t, s.here, s.hereSeen)
	s.here.ExpectReaches(t, s.atHamburg, s.atHamburg.Address)
	return s
}

// inside returns the network namespaces of all workers, and of a pod.
func inside(t *testing.T, c *framework.Cluster, pod framework.NetNS) []framework.NetNS {
	t.Helper()
	all := []framework.NetNS{pod}
	for _, node := range c.WorkerNames(t) {
		all = append(all, netnsOf(t, c, node))
	}
	return all
}

// netns returns the one of the pod that is a party, wherever it runs.
func netns(t *testing.T, p *framework.NetworkPod) framework.NetNS {
	t.Helper()
	pod, err := p.Home.GetPod(t.Context(), p.Ns, p.Pod)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []*framework.Cluster{hamburg, bremen} {
		if remote, err := at.GetRemotePod(t.Context(), pod); err == nil {
			pod = remote
		}
	}
	return netnsOfPod(t, pod.UID, "/bin/sh")
}

// gatewayNetns returns the one of the active gateway.
func gatewayNetns(t *testing.T, c *framework.Cluster) framework.NetNS {
	t.Helper()
	var active *corev1.Pod
	framework.Eventually(t, "a gateway of "+c.Name+" is active", func(ctx context.Context) (err error) {
		active, err = c.ActiveGateway(ctx)
		return err
	})
	return netnsOfPod(t, active.UID, "/hanse")
}

// Nobody gets packets through from addresses that are not its own: not the gateway of bremen, though it puts on its tunnel
// whatever it likes; not lubeck's pod at bremen, though it forges packets as if it had the right to; not a pod of lubeck itself.
func TestSpoofedSourceDropped(t *testing.T) {
	ctx := framework.Begin(t)
	s := setForgersStage(ctx, t)
	atHome := func(t *testing.T) *lookout { return lookOut(t, inside(t, lubeck, netns(t, s.here))...) }
	foreign := map[string]string{
		"as somebody on the Internet": "198.51.100.7", "as loopback": "127.0.0.1", "as what tells clouds' secrets": "169.254.169.254",
		"as a node of bremen": bremen.NodeAddress(t, 0), "as a node of lubeck": lubeck.NodeAddress(t, 1),
		"as a pod of home": s.other.Address, "as a pod of home, as bremen sees it": lubeck.TranslateToPeer(ctx, t, bremen, s.other.Address),
		"as a pod at another peer": s.atHamburg.Address,
	}
	t.Run("by the gateway of a peer", func(t *testing.T) {
		sources := maps.Clone(foreign)
		sources["as a pod of bremen's own"] = lubeck.TranslateFromPeer(ctx, t, bremen, s.local.Address)
		own := func(name, to string) forged {
			return forged{name, netip.MustParseAddr(s.away.Address), netip.MustParseAddr(to)}
		}
		forgery{
			by: forge(t, gatewayNetns(t, bremen), "hanse-wg"), places: []*lookout{atHome(t)}, honest: own("as the pod that is ours", s.hereSeen),
			forged: append(pretending(s.hereSeen, sources),
				own("to a node", lubeck.NodeAddress(t, 0)), own("to a pod by an address of home", s.other.Address),
				own("to a pod of another peer that runs at home", lubeck.TranslateToPeer(ctx, t, bremen, s.guest))),
		}.attempt(t)
	})
	t.Run("by a pod at a peer", func(t *testing.T) {
		sources := maps.Clone(foreign)
		sources["as a pod of bremen's own"] = s.local.Address
		forgery{
			by: forge(t, netns(t, s.away), "eth0"), places: []*lookout{atHome(t), lookIntoTunnel(t, bremen)}, forged: pretending(s.hereSeen, sources),
			honest: forged{"as the very pod", netip.MustParseAddr(s.awayAtBremen), netip.MustParseAddr(s.hereSeen)},
		}.attempt(t)
	})
	t.Run("by a pod at home", func(t *testing.T) {
		forgery{
			by: forge(t, netns(t, s.here), "eth0"), places: []*lookout{lookOut(t, inside(t, bremen, netns(t, s.away))...), lookIntoTunnel(t, lubeck)},
			forged: pretending(s.away.Address, map[string]string{
				"as another peer's": s.atHamburg.Address, "as the pod that it sends to": s.away.Address, "as loopback of home": "127.0.0.1",
				"as a pod of bremen's, from home": lubeck.TranslateFromPeer(ctx, t, bremen, s.local.Address),
			}),
			honest: forged{"as the pod at home", netip.MustParseAddr(s.here.Address), netip.MustParseAddr(s.away.Address)},
		}.attempt(t)
	})
}
