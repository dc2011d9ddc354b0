// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"
	"pgregory.net/rapid"
)

// atLubeck is how the pods of hamburg that run at lubeck see names.
var atLubeck = View{
	Theirs: maps("10.244.0.0/16=100.64.0.0/16", "10.96.0.0/12=240.0.0.0/12", "fd00:1::/48=fd68:616e::/48"),
	Ours:   maps("10.244.0.0/16=100.65.0.0/16", "10.96.0.0/12=240.16.0.0/12"),
}

func query(name string, kind dnsmessage.Type) dnsmessage.Message {
	return dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}},
	}
}

func answer(q dnsmessage.Message, records ...dnsmessage.Resource) dnsmessage.Message {
	q.Response, q.AuthenticData, q.Answers = true, true, records
	return q
}

func record(name string, body dnsmessage.ResourceBody) dnsmessage.Resource {
	header := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name), Class: dnsmessage.ClassINET, TTL: 30}
	switch body.(type) {
	case *dnsmessage.AResource:
		header.Type = dnsmessage.TypeA
	case *dnsmessage.AAAAResource:
		header.Type = dnsmessage.TypeAAAA
	case *dnsmessage.PTRResource:
		header.Type = dnsmessage.TypePTR
	case *dnsmessage.SRVResource:
		header.Type = dnsmessage.TypeSRV
	case *dnsmessage.CNAMEResource:
		header.Type = dnsmessage.TypeCNAME
	}
	return dnsmessage.Resource{Header: header, Body: body}
}

func a(name, address string) dnsmessage.Resource {
	return record(name, &dnsmessage.AResource{A: netip.MustParseAddr(address).As4()})
}

func aaaa(name, address string) dnsmessage.Resource {
	return record(name, &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr(address).As16()})
}

func ptr(name, to string) dnsmessage.Resource {
	return record(name, &dnsmessage.PTRResource{PTR: dnsmessage.MustNewName(to)})
}

