// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
)

func TestLineTakesPackets(t *testing.T) {
	type arrival struct {
		length int
		at     time.Duration // since the start
	}
	const lost = time.Duration(-1)
	for _, test := range []struct {
		name   string
		of     plan.Impairment
		chance float64
		send   []arrival
		want   []time.Duration // when each arrives
	}{
		{"a good one at once", plan.Impairment{}, 0, []arrival{{1500, 0}, {1500, 5}}, []time.Duration{0, 5}},
		{"later by the delay", plan.Impairment{Delay: time.Second}, 0, []arrival{{1500, 0}, {20, 5}}, []time.Duration{time.Second, time.Second + 5}},
		{"up to the MTU", plan.Impairment{MTU: 1280}, 0, []arrival{{1280, 0}, {1281, 0}}, []time.Duration{0, lost}},
		{"not when chance is against it", plan.Impairment{Loss: 0.05}, 0.0499, []arrival{{100, 0}}, []time.Duration{lost}},
		{"when chance is not", plan.Impairment{Loss: 0.05}, 0.05, []arrival{{100, 0}}, []time.Duration{0}},
		{"none when all get lost", plan.Impairment{Loss: 1}, 0.999, []arrival{{100, 0}}, []time.Duration{lost}},
		{"one after the other at a rate", plan.Impairment{Rate: 8000, Delay: time.Second}, 0, []arrival{{10, 0}, {20, 0}, {10, time.Second}}, []time.Duration{1010 * time.Millisecond, 1030 * time.Millisecond, 2010 * time.Millisecond}},
		{"not what would wait too long", plan.Impairment{Rate: 8000}, 0, []arrival{{101, 0}, {10, 0}, {10, 2 * time.Millisecond}}, []time.Duration{101 * time.Millisecond, lost, 111 * time.Millisecond}},
	} {
		t.Run(test.name, func(t *testing.T) {
			start := time.Unix(0, 0)
			line := line{Impairment: test.of, chance: func() float64 { return test.chance }}
			var got []time.Duration
			for _, packet := range test.send {
				due, ok := line.take(packet.length, start.Add(packet.at))
				if !ok {
					got = append(got, lost)
					continue
				}
				got = append(got, due.Sub(start))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestLinkOfAnAddress(t *testing.T) {
	bad := plan.Impairment{Loss: 1}
	hamburg := plan.Link{Peer: "hamburg", Subnets: prefixes("10.212.2.0/24", "fd00:212::2:0/112"), Impairment: bad}
	everybody := plan.Link{Impairment: bad}
	for _, test := range []struct {
		name  string
		links []plan.Link
		far   string
		want  string // peer of the link, "all" for everybody's, "" for none
	}{
		{"no link", nil, "10.212.2.1", ""},
		{"of the peer", []plan.Link{hamburg}, "10.212.2.1", "hamburg"},
		{"of the peer by IPv6", []plan.Link{hamburg}, "fd00:212::2:1", "hamburg"},
		{"of somebody else", []plan.Link{hamburg}, "10.212.3.1", ""},
		{"of everybody", []plan.Link{everybody}, "10.212.3.1", "all"},
		{"of the peer rather than of everybody", []plan.Link{everybody, hamburg}, "10.212.2.1", "hamburg"},
		{"of this machine", []plan.Link{everybody}, "10.212.0.1", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			way := Relay{Exempt: prefixes("10.212.0.0/24"), Links: test.links}.direction(nil, nil, nil)
			got := ""
			if lane := way.choose(netip.MustParseAddr(test.far)); lane != nil {
				got = lane.link.Peer
				if got == "" {
					got = "all"
				}
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// pair are the two sides of one end of the cable: the test's, and the relay's.
func pair(t *testing.T) (ours, relays *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, relays = os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "relay's")
	t.Cleanup(func() { _ = ours.Close() })
	return ours, relays
}

func TestRelayCarriesBothWaysAndLate(t *testing.T) {
	const delay = 30 * time.Millisecond
	inside, relayInside := pair(t)
	outside, relayOutside := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	relay := Relay{Exempt: prefixes("10.212.0.0/24"), Links: []plan.Link{{Impairment: plan.Impairment{Delay: delay}}}, Now: time.Now}
	go func() { done <- relay.Run(ctx, relayInside, relayOutside) }()

	machine := netip.MustParseAddr("10.212.0.1")
	for _, test := range []struct {
		name           string
		from, to       *os.File
		source, target netip.Addr
		late           bool
	}{
		{"out", inside, outside, one4, two4, true},
		{"in", outside, inside, two4, one4, true},
		{"out to the machine", inside, outside, one4, machine, false},
		{"in from the machine", outside, inside, machine, one4, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			sent, buffer := frame4(test.source, test.target, 60), make([]byte, maxFrame)
			begin := time.Now()
			if _, err := test.from.Write(sent); err != nil {
				t.Fatal(err)
			}
			n, err := test.to.Read(buffer)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); test.late && took < delay {
				t.Errorf("it took %s", took)
			}
			if diff := cmp.Diff(sent, buffer[:n]); diff != "" {
				t.Errorf("-sent +received:\n%s", diff)
			}
		})
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("it was asked to end, yet %v", err)
	}
}

func TestRelayEndsWithItsCable(t *testing.T) {
	inside, relayInside := pair(t)
	_, relayOutside := pair(t)
	done := make(chan error, 1)
	go func() { done <- Relay{Now: time.Now}.Run(t.Context(), relayInside, relayOutside) }()
	if err := inside.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("a broken cable is no error")
	}
}

func TestTooManyLateFramesAreLost(t *testing.T) {
	way := Relay{Links: []plan.Link{{Impairment: plan.Impairment{Delay: time.Second}}}, Now: time.Now}.
		direction(nil, nil, func(p packet) netip.Addr { return p.destination })
	for range maxLate + 10 {
		way.handle(frame4(one4, two4, 60))
	}
	if got := len(way.lanes[0].late); got != maxLate {
		t.Errorf("%d frames are on their way, want %d", got, maxLate)
	}
}
