// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/hanse-dev/hanse/internal/overlay"
)

var (
	guest  = netip.MustParseAddr("10.244.2.7")
	sentOn = netip.MustParseAddr("100.70.2.7") // a pod of hamburg that was sent on to bremen
	theirs = mapping("10.96.0.0/12", "240.0.0.0/12")
)

func mapping(own, seen string) []overlay.Mapping {
	return []overlay.Mapping{{Own: netip.MustParsePrefix(own), Seen: netip.MustParsePrefix(seen)}}
}

// newTestForwarder has hamburg's pod as guest, and what hamburg's name server says is answered by the function.
func newTestForwarder(t *testing.T, answer func(query []byte) []byte) *forwarder {
	t.Helper()
	return newForwarderTo(t, map[string]func([]byte) []byte{"240.0.0.10:53": answer})
}

// newForwarderTo is the same with what the name servers answer, by their addresses. Others do not answer.
func newForwarderTo(t *testing.T, servers map[string]func(query []byte) []byte) *forwarder {
	t.Helper()
	r := newForwarder()
	r.dial = func(_ context.Context, network, address string) (net.Conn, error) {
		answer := servers[address]
		if answer == nil {
			return nil, errors.New("somebody else was asked: " + address)
		}
		here, there := net.Pipe()
		go func() {
			defer func() { _ = there.Close() }()
			if network == "tcp" {
				query, err := readFrame(there)
				if err == nil {
					_ = writeFrame(there, answer(query))
				}
				return
			}
			query := make([]byte, 512)
			if size, err := there.Read(query); err == nil {
				_, _ = there.Write(answer(query[:size]))
			}
		}()
		return here, nil
	}
	r.update(
		overlay.Layout{Permissions: []overlay.Permissions{{Peer: "hamburg", Guests: []netip.Addr{guest}, SentOn: []netip.Addr{sentOn}}, {Peer: "bremen"}}},
		[]overlay.Peer{
			{
				Name: "hamburg", Theirs: theirs, Resolvers: []netip.Addr{netip.MustParseAddr("240.0.0.10")},
				Services: []overlay.Service{{Home: overlay.HomeService{Namespace: "shop", Name: "db"}, Twin: "shop-hamburg"}},
			},
			{Name: "bremen", Theirs: mapping("10.244.0.0/16", "100.70.0.0/16"), Ours: mapping("240.0.0.0/12", "241.0.0.0/12")},
		},
		[]netip.Addr{netip.MustParseAddr("10.96.0.10")},
	)
	return r
}

func query(t testing.TB, more ...dnsmessage.Resource) []byte {
	t.Helper()
	m := dnsmessage.Message{
		Header:      dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions:   []dnsmessage.Question{{Name: dnsmessage.MustNewName("web.shop.svc."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
		Additionals: more,
	}
	packed, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

// answered returns an answer with that many addresses.
func answered(query []byte, count int) []byte {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		panic(err)
	}
	m.Response, m.Additionals = true, nil
	for range count {
		m.Answers = append(m.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET},
			Body:   &dnsmessage.AResource{A: [4]byte{10, 97, 1, 2}},
		})
	}
	packed, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return packed
}

func TestAPodIsAnsweredByItsHomeWithAddressesAsTheyAreWhereItRuns(t *testing.T) {
	for pod, want := range map[netip.Addr][4]byte{guest: {240, 1, 1, 2}, sentOn: {241, 1, 1, 2}} {
		for _, network := range []string{"udp", "tcp"} {
			t.Run(pod.String()+" by "+network, func(t *testing.T) {
				r := newTestForwarder(t, func(query []byte) []byte { return answered(query, 1) })
				h := r.homeOf(net.UDPAddrFromAddrPort(netip.AddrPortFrom(pod, 5000)))
				answer, err := r.ask(t.Context(), h, network, query(t))
				if err != nil {
					t.Fatal(err)
				}
				var m dnsmessage.Message
				if err := m.Unpack(answer); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(&dnsmessage.AResource{A: want}, m.Answers[0].Body); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
			})
		}
	}
}

func TestAPodThatWasSentOnAsksForTheNameOfAnAddress(t *testing.T) {
	reverse := func(name string) []byte {
		m := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypePTR, Class: dnsmessage.ClassINET}}}
		packed, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		return packed
	}
	var asked []byte
	r := newTestForwarder(t, func(query []byte) []byte {
		asked = query
		return answered(query, 0)
	})
	query := reverse("2.1.1.241.in-addr.arpa.")
	answer, err := r.ask(t.Context(), r.homeOf(net.UDPAddrFromAddrPort(netip.AddrPortFrom(sentOn, 5000))), "tcp", query)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(reverse("2.1.97.10.in-addr.arpa."), asked); diff != "" {
		t.Errorf("its home is asked (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(answered(query, 0), answer); diff != "" {
		t.Errorf("it is answered (-want +got):\n%s", diff)
	}
}