func packed(t testing.TB, m dnsmessage.Message) []byte {
	t.Helper()
	text, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func records(t testing.TB, message []byte) []string {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(message); err != nil {
		t.Fatal(err)
	}
	all := []string{m.Questions[0].Name.String()}
	for _, section := range [][]dnsmessage.Resource{m.Answers, m.Additionals} {
		for _, r := range section {
			text := r.Header.Name.String() + " "
			switch body := r.Body.(type) {
			case *dnsmessage.AResource:
				text += netip.AddrFrom4(body.A).String()
			case *dnsmessage.AAAAResource:
				text += netip.AddrFrom16(body.AAAA).String()
			case *dnsmessage.PTRResource:
				text += body.PTR.String()
			case *dnsmessage.SRVResource:
				text += body.Target.String()
			case *dnsmessage.CNAMEResource:
				text += body.CNAME.String()
			}
			all = append(all, text)
		}
	}
	return all
}

func TestAddressesInAnswersAreThoseThatThingsHaveHere(t *testing.T) {
	const web = "web.shop.svc.cluster.local."
	tests := map[string]struct {
		kind   dnsmessage.Type
		answer []dnsmessage.Resource
		extra  []dnsmessage.Resource
		want   []string // empty: not a byte has changed
	}{
		"a Service at home":             {answer: []dnsmessage.Resource{a(web, "10.96.0.10")}, want: []string{web, web + " 240.0.0.10"}},
		"a pod at home":                 {answer: []dnsmessage.Resource{a(web, "10.244.1.7")}, want: []string{web, web + " 100.64.1.7"}},
		"a pod that runs here":          {answer: []dnsmessage.Resource{a(web, "100.65.1.7")}, want: []string{web, web + " 10.244.1.7"}},
		"pods here and at home":         {answer: []dnsmessage.Resource{a(web, "100.65.1.7"), a(web, "10.244.1.7")}, want: []string{web, web + " 10.244.1.7", web + " 100.64.1.7"}},
		"a pod of IPv6":                 {kind: dnsmessage.TypeAAAA, answer: []dnsmessage.Resource{aaaa(web, "fd00:1::7")}, want: []string{web, web + " fd68:616e::7"}},
		"somebody on the Internet":      {answer: []dnsmessage.Resource{a(web, "203.0.113.7")}},
		"nobody":                        {},
		"an address of IPv4 in IPv6":    {kind: dnsmessage.TypeAAAA, answer: []dnsmessage.Resource{aaaa(web, "::ffff:10.96.0.10")}},
		"another name for it":           {answer: []dnsmessage.Resource{record(web, &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("x.y.")}), a("x.y.", "10.96.0.1")}, want: []string{web, web + " x.y.", "x.y. 240.0.0.1"}},
		"a port, and where it is":       {kind: dnsmessage.TypeSRV, answer: []dnsmessage.Resource{record(web, &dnsmessage.SRVResource{Port: 80, Target: dnsmessage.MustNewName("p.shop.")})}, extra: []dnsmessage.Resource{a("p.shop.", "10.244.1.7")}, want: []string{web, web + " p.shop.", "p.shop. 100.64.1.7"}},
		"a port alone":                  {kind: dnsmessage.TypeSRV, answer: []dnsmessage.Resource{record(web, &dnsmessage.SRVResource{Port: 80, Target: dnsmessage.MustNewName("p.shop.")})}},
		"the name of an address by far": {kind: dnsmessage.TypePTR, answer: []dnsmessage.Resource{ptr(web, "7.1.244.10.in-addr.arpa.")}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			q := query(web, max(test.kind, dnsmessage.TypeA))
			m := answer(q, test.answer...)
			m.Additionals = test.extra
			raw := packed(t, m)
			got, err := atLubeck.Answer(packed(t, q), raw)
			if err != nil {
				t.Fatal(err)
			}
			if test.want == nil {
				if !bytes.Equal(got, raw) {
					t.Errorf("the answer became %v", records(t, got))
				}
				return
			}
			if diff := cmp.Diff(test.want, records(t, got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestQuestionsForTheNameOfAnAddressAreAboutTheOneAtHome(t *testing.T) {
	six := func(text string) string { return nameOf(netip.MustParseAddr(text)) }
	tests := map[string]struct{ asked, sent string }{ // sent is empty if not a byte has changed
		"a Service at home":            {"10.0.0.240.in-addr.arpa.", "10.0.96.10.in-addr.arpa."},
		"a pod at home":                {"7.1.64.100.in-addr.arpa.", "7.1.244.10.in-addr.arpa."},
		"a pod that runs here":         {"7.1.244.10.in-addr.arpa.", "7.1.65.100.in-addr.arpa."},
		"a pod of IPv6":                {six("fd68:616e::7:a"), six("fd00:1::7:a")},
		"a pod in capitals":            {"7.1.64.100.IN-ADDR.ARPA.", "7.1.244.10.in-addr.arpa."},
		"somebody on the Internet":     {asked: "7.113.0.203.in-addr.arpa."},
		"a zone":                       {asked: "64.100.in-addr.arpa."},
		"too many parts":               {asked: "1.7.1.64.100.in-addr.arpa."},
		"a part that is no number":     {asked: "x.1.64.100.in-addr.arpa."},
		"a part that is too large":     {asked: "256.1.64.100.in-addr.arpa."},
		"a part with a zero in front":  {asked: "07.1.64.100.in-addr.arpa."},
		"no address of IPv6":           {asked: "7.ip6.arpa."},
		"a name that is no address":    {asked: "web.shop."},
		"the end of all addresses":     {asked: "in-addr.arpa."},
		"an empty part":                {asked: "a.arpa."},
		"a name that looks nearly so":  {asked: "7.1.64.100.not-in-addr.arpa."},
		"an address of too many parts": {asked: "1." + six("fd68:616e::7")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			asked := query(test.asked, dnsmessage.TypePTR)
			raw := packed(t, asked)
			sent, err := atLubeck.Query(raw)
			if err != nil {
				t.Fatal(err)
			}
			if test.sent == "" {
				if !bytes.Equal(sent, raw) {
					t.Errorf("the query became %v", records(t, sent))
				}
				return
			}
			if diff := cmp.Diff([]string{test.sent}, records(t, sent)); diff != "" {
				t.Errorf("query (-want +got):\n%s", diff)
			}
			got, err := atLubeck.Answer(raw, packed(t, answer(query(test.sent, dnsmessage.TypePTR), ptr(test.sent, "web.shop."))))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{test.asked, test.asked + " web.shop."}, records(t, got)); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestQuestionsForOtherThingsStay(t *testing.T) {
	raw := packed(t, query("7.1.64.100.in-addr.arpa.", dnsmessage.TypeA))
	if got, err := atLubeck.Query(raw); err != nil || !bytes.Equal(got, raw) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestMessagesThatAreNoQueriesAreRefused(t *testing.T) {
	two := query("web.", dnsmessage.TypeA)
	two.Questions = append(two.Questions, two.Questions[0])
	none := query("web.", dnsmessage.TypeA)
	none.Questions = nil
	update := query("web.", dnsmessage.TypeA)
	update.OpCode = 5
	for name, m := range map[string]dnsmessage.Message{
		"two questions": two, "no question": none, "an update": update, "an answer": answer(query("web.", dnsmessage.TypeA)),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := atLubeck.Query(packed(t, m)); !errors.Is(err, errNoQuery) {
				t.Errorf("got %v", err)
			}
			if _, err := atLubeck.Answer(packed(t, m), packed(t, m)); !errors.Is(err, errNoQuery) {
				t.Errorf("got %v", err)
			}
		})
	}
	for _, garbage := range [][]byte{nil, {1, 2, 3}, bytes.Repeat([]byte{0xff}, 600)} {
		if _, err := atLubeck.Query(garbage); err == nil {
			t.Errorf("%x is a query", garbage)
		}
		if _, err := atLubeck.Answer(packed(t, query("web.", dnsmessage.TypeA)), garbage); err == nil {
			t.Errorf("%x is an answer", garbage)
		}
	}
}

func TestReverseNamesAreOneToOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.SampledFrom([]int{4, 16}).Draw(t, "length")
		address, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), length, length).Draw(t, "address"))
		if got, ok := addressOf(strings.ToUpper(nameOf(address))); !ok || got != address {
			t.Fatalf("%s is kept under %s, which stands for %s", address, nameOf(address), got)
		}
	})
}

