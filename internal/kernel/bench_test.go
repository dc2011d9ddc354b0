// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/hanse-dev/hanse/internal/overlay"
)

// A way leads from a pod of home to a pod of a peer, over both gateways.
type way struct {
	*league
	name  string
	to    netip.Addr
	conns []net.Conn
	took  []time.Duration
}

// ways are those that are compared. Each has the same links and routes, and the bare one no table of ours.
var ways = []struct {
	name string
	make func(b *testing.B) *way
}{
	{"bare", bareWay},
	{"translated", func(b *testing.B) *way { return translatedWay(b, 1, 1) }},
	{"addresses=10000", func(b *testing.B) *way { return translatedWay(b, 10_000, 1) }},
	{"peers=100", func(b *testing.B) *way { return translatedWay(b, 1, 100) }},
}

func makeWays(b *testing.B) []*way {
	var all []*way
	for _, w := range ways {
		made := w.make(b)
		made.name = w.name
		all = append(all, made)
	}
	return all
}

func translatedWay(b *testing.B, addresses, peers int) *way {
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
	return &way{league: l, to: l.lubeck.seen(l.hamburg, podAddress(1, 20))}
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

// bareWay gives both pods a second address, that by which the other side calls them, and takes all tables away.
func bareWay(b *testing.B) *way {
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
		node.space.must(func() error { return removeTable(nftables.TableFamilyBridge) })
	}
	return &way{league: l, to: guest}
}

// portion is what a stream carries in one turn. Before each turn that is timed it carries a part of it that is not, because a
// connection that has been silent begins slowly.
const portion, warmUp = 48 << 20, 16 << 20

// BenchmarkThroughput has all ways carry the same in turn, so that what else happens on the machine strikes all of them.
func BenchmarkThroughput(b *testing.B) {
	for _, streams := range []int{1, 4} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			all := makeWays(b)
			for _, w := range all {
				w.open(b, streams)
			}
			for i := 0; b.Loop(); i++ {
				for n := range all {
					w := all[(i+n)%len(all)]
					w.carry(b, warmUp/streams)
					start := time.Now()
					w.carry(b, portion/streams)
					w.took = append(w.took, time.Since(start))
				}
			}
			for _, w := range all {
				b.ReportMetric(portion/1e6/median(w.took).Seconds(), w.name+":MB/s")
				b.ReportMetric(medianRatio(all[0].took, w.took), w.name+":ratio")
			}
		})
	}
}

// BenchmarkTunnels has four streams share one tunnel, and in turn two tunnels between as many gateways.
func BenchmarkTunnels(b *testing.B) {
	const streams = 4
	shared := []*way{translatedWay(b, 1, 1)}
	split := []*way{translatedWay(b, 1, 1), translatedWay(b, 1, 1)}
	took := map[int][]time.Duration{} // number of tunnels →
	for _, ways := range [][]*way{shared, split} {
		for _, w := range ways {
			w.open(b, streams/len(ways))
		}
	}
	for b.Loop() {
		for _, ways := range [][]*way{shared, split} {
			carryAll(b, ways, warmUp/streams)
			start := time.Now()
			carryAll(b, ways, portion/streams)
			took[len(ways)] = append(took[len(ways)], time.Since(start))
		}
	}
	for tunnels, all := range took {
		b.ReportMetric(portion/1e6/median(all).Seconds(), fmt.Sprintf("tunnels=%d:MB/s", tunnels))
		b.ReportMetric(medianRatio(took[1], all), fmt.Sprintf("tunnels=%d:ratio", tunnels))
	}
}

// carryAll has all ways carry so much over each of their connections, at once.
func carryAll(b *testing.B, ways []*way, bytes int) {
	var carrying sync.WaitGroup
	for _, w := range ways {
		carrying.Go(func() { w.carry(b, bytes) })
	}
	carrying.Wait()
}

func median(all []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

func medianRatio(floor, all []time.Duration) float64 {
	var ratios []float64
	for i := range all {
		ratios = append(ratios, floor[i].Seconds()/all[i].Seconds())
	}
	return slices.Sorted(slices.Values(ratios))[len(ratios)/2]
}

// open makes connections to a sink.
func (w *way) open(b *testing.B, count int) {
	sink := w.guest1.sink()
	for range count {
		c := w.home1.connect(netip.AddrPortFrom(w.to, sink))
		b.Cleanup(func() { _ = c.Close() })
		w.conns = append(w.conns, c)
	}
}

// carry sends so much over each connection, and waits until it has arrived.
func (w *way) carry(b *testing.B, bytes int) {
	var carrying sync.WaitGroup
	for _, c := range w.conns {
		carrying.Go(func() {
			if _, err := c.Write(make([]byte, bytes)); err != nil {
				b.Error(err)
			}
			if _, err := io.ReadFull(c, make([]byte, bytes/sinkBlock)); err != nil {
				b.Error(err)
			}
		})
	}
	carrying.Wait()
}

// BenchmarkRoundTrip sends one byte there and back.
func BenchmarkRoundTrip(b *testing.B) {
	all := makeWays(b)
	for _, w := range all {
		w.open(b, 1)
	}
	const trips = 200
	for i := 0; b.Loop(); i++ {
		for n := range all {
			w := all[(i+n)%len(all)]
			start := time.Now()
			for range trips {
				w.carryOne(b)
			}
			w.took = append(w.took, time.Since(start)/trips)
		}
	}
	for _, w := range all {
		b.ReportMetric(float64(median(w.took).Nanoseconds())/1000, w.name+":us")
	}
}

func (w *way) carryOne(b *testing.B) {
	if _, err := w.conns[0].Write([]byte{'!'}); err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(w.conns[0], make([]byte, 1)); err != nil {
		b.Fatal(err)
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

// sinkBlock is after how many bytes a sink says that it has them.
const sinkBlock = 1 << 20

// sink reads whatever is sent to the port that it returns, and answers a '!' and each block with one byte.
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
				go swallow(c)
			}
		}()
		return nil
	})
	return port
}

func swallow(c net.Conn) {
	defer func() { _ = c.Close() }()
	block, read := make([]byte, sinkBlock), 0
	for {
		n, err := c.Read(block[read:])
		if err != nil {
			return
		}
		if read += n; read == sinkBlock || block[0] == '!' {
			read = 0
			block[0] = 0
			if _, err := c.Write([]byte{0}); err != nil {
				return
			}
		}
	}
}

func (s *space) connect(to netip.AddrPort) (c net.Conn) {
	s.t.Helper()
	s.must(func() (err error) {
		c, err = net.DialTimeout("tcp", to.String(), patient) //nolint:noctx // has a timeout
		return err
	})
	return c
}
