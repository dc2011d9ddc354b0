// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"
)

var copies = Copies{{"shop", "web"}: "shop-lubeck-abc123", {"shop", "shop"}: "shop-lubeck-abc123", {"bank", "db"}: strings.Repeat("b", 63)}

func srv(name, target string) dnsmessage.Resource {
	return record(name, &dnsmessage.SRVResource{Port: 80, Target: dnsmessage.MustNewName(target)})
}

func TestQuestionsForServicesThatHaveACopyAreAskedHere(t *testing.T) {
	long := strings.Repeat(strings.Repeat("n", 50)+".", 4)
	tests := map[string]struct {
		asked string
		kind  dnsmessage.Type
		want  string // empty: it is asked at home
	}{
		"a Service":                        {"web.shop.svc.cluster.local.", dnsmessage.TypeA, "web.shop-lubeck-abc123.svc.cluster.local."},
		"a Service of IPv6":                {"web.shop.svc.cluster.local.", dnsmessage.TypeAAAA, "web.shop-lubeck-abc123.svc.cluster.local."},
		"a port":                           {"_http._tcp.web.shop.svc.cluster.local.", dnsmessage.TypeSRV, "_http._tcp.web.shop-lubeck-abc123.svc.cluster.local."},
		"a pod of it":                      {"web-0.web.shop.svc.cluster.local.", dnsmessage.TypeA, "web-0.web.shop-lubeck-abc123.svc.cluster.local."},
		"an endpoint of it":                {"10-244-1-5.web.shop.svc.cluster.local.", dnsmessage.TypeA, "10-244-1-5.web.shop-lubeck-abc123.svc.cluster.local."},
		"one named as its namespace":       {"shop.shop.svc.cluster.local.", dnsmessage.TypeA, "shop.shop-lubeck-abc123.svc.cluster.local."},
		"a name in capitals":               {"Web.SHOP.svc.Cluster.local.", dnsmessage.TypeA, "Web.shop-lubeck-abc123.svc.cluster.local."},
		"a Service that stayed at home":    {asked: "db.shop.svc.cluster.local.", kind: dnsmessage.TypeA},
		"one of another namespace":         {asked: "web.bank.svc.cluster.local.", kind: dnsmessage.TypeA},
		"one of the cluster set":           {asked: "web.shop.svc.clusterset.local.", kind: dnsmessage.TypeA},
		"the twin itself":                  {asked: "web.shop-lubeck-abc123.svc.cluster.local.", kind: dnsmessage.TypeA},
		"a namespace":                      {asked: "shop.svc.cluster.local.", kind: dnsmessage.TypeA},
		"all namespaces":                   {asked: "svc.cluster.local.", kind: dnsmessage.TypeA},
		"a pod that is behind its address": {asked: "10-244-1-5.shop.pod.cluster.local.", kind: dnsmessage.TypeA},
		"somebody on the Internet":         {asked: "web.shop.svc.cluster.local.example.com.", kind: dnsmessage.TypeA},
		"one with something else in front": {asked: "web.shop.notsvc.cluster.local.", kind: dnsmessage.TypeA},
		"a short name":                     {asked: "web.shop.", kind: dnsmessage.TypeA},
		"the root":                         {asked: ".", kind: dnsmessage.TypeA},
		"other things of the name":         {asked: "web.shop.svc.cluster.local.", kind: dnsmessage.TypeTXT},
		"everything of the name":           {asked: "web.shop.svc.cluster.local.", kind: dnsmessage.TypeALL},
		"a name that would be too long":    {asked: long + "db.bank.svc.cluster.local.", kind: dnsmessage.TypeA},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sent, ok := copies.Query(packed(t, query(test.asked, test.kind)))
			if ok != (test.want != "") {
				t.Fatalf("asked here: %t", ok)
			}
			if !ok {
				return
			}
			if diff := cmp.Diff(packed(t, query(test.want, test.kind)), sent); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestNamesThatASearchPathMakesAreDenied(t *testing.T) {
	for asked, want := range map[string]bool{
		"web.shop.shop.svc.cluster.local.":                   true,
		"Web.Shop.svc.bank.svc.cluster.local.":               true,
		"web.shop.svc.cluster.local.shop.svc.cluster.local.": true,
		"web.shop.svc.cluster.local.svc.cluster.local.":      true,
		"web.shop.svc.cluster.local.cluster.local.":          true,
		"web-0.web.shop.shop.svc.cluster.local.":             true,
		"web.shop.cluster.local.":                            true,
		"web.svc.cluster.local.":                             false,
		"db.shop.shop.svc.cluster.local.":                    false,
		"example.com.shop.svc.cluster.local.":                false,
		"web.shop.example.com.":                              false,
		"cluster.local.":                                     false,
		".":                                                  false,
	} {
		denial, ok := copies.Denial(packed(t, query(asked, dnsmessage.TypeA)))
		if ok != want {
			t.Errorf("%s: denied %t", asked, ok)
		}
		if !ok {
			continue
		}
		var m dnsmessage.Message
		if err := m.Unpack(denial); err != nil || !m.Response || m.RCode != dnsmessage.RCodeNameError || m.Questions[0].Name.String() != asked {
			t.Errorf("%s: the answer is %v (%v)", asked, m, err)
		}
	}
	if _, ok := copies.Denial([]byte("nonsense")); ok {
		t.Error("nonsense is denied")
	}
}

func TestNamesInAnswersAreThoseOfHome(t *testing.T) {
	const (
		web, twin  = "Web.shop.svc.cluster.local.", "web.shop-lubeck-abc123.svc.cluster.local."
		zero, here = "web-0.web.shop.svc.cluster.local.", "web-0." + twin
	)
	tests := map[string]struct {
		kind           dnsmessage.Type
		answers, extra []dnsmessage.Resource
		want           []string
	}{
		"an address":              {kind: dnsmessage.TypeA, answers: []dnsmessage.Resource{a(twin, "10.96.1.2")}, want: []string{web + " 10.96.1.2"}},
		"addresses":               {kind: dnsmessage.TypeAAAA, answers: []dnsmessage.Resource{aaaa(twin, "fd00::1"), aaaa(twin, "fd00::2")}, want: []string{web + " fd00::1", web + " fd00::2"}},
		"no address of the kind":  {kind: dnsmessage.TypeAAAA},
		"a port, and where it is": {kind: dnsmessage.TypeSRV, answers: []dnsmessage.Resource{srv(twin, here)}, extra: []dnsmessage.Resource{a(here, "10.244.1.5")}, want: []string{web + " " + zero, zero + " 10.244.1.5"}},
		"another name":            {kind: dnsmessage.TypeA, answers: []dnsmessage.Resource{record(twin, &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(here)})}, want: []string{web + " " + zero}},
		"names of others":         {kind: dnsmessage.TypeSRV, answers: []dnsmessage.Resource{srv("x.y.", "web.other.svc.cluster.local.")}, want: []string{"x.y. web.other.svc.cluster.local."}},
		"the end of a name":       {kind: dnsmessage.TypeSRV, answers: []dnsmessage.Resource{srv(twin, "xshop-lubeck-abc123.svc.cluster.local.")}, want: []string{web + " xshop-lubeck-abc123.svc.cluster.local."}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			asked := packed(t, query(web, test.kind))
			m := answer(query("web.shop-lubeck-abc123.svc.cluster.local.", test.kind), test.answers...)
			m.Additionals = test.extra
			got, err := copies.Answer(asked, packed(t, m))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(append([]string{web}, test.want...), records(t, got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			var after dnsmessage.Message
			if err := after.Unpack(got); err != nil || after.AuthenticData {
				t.Errorf("it is said to be signed, %v", err)
			}
		})
	}
}

func TestHomeIsAskedWhereThisClusterHasNoAnswer(t *testing.T) {
	asked := query("pod.web.shop.svc.cluster.local.", dnsmessage.TypeA)
	unknown, failed := answer(asked), answer(asked)
	unknown.RCode, failed.RCode = dnsmessage.RCodeNameError, dnsmessage.RCodeServerFailure
	for name, m := range map[string]dnsmessage.Message{"it knows no such name": unknown, "it fails": failed, "it only asks": asked} {
		if _, err := copies.Answer(packed(t, asked), packed(t, m)); !errors.Is(err, errNoCopy) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for _, garbage := range [][]byte{nil, {1, 2, 3}, bytes.Repeat([]byte{0xff}, 600)} {
		if _, ok := copies.Query(garbage); ok {
			t.Errorf("%x is a query", garbage)
		}
		if _, err := copies.Answer(packed(t, asked), garbage); err == nil {
			t.Errorf("%x is an answer", garbage)
		}
	}
}

// Whatever a pod asks and a name server answers, what comes of it is a query, or an answer of the same length of sections.
func FuzzCopies(f *testing.F) {
	for _, name := range []string{"web.shop.svc.cluster.local.", "_http._tcp.web.shop.svc.cluster.local.", "db.bank.svc.cluster.local."} {
		q := query(name, dnsmessage.TypeSRV)
		f.Add(packed(f, q), packed(f, answer(q, srv(name, "web-0.web.shop-lubeck-abc123.svc.cluster.local."), a("x.", "10.0.0.1"))))
	}
	f.Fuzz(func(t *testing.T, query, text []byte) {
		if sent, ok := copies.Query(query); ok {
			if _, err := unpackQuery(sent); err != nil {
				t.Fatalf("the query became %x: %v", sent, err)
			}
		}
		got, err := copies.Answer(query, text)
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