// Whatever a name server of a peer answers, what comes of it is an answer of the same length of sections, or an error.
func FuzzAnswer(f *testing.F) {
	asked := packed(f, query("7.1.64.100.in-addr.arpa.", dnsmessage.TypePTR))
	for _, m := range []dnsmessage.Message{
		answer(query("web.", dnsmessage.TypeA), a("web.", "10.96.0.1"), aaaa("web.", "fd00:1::7")),
		answer(query("7.1.244.10.in-addr.arpa.", dnsmessage.TypePTR), ptr("7.1.244.10.in-addr.arpa.", "web.")),
	} {
		f.Add(asked, packed(f, m))
	}
	f.Fuzz(func(t *testing.T, query, text []byte) {
		if sent, err := atLubeck.Query(query); err == nil {
			if _, err := unpackQuery(sent); err != nil {
				t.Fatalf("the query became %x: %v", sent, err)
			}
		}
		got, err := atLubeck.Answer(query, text)
		if err != nil {
			return
		}
		var before, after dnsmessage.Message
		if err := errors.Join(before.Unpack(text), after.Unpack(got)); err != nil {
			t.Fatalf("%x became %x: %v", text, got, err)
		}
		if before.ID != after.ID || len(before.Answers) != len(after.Answers) || len(before.Additionals) != len(after.Additionals) {
			t.Fatalf("%v became %v", before, after)
		}
	})
}