func TestAStreamCarriesSeveralQuestions(t *testing.T) {
	r := newTestForwarder(t, func(query []byte) []byte { return answered(query, 1) })
	pod, gateway := net.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- r.serveStream(t.Context(), r.homeOf(net.TCPAddrFromAddrPort(netip.AddrPortFrom(guest, 5000))), gateway)
	}()
	for range 3 {
		if err := writeFrame(pod, query(t)); err != nil {
			t.Fatal(err)
		}
		if _, err := readFrame(pod); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(pod.Close(), <-ended); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

func TestOnlyPodsOfPeersAreAnsweredAndNotTooManyAtATime(t *testing.T) {
	r := newTestForwarder(t, nil)
	if h := r.homeOf(net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.244.2.8:5000"))); h != nil {
		t.Errorf("a pod of ours is answered by %s", h.peer)
	}
	h := r.homeOf(net.UDPAddrFromAddrPort(netip.AddrPortFrom(guest, 5000)))
	for range mostQuestions {
		if !h.enter() {
			t.Fatal("a question is refused too early")
		}
	}
	if h.enter() {
		t.Error("there is no limit")
	}
	h.leave()
	if !h.enter() {
		t.Error("an answered question makes no room")
	}
}

func TestAnswersThatGrowTooLargeAskForTCP(t *testing.T) {
	edns := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("."), Type: dnsmessage.TypeOPT, Class: 1232}, Body: &dnsmessage.OPTResource{}}
	tests := map[string]struct {
		query   []byte
		answers int
		whole   bool
	}{
		"a small answer":                        {query(t), 1, true},
		"a large one":                           {query(t), 40, false},
		"a large one to a pod that takes it":    {query(t, edns), 40, true},
		"one that is too large for such a pod":  {query(t, edns), 100, false},
		"one to a pod that says it takes a few": {query(t, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: edns.Header.Name, Type: dnsmessage.TypeOPT, Class: 1}, Body: &dnsmessage.OPTResource{}}), 1, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			full := answered(test.query, test.answers)
			got, err := fit(test.query, full)
			if err != nil {
				t.Fatal(err)
			}
			var m dnsmessage.Message
			if err := m.Unpack(got); err != nil {
				t.Fatal(err)
			}
			if m.Truncated == test.whole || bytes.Equal(got, full) != test.whole || m.ID != 7 || len(m.Questions) != 1 {
				t.Errorf("got an answer of %d bytes, truncated: %t", len(got), m.Truncated)
			}
		})
	}
}

func TestFramesAreReadWholeOrNotAtAll(t *testing.T) {
	if _, err := readFrame(strings.NewReader("\x00\x05abc")); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
	if err := writeFrame(io.Discard, make([]byte, largestAnswer+1)); err == nil {
		t.Error("a message is written that no length can tell")
	}
}

func FuzzFit(f *testing.F) {
	f.Add(query(f), answered(query(f), 40))
	f.Fuzz(func(t *testing.T, query, answer []byte) {
		if got, err := fit(query, answer); err == nil && len(got) > len(answer) && len(got) > smallAnswer {
			t.Errorf("an answer of %d bytes became one of %d", len(answer), len(got))
		}
	})
}
