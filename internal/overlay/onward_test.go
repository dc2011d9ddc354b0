// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPodsThatWereSentOnBelongToTheirHomeWhereTheyAreSeen(t *testing.T) {
	s := cluster()
	h, r := hamburg(), riga()
	h.SentOn = addresses("10.50.3.4", "10.50.3.4", "10.244.1.9", "100.64.2.7", "8.8.8.8") // the first alone is seen at another peer
	h.Guests = []Pod{{"shop", addresses("10.244.2.5")[0]}}
	r.Ours = append(r.Ours, maps("100.64.0.0/16=100.80.0.0/16", "240.0.0.0/12=240.16.0.0/12")...)
	s.Peers = []Peer{h, r}
	layout, conflicts := Plan(s)
	expectConflicts(t, nil, conflicts)
	for i, want := range []struct{ sentOn, questions []string }{
		{sentOn: []string{"10.50.3.4"}},
		{questions: []string{"240.16.0.10"}},
	} {
		if diff := cmp.Diff(addresses(want.sentOn...), layout.Permissions[i].SentOn, byText); diff != "" {
			t.Errorf("%s has sent on (-want +got):\n%s", layout.Permissions[i].Peer, diff)
		}
		if diff := cmp.Diff(addresses(want.questions...), layout.Translations[i].Questions, byText); diff != "" {
			t.Errorf("%s asks (-want +got):\n%s", layout.Translations[i].Peer, diff)
		}
	}
	if diff := cmp.Diff(addresses("10.50.3.4", "10.244.2.5"), NodePlan(s, "n2").Guarded[0].Pods, byText); diff != "" {
		t.Errorf("on nodes (-want +got):\n%s", diff)
	}
}

func TestAnAddressOfPodsOfTwoPeersIsNobodys(t *testing.T) {
	s := cluster()
	h, r, third := hamburg(), riga(), Peer{
		Name: "visby", PublicKey: keyOf(4), Theirs: maps("10.244.0.0/16=100.70.0.0/16"),
		Ours: maps("10.244.0.0/16=100.71.0.0/16", "10.96.0.0/12=240.32.0.0/12"),
	}
	h.SentOn, r.SentOn = addresses("100.70.1.1", "100.70.1.2"), addresses("100.70.1.2", "100.70.1.3")
	s.Peers = []Peer{h, r, third}
	layout, _ := Plan(s)
	for i, want := range [][]string{{"100.70.1.1"}, {"100.70.1.3"}, nil} {
		if diff := cmp.Diff(addresses(want...), layout.Permissions[i].SentOn, byText); diff != "" {
			t.Errorf("%s (-want +got):\n%s", layout.Permissions[i].Peer, diff)
		}
	}
	if len(h.SentOn) != 2 || len(s.Peers[0].SentOn) != 2 {
		t.Error("what is known was changed")
	}
}

func TestNobodyIsAskedBehindAPeerThatIsNotConnected(t *testing.T) {
	s := cluster()
	h, r := hamburg(), riga()
	h.PublicKey = [32]byte{}
	r.Ours = append(r.Ours, maps("240.0.0.0/12=240.16.0.0/12")...)
	s.Peers = []Peer{h, r}
	layout, _ := Plan(s)
	if got := layout.Translations[0].Questions; len(got) > 0 {
		t.Errorf("got %s", got)
	}
}
