//go:build linux

package kernel

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/hanse-dev/hanse/internal/overlay"
)

// A way is from a pod of home to a pod of a peer, over both gateways.
type way struct {
	*league
	to netip.Addr
}

// ways are those that are compared. Each has the same links, and the bare one neither tables nor translation.
var ways = []struct {
	name string
	make func(b *testing.B) way
}{
	{"bare", bareWay},
	{"translated", func(b *testing.B) way { return translatedWay(b, 1, 1) }},
	{"translated/addresses=10000", func(b *testing.B) way { return translatedWay(b, 10_000, 1) }},
	{"translated/peers=100", func(b *testing.B) way { return translatedWay(b, 1, 100) }},
}

func translatedWay(b *testing.B, addresses, peers int) way {
	l := newLeague(b)
	home, away := l.lubeck.layout(), l.hamburg.layout()
	for i := range addresses - 1 {
		home.Permissions[0].Theirs = append(home.Permissions[0].Theirs, l.lubeck.seen(l.hamburg, addr("10.244.%d.%d", 10+i/250, i%250)))
		away.Permissions[0].Guests = append(away.Permissions[0].Guests, addr("10.244.%d.%d", 10+i/250, i%250))
	}
	for i := range peers - 2 {
		addPeer(b, &home, i)
		addPeer(b, &away, i)
	}
	l.lubeck.applyGateway(home)
	l.hamburg.applyGateway(away)
	return way{l, l.lubeck.seen(l.hamburg, podAddress(1, 20))}
}

// addPeer adds one that is never there.
func addPeer(b *testing.B, layout *overlay.Layout, number int) {
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		b.Fatal(err)
	}
	name, from := fmt.Sprintf("peer-%d", number), prefixes(fmt.Sprintf("11.%d.0.0/16", number), fmt.Sprintf("12.%d.0.0/16", number))
	layout.Tunnels = append(layout.Tunnels, overlay.Tunnel{Peer: name, PublicKey: key.PublicKey(), AllowedIPs: from})
	layout.Translations = append(layout.Translations, overlay.Translation{Peer: name, From: from, Ours: layout.Translations[0].Ours})
	layout.Permissions = append(layout.Permissions, overlay.Permissions{
		Peer: name, Theirs: []netip.Addr{addr("11.%d.0.9", number)}, Reached: layout.Permissions[0].Reached,
	})
	layout.Blackholes = append(layout.Blackholes, from...)
}

// bareWay gives both pods a second address: that by which the other side calls them.
func bareWay(b *testing.B) way {
	l := newLeague(b)
	home, guest := l.hamburg.seen(l.lubeck, podAddress(1, 10)), l.lubeck.seen(l.hamburg, podAddress(1, 20))
	for _, end := range []struct {
		c      *cluster
		pod    *space
		own    netip.Addr
		others netip.Addr
	}{{l.lubeck, l.home1, home, guest}, {l.hamburg, l.guest1, guest, home}} {
		layout := end.c.layout()
		layout.Nodes[0].Ranges = append(layout.Nodes[0].Ranges, netip.PrefixFrom(end.own, 32))
		end.c.applyGateway(layout)
		end.c.pod.must(func() error { return removeTable(nftables.TableFamilyINet) })
		end.pod.address("eth0", end.own.String()+"/32")
		end.pod.must(func() error {
			return netlink.RouteAdd(&netlink.Route{Dst: ipNet(netip.PrefixFrom(end.others, 32), end.others), Gw: addr("10.244.1.1").AsSlice(), Src: end.own.AsSlice()})
		})
		node := end.c.nodes[0]
		layoutOfNode := end.c.nodeLayout(node)
		node.space.must(func() error { return node.fabric.Apply(layoutOfNode) })
		node.space.must(func() error {
			link, err := netlink.LinkByName("cni0")
			if err != nil {
				return err
			}
			if err := netlink.RouteAdd(&netlink.Route{Dst: ipNet(netip.PrefixFrom(end.own, 32), end.own), LinkIndex: link.Attrs().Index}); err != nil {
				return err
			}
			return removeTable(nftables.TableFamilyINet)
		})
	}
	return way{l, guest}
}

