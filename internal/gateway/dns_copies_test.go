// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"
)

// db is a question for a Service of hamburg of which there is a copy here.
func db(t *testing.T) []byte {
	t.Helper()
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("db.shop.svc.cluster.local."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	packed, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

// unknown is the answer that there is no such name.
func unknown(query []byte) []byte {
	answer := answered(query, 0)
	answer[3] |= byte(dnsmessage.RCodeNameError)
	return answer
}

// addressIn returns the address in the answer, and the name that has it.
func addressIn(t *testing.T, answer []byte) (netip.Addr, string) {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil {
		t.Fatal(err)
	}
	if len(m.Answers) != 1 {
		t.Fatalf("got %v", m)
	}
	return netip.AddrFrom4(m.Answers[0].Body.(*dnsmessage.AResource).A), m.Answers[0].Header.Name.String() //nolint:forcetypeassert // a test
}

func TestOurOwnNameServersAnswerForServicesThatHaveACopyHere(t *testing.T) {
	type servers = map[string]func([]byte) []byte
	const here, home = "10.96.0.10:53", "240.0.0.10:53"
	ours, atHome := netip.MustParseAddr("10.97.1.2"), netip.MustParseAddr("240.1.1.2") // of the same answer
	one := func(query []byte) []byte { return answered(query, 1) }
	garbage := func([]byte) []byte { return []byte("garbage") }
	tests := map[string]struct {
		servers servers
		pod     netip.Addr
		want    netip.Addr
	}{
		"home need not answer":                 {servers{here: one}, guest, ours},
		"home is not asked":                    {servers{here: one, home: unknown}, guest, ours},
		"a name that only home knows":          {servers{here: unknown, home: one}, guest, atHome},
		"our own do not answer":                {servers{home: one}, guest, atHome},
		"our own answer nonsense":              {servers{here: garbage, home: one}, guest, atHome},
		"a pod that was sent on asks its home": {servers{here: one, home: one}, sentOn, netip.MustParseAddr("241.1.1.2")},
	}
	for name, test := range tests {
		for _, network := range []string{"udp", "tcp"} {
			t.Run(name+" by "+network, func(t *testing.T) {
				r := newForwarderTo(t, test.servers)
				answer, err := r.ask(t.Context(), r.homeOf(net.UDPAddrFromAddrPort(netip.AddrPortFrom(test.pod, 5000))), network, db(t))
				if err != nil {
					t.Fatal(err)
				}
				got, name := addressIn(t, answer)
				if got != test.want || name != "db.shop.svc.cluster.local." {
					t.Errorf("got %s for %s, want %s", got, name, test.want)
				}
			})
		}
	}
}

func TestOurOwnNameServersAreAskedUnderTheNameOfTheCopy(t *testing.T) {
	var asked []string
	r := newForwarderTo(t, map[string]func([]byte) []byte{"10.96.0.10:53": func(query []byte) []byte {
		var m dnsmessage.Message
		if err := m.Unpack(query); err == nil {
			asked = append(asked, m.Questions[0].Name.String())
		}
		return answered(query, 1)
	}})
	h := r.homeOf(net.UDPAddrFromAddrPort(netip.AddrPortFrom(guest, 5000)))
	if _, err := r.ask(t.Context(), h, "tcp", db(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ask(t.Context(), h, "tcp", query(t)); err == nil {
		t.Error("a name of nobody's copy is answered though home does not")
	}
	if diff := cmp.Diff([]string{"db.shop-hamburg.svc.cluster.local."}, asked); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The search path of a pod makes other names of the name of a copy, and only home knows that there are none.
func TestNamesThatASearchPathMakesDoNotWaitForAHomeThatIsGone(t *testing.T) {
	asked := dnsmessage.Message{Questions: []dnsmessage.Question{{
		Name: dnsmessage.MustNewName("db.shop.shop.svc.cluster.local."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET,
	}}}
	question, err := asked.Pack()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		answers bool
		servers map[string]func([]byte) []byte
		want    dnsmessage.RCode
		fails   bool
	}{
		"home does not answer": {false, nil, dnsmessage.RCodeNameError, false},
		"home is asked":        {true, map[string]func([]byte) []byte{"240.0.0.10:53": func(q []byte) []byte { return answered(q, 1) }}, dnsmessage.RCodeSuccess, false},
		"home may answer":      {true, nil, 0, true},
	} {
		r := newForwarderTo(t, test.servers)
		h := r.homeOf(net.UDPAddrFromAddrPort(netip.AddrPortFrom(guest, 5000)))
		h.answers = test.answers
		answer, err := r.ask(t.Context(), h, "udp", question)
		var got dnsmessage.Message
		if (err != nil) != test.fails || err == nil && (got.Unpack(answer) != nil || got.RCode != test.want) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}
