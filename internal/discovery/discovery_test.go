// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestAnnouncementsAreReadStrictly(t *testing.T) {
	tests := map[string]struct {
		fields []string
		want   Announcement
		bad    bool
	}{
		"as we say it":      {fields: Announcement{"hamburg", []string{"https://h:6443"}}.fields(), want: Announcement{"hamburg", []string{"https://h:6443"}}},
		"only an id":        {fields: []string{"id=hamburg"}, want: Announcement{ClusterID: "hamburg"}},
		"unknown fields":    {fields: []string{"mood=good", "id=hamburg", ""}, want: Announcement{ClusterID: "hamburg"}},
		"no id":             {fields: []string{"server=https://h:6443"}, bad: true},
		"an id with a dot":  {fields: []string{"id=a.b"}, bad: true},
		"a long id":         {fields: []string{"id=" + strings.Repeat("x", 31)}, bad: true},
		"plain http":        {fields: []string{"id=a", "server=http://h"}, bad: true},
		"a user in the URL": {fields: []string{"id=a", "server=https://u@h"}, bad: true},
		"a long server":     {fields: []string{"id=a", "server=https://" + strings.Repeat("h", 300)}, bad: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parse(test.fields)
			if errors.Is(err, errAnnouncement) != test.bad {
				t.Fatalf("got error %v", err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" && !test.bad {
				t.Error(diff)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("id=hamburg", "server=https://h:6443")
	f.Fuzz(func(t *testing.T, a, b string) {
		found, err := parse([]string{a, b})
		if err != nil {
			return
		}
		again, err := parse(found.fields())
		if diff := cmp.Diff(found, again); diff != "" || err != nil {
			t.Errorf("%v: %s", err, diff)
		}
	})
}

// sourceOf finds what a test says.
type sourceOf struct {
	found []Announcement
	err   error
}

func (s *sourceOf) find(context.Context) ([]Announcement, error) { return s.found, s.err }

type world struct {
	*Discovery
	t      *testing.T
	client client.WithWatch
	clock  *clocktesting.FakeClock
	net    *sourceOf
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)), net: &sourceOf{},
		client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.Peer{}).Build(),
	}
	config := Config{Self: Announcement{ClusterID: "lubeck"}, Domains: []string{"example.com"}, MaxPeers: 3, Clock: w.clock}
	w.Discovery = New(config, w.client)
	w.sources = []source{w.net}
	return w
}

// look looks once and returns the Peers that there are then.
func (w *world) look(found ...Announcement) map[string]v1alpha1.Peer {
	w.t.Helper()
	w.net.found = found
	if err := w.Discovery.look(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	list := &v1alpha1.PeerList{}
	if err := w.client.List(w.t.Context(), list); err != nil {
		w.t.Fatal(err)
	}
	peers := map[string]v1alpha1.Peer{}
	for _, peer := range list.Items {
		peers[peer.Name] = peer
	}
	return peers
}

func TestFoundClustersBecomePeersWithoutRoles(t *testing.T) {
	w := newWorld(t)
	peers := w.look(Announcement{"hamburg", []string{"https://b:1", "https://a:1"}}, Announcement{ClusterID: "lubeck"},
		Announcement{"hamburg", []string{"https://a:1"}})
	if len(peers) != 1 {
		t.Fatalf("got %v", peers)
	}
	hamburg := peers["hamburg"]
	if hamburg.Spec.ClusterID != "hamburg" || len(hamburg.Spec.Roles) > 0 || hamburg.Spec.PublicKey != "" {
		t.Errorf("got %+v", hamburg.Spec)
	}
	if diff := cmp.Diff([]string{"https://a:1", "https://b:1"}, hamburg.Status.DiscoveredServers); diff != "" {
		t.Error(diff)
	}
	version := hamburg.ResourceVersion
	again := w.look(Announcement{"hamburg", []string{"https://a:1", "https://b:1"}})["hamburg"]
	if again.ResourceVersion != version {
		t.Error("it was written though nothing changed")
	}
}

func TestAPeerOfAnAdministratorIsLeftAlone(t *testing.T) {
	accepted := &v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: "partner"},
		Spec:       v1alpha1.PeerSpec{ClusterID: "hamburg", Roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider}},
	}
	taken := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "bremen"}, Spec: v1alpha1.PeerSpec{ClusterID: "other"}}
	w := newWorld(t, accepted, taken)
	peers := w.look(Announcement{"hamburg", []string{"https://liar:1"}}, Announcement{"bremen", nil})
	if len(peers) != 2 || len(peers["partner"].Status.DiscoveredServers) > 0 || peers["bremen"].Spec.ClusterID != "other" {
		t.Errorf("got %+v", peers)
	}
	w.clock.Step(3 * time.Hour)
	if peers := w.look(); len(peers["partner"].Spec.Roles) != 1 {
		t.Error("an accepted peer was forgotten")
	}
}

func TestWhoIsNotSeenAnyMoreIsForgotten(t *testing.T) {
	w := newWorld(t)
	w.look(Announcement{ClusterID: "hamburg"})
	w.clock.Step(59 * time.Minute)
	if peers := w.look(); len(peers) != 1 {
		t.Error("it was forgotten too early")
	}
	w.clock.Step(time.Minute)
	if peers := w.look(); len(peers) != 0 {
		t.Errorf("got %v", peers)
	}
}

func TestNobodyFillsTheClusterWithPeers(t *testing.T) {
	w := newWorld(t)
	var many []Announcement
	for i := range 50 {
		many = append(many, Announcement{ClusterID: fmt.Sprintf("a%02d", i)})
	}
	w.look(many[25:]...)
	if peers := w.look(many...); len(peers) != 3 {
		t.Errorf("got %d peers", len(peers))
	}
}

func TestABrokenSourceDoesNotStopTheOthers(t *testing.T) {
	w := newWorld(t)
	w.sources = []source{&sourceOf{err: errors.New("no network")}, w.net}
	if peers := w.look(Announcement{ClusterID: "hamburg"}); len(peers) != 1 {
		t.Errorf("got %v", peers)
	}
}

// records are the answers of a DNS server.
type records struct {
	srv []*net.SRV
	txt map[string][]string
	err error
}

func (r records) LookupSRV(context.Context, string, string, string) (string, []*net.SRV, error) {
	return "", r.srv, r.err
}

func (r records) LookupTXT(_ context.Context, name string) ([]string, error) {
	if txt, ok := r.txt[name]; ok {
		return txt, nil
	}
	return nil, &net.DNSError{IsNotFound: true}
}

func TestClustersOfADomain(t *testing.T) {
	d := &domain{name: "example.com", resolver: records{
		srv: []*net.SRV{{Target: "k8s.hamburg.example.com.", Port: 6443}, {Target: "silent.example.com.", Port: 1}},
		txt: map[string][]string{"_hanse._tcp.k8s.hamburg.example.com.": {"id=hamburg"}},
	}}
	found, err := d.find(t.Context())
	if err == nil {
		t.Error("the target without an id is not complained about")
	}
	want := []Announcement{{"hamburg", []string{"https://k8s.hamburg.example.com:6443"}}}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Error(diff)
	}
	d.resolver = records{err: &net.DNSError{IsNotFound: true}}
	if found, err := d.find(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("a domain without clusters: %v, %v", found, err)
	}
}