// BenchmarkThroughput writes a megabyte to each of the streams at once.
func BenchmarkThroughput(b *testing.B) {
	for _, streams := range []int{1, 4} {
		for _, w := range ways {
			b.Run(fmt.Sprintf("%s/streams=%d", w.name, streams), func(b *testing.B) {
				w := w.make(b)
				sink := w.guest1.sink()
				var all []net.Conn
				for range streams {
					all = append(all, w.home1.connect(netip.AddrPortFrom(w.to, sink)))
				}
				block := make([]byte, 1<<20)
				b.SetBytes(int64(streams) << 20)
				defer reportCPU(b, float64(streams), "cpu-ms/MB")()
				for b.Loop() {
					var writing sync.WaitGroup
					for _, c := range all {
						writing.Go(func() {
							if _, err := c.Write(block); err != nil {
								b.Error(err)
							}
						})
					}
					writing.Wait()
				}
				for _, c := range all {
					drainTo(b, c)
				}
			})
		}
	}
}

// reportCPU returns what reports the processor time of this process, in which all ends run, for each part of an operation.
// On a machine that does other things besides, it says more than the time that passed.
func reportCPU(b *testing.B, parts float64, unit string) func() {
	start := processorTime(b)
	return func() {
		b.ReportMetric((processorTime(b)-start).Seconds()*1000/float64(b.N)/parts, unit)
	}
}

func processorTime(b *testing.B) time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// drainTo waits until the other end has everything.
func drainTo(b *testing.B, c net.Conn) {
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		b.Error(err)
	}
	if _, err := io.ReadAll(c); err != nil {
		b.Error(err)
	}
	_ = c.Close()
}

// BenchmarkRoundTrip sends one byte there and back.
func BenchmarkRoundTrip(b *testing.B) {
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			w := w.make(b)
			c := w.home1.connect(netip.AddrPortFrom(w.to, talkPort))
			defer func() { _ = c.Close() }()
			one := make([]byte, 1)
			for one[0] != '\n' { // what the server says first
				if _, err := io.ReadFull(c, one); err != nil {
					b.Fatal(err)
				}
			}
			defer reportCPU(b, 1, "cpu-ms/op")()
			for b.Loop() {
				if _, err := c.Write(one); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, one); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkApply applies what is there already, and then one guest more and less.
func BenchmarkApply(b *testing.B) {
	for _, peers := range []int{2, 100} {
		l := newLeague(b)
		layout := l.hamburg.layout()
		for i := range peers - 2 {
			addPeer(b, &layout, i)
		}
		l.hamburg.applyGateway(layout)
		b.Run(fmt.Sprintf("same/peers=%d", peers), func(b *testing.B) {
			for b.Loop() {
				l.hamburg.applyGateway(layout)
			}
		})
		b.Run(fmt.Sprintf("guest/peers=%d", peers), func(b *testing.B) {
			guests := layout.Permissions[0].Guests
			for i := 0; b.Loop(); i++ {
				layout.Permissions[0].Guests = guests[:len(guests)-i%2]
				l.hamburg.applyGateway(layout)
			}
			layout.Permissions[0].Guests = guests
		})
	}
}

// sink reads whatever is sent to the port that it returns, and closes the connection when the other end does.
func (s *space) sink() uint16 {
	s.t.Helper()
	var port uint16
	s.must(func() error {
		l, err := net.ListenTCP("tcp", nil)
		if err != nil {
			return err
		}
		port = l.Addr().(*net.TCPAddr).AddrPort().Port()
		s.t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					_, _ = io.Copy(io.Discard, c)
					_ = c.Close()
				}()
			}
		}()
		return nil
	})
	return port
}

func (s *space) connect(to netip.AddrPort) (c net.Conn) {
	s.t.Helper()
	s.must(func() (err error) {
		c, err = net.DialTimeout("tcp", to.String(), patient) //nolint:noctx // has a timeout
		return err
	})
	return c
}
