// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func keyText(key [32]byte) string { return base64.StdEncoding.EncodeToString(key[:]) }

// told is what hamburg tells lubeck of its network.
func told() *v1alpha1.Network {
	return &v1alpha1.Network{
		PodCIDRs: []v1alpha1.CIDR{"10.244.0.0/16"}, ServiceCIDRs: []v1alpha1.CIDR{"10.96.0.0/12"},
		Nameservers: []v1alpha1.IP{"10.96.0.10", "169.254.20.10"},
		Gateway: &v1alpha1.Gateway{
			PublicKey: keyText(keyOf(2)), Endpoints: []v1alpha1.HostPort{"gw.example.com:51820", "203.0.113.7:51820"},
			Protocols: []string{"other", "wireguard"}, Addresses: []v1alpha1.IP{"10.96.0.0"},
		},
		Mappings: []v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: "100.65.0.0/16"}, {Own: "10.96.0.0/12", Seen: "240.16.0.0/12"}},
		Behind:   []v1alpha1.ClusterRange{{ClusterID: "c-riga", RangeMapping: v1alpha1.RangeMapping{Own: "10.50.0.0/16", Seen: "100.71.0.0/16"}}},
		Direct:   []v1alpha1.ClusterRange{{ClusterID: "c-riga", RangeMapping: v1alpha1.RangeMapping{Own: "10.244.0.0/16", Seen: "240.80.0.0/16"}}},
	}
}

func TestConnect(t *testing.T) {
	granted := Grant{Peer: "hamburg", Mappings: hamburg().Theirs, Direct: of3rd("c-riga", "10.244.0.0/16=240.64.0.0/16")}
	tests := map[string]struct {
		change   func(*v1alpha1.Network)
		conflict string
	}{
		"all that is needed":           {change: func(*v1alpha1.Network) {}},
		"no gateway":                   {change: func(n *v1alpha1.Network) { n.Gateway = nil }, conflict: "hamburg NoPeerGateway no gateway"},
		"a gateway of another kind":    {change: func(n *v1alpha1.Network) { n.Gateway.Protocols = []string{"other"} }, conflict: "hamburg NoPeerGateway wireguard"},
		"no word about protocols":      {change: func(n *v1alpha1.Network) { n.Gateway.Protocols = nil }},
		"a key that is none":           {change: func(n *v1alpha1.Network) { n.Gateway.PublicKey = "AAAA" }, conflict: "hamburg NetworkRefused key"},
		"no word about how it sees us": {change: func(n *v1alpha1.Network) { n.Mappings = nil }, conflict: "hamburg Pending 10.244.0.0/16"},
		"nonsense about how it sees us": {
			change: func(n *v1alpha1.Network) { n.Mappings[0].Seen = "everything" }, conflict: "hamburg NetworkRefused 10.244.0.0/16",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := told()
			test.change(n)
			s := cluster()
			spec, conflict := Connect(granted, slices.Concat(s.Pods, s.Services), nil, n)
			if test.conflict != "" {
				if conflict == nil {
					t.Fatal("no conflict")
				}
				expectConflicts(t, []string{test.conflict}, []Conflict{*conflict})
				return
			}
			if conflict != nil {
				t.Fatalf("conflict %+v", conflict)
			}
			// What the gateway reads is what was decided.
			want := hamburg()
			want.TheirDirect, want.OurDirect = granted.Direct, of3rd("c-riga", "10.244.0.0/16=240.80.0.0/16")
			want.Behind = of3rd("c-riga", "10.50.0.0/16=100.71.0.0/16")
			if diff := cmp.Diff(want, PeerOf("hamburg", spec), byText); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, conflict := Connect(granted, nil, nil, nil); conflict == nil || conflict.Reason != v1alpha1.ReasonNoPeerGateway {
		t.Errorf("without a word about the network: conflict %+v", conflict)
	}
}

func expectOneToOne(t *testing.T, all []Direct) {
	t.Helper()
	for _, d := range all {
		for _, m := range slices.Concat(d.In.Sources, d.In.Destinations, d.Out.Sources, d.Out.Destinations) {
			if !m.wellFormed() {
				t.Fatalf("%v of %+v is not one to one", m, d)
			}
		}
	}
}

// Whatever a peer tells of its network, our own ranges and the other peer stay as they are.
func FuzzNetwork(f *testing.F) {
	for _, n := range []*v1alpha1.Network{told(), {PodCIDRs: []v1alpha1.CIDR{"0.0.0.0/0", "::/0"}, Gateway: &v1alpha1.Gateway{}}} {
		seed, err := json.Marshal(n)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed)
	}
	s := cluster()
	own := slices.Concat(s.Pods, s.Services)
	riga := func() Peer {
		p := riga()
		p.ClusterID, p.Behind, p.Answers = "c-riga", of3rd("c-bad", "10.244.0.0/16=10.60.0.0/16"), true
		p.OurDirect = of3rd("c-bad", "10.244.0.0/16=240.48.0.0/16")
		return p
	}
	s.Peers = []Peer{riga()}
	alone, _ := Plan(s)
	known := Request{Peer: "riga", Has: riga().Theirs}
	f.Fuzz(func(t *testing.T, text []byte) {
		n := &v1alpha1.Network{}
		if json.Unmarshal(text, n) != nil {
			return
		}
		grants, _ := Allocate(own, DefaultPools(), []Request{{Peer: "bad", Pods: Ranges(n.PodCIDRs), Services: Ranges(n.ServiceCIDRs), Relayed: Ranges(n.RelayedCIDRs), Homes: []string{"c-riga"}}, known})
		spec, conflict := Connect(grants[0], own, prefixes("10.50.0.0/16"), n)
		if conflict != nil {
			return
		}
		s := s
		spec.ClusterID = "c-bad"
		s.Peers = []Peer{PeerOf("bad", spec), riga()}
		s.Peers[0].Answers = true
		layout, _ := Plan(s)
		expectOneToOne(t, layout.Direct)
		for _, p := range layout.Blackholes {
			if _, clash := newSpace(own...).overlapping(p); clash {
				t.Fatalf("%s is ours", p)
			}
		}
		at := slices.IndexFunc(layout.Tunnels, func(tunnel Tunnel) bool { return tunnel.Peer == "riga" })
		taken := at < 0 && spec.PublicKey == keyText(riga().PublicKey) // the manager lets nobody have the key of another
		if !taken && (at < 0 || !cmp.Equal(alone.Tunnels[0], layout.Tunnels[at], byText)) {
			t.Fatalf("riga has %+v, and %+v alone", layout.Tunnels, alone.Tunnels[0])
		}
	})
}
