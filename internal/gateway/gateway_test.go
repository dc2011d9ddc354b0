// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"crypto/ecdh"
	"encoding/base64"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/kernel"
	"github.com/hanse-dev/hanse/internal/overlay"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// fakePlane has the tunnels that it was last told of, and remembers what it was asked to do.
type fakePlane struct {
	layout    overlay.Layout
	identity  kernel.Identity
	states    []kernel.TunnelState
	applied   int
	dialled   int
	again     time.Time // when to dial again
	removed   int
	redialled []string
	failure   error
	failure6  error
}

func (p *fakePlane) Apply(identity kernel.Identity, layout overlay.Layout) error {
	p.identity, p.layout = identity, layout
	p.applied++
	return p.failure
}

func (p *fakePlane) Forward6() error { return p.failure6 }

func (p *fakePlane) Dial(time.Time) (time.Time, error) {
	p.dialled++
	return p.again, nil
}

func (p *fakePlane) Redial(peer string, _ time.Time) error {
	p.redialled = append(p.redialled, peer)
	return nil
}

func (p *fakePlane) Tunnels() ([]kernel.TunnelState, error) { return p.states, nil }

func (p *fakePlane) Remove() error {
	p.removed++
	return nil
}

// A story is a gateway in a cluster that has one peer, hamburg.
type story struct {
	*testkit.World
	gateway *Gateway
	plane   *fakePlane
}

func newStory(t *testing.T, more ...client.Object) *story {
	t.Helper()
	private := [32]byte{1, 2, 3}
	key, err := ecdh.X25519().NewPrivateKey(private[:])
	if err != nil {
		t.Fatal(err)
	}
	data, err := exchange.NetworkData(&exchange.OwnNetwork{Network: v1alpha1.Network{
		// No addresses of Services: nothing can listen at them here.
		PodCIDRs: []v1alpha1.CIDR{"10.244.0.0/16"},
		Gateway:  &v1alpha1.Gateway{PublicKey: base64.StdEncoding.EncodeToString(key.PublicKey().Bytes())},
	}})
	if err != nil {
		t.Fatal(err)
	}
	system := metav1.ObjectMeta{Namespace: "hanse-system"}
	own, secret := &corev1.ConfigMap{ObjectMeta: system, Data: data}, &corev1.Secret{ObjectMeta: system}
	own.Name, secret.Name = v1alpha1.OwnNetwork, v1alpha1.GatewayName
	secret.Data = map[string][]byte{v1alpha1.GatewaySecretKey: []byte(base64.StdEncoding.EncodeToString(private[:]))}
	hamburg := connectionTo("hamburg", 9, "100.64.0.0/16", "100.64.0.1")
	active, other := gatewayPod("gateway-1"), gatewayPod("gateway-2")
	other.Labels = map[string]string{v1alpha1.LabelGateway: v1alpha1.ActiveGateway}
	w := testkit.NewWorld(t, append([]client.Object{own, secret, hamburg, active, other}, more...)...)
	p := &fakePlane{}
	g := New(Config{
		Namespace: "hanse-system", Pod: "gateway-1", Node: "n1", Addresses: []netip.Addr{netip.MustParseAddr("10.244.1.3")}, Clock: w.Clock,
	}, w.Home.Client, w.Home.Client, p)
	return &story{w, g, p}
}

// connectionTo is what the gateway is told of a peer whose key begins with that byte.
func connectionTo(peer string, key byte, seen v1alpha1.CIDR, gateway v1alpha1.IP) *v1alpha1.Connection {
	return &v1alpha1.Connection{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(peer), Name: v1alpha1.ConnectionName, UID: "c"},
		Spec: v1alpha1.ConnectionSpec{
			PublicKey:        base64.StdEncoding.EncodeToString(append([]byte{key}, make([]byte, 31)...)),
			Endpoints:        []v1alpha1.HostPort{"203.0.113.7:51820"},
			Theirs:           []v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: seen}},
			Ours:             []v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: "100.65.0.0/16"}},
			GatewayAddresses: []v1alpha1.IP{gateway},
		},
	}
}

func gatewayPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-system-network", Name: name}}
}

// step has a gateway do what is due after that time.
func (s *story) step(after time.Duration) error {
	s.Helper()
	s.Clock.Step(after)
	return s.gateway.step(s.Context())
}

func (s *story) mustStep(after time.Duration) {
	s.Helper()
	if err := s.step(after); err != nil {
		s.Fatal(err)
	}
}

// answers has the gateway of hamburg answer, or not, for a few seconds.
func (s *story) answers(yes bool) {
	s.answersFrom(func(at netip.Addr) bool { return yes && at == netip.MustParseAddr("100.64.0.1") })
}

// answersFrom has those gateways answer for a few seconds.
func (s *story) answersFrom(answers func(at netip.Addr) bool) {
	for range 7 {
		s.Clock.Step(probeInterval)
		for _, r := range s.gateway.probes.requests() {
			if r.size == 0 && answers(r.to) {
				s.gateway.probes.ways[r.to].receive(r.sequence, s.Clock.Now())
			}
		}
	}
}

func (s *story) says(status metav1.ConditionStatus, reason string) {
	s.Helper()
	c := testkit.Get[v1alpha1.Connection](s.Home, "hanse-peer-hamburg", "hanse")
	testkit.ExpectCondition(s, c.Status.Conditions, v1alpha1.ConditionConnected, status, reason)
}

func TestAStandbyDoesNothing(t *testing.T) {
	s := newStory(t)
	s.mustStep(0)
	if s.plane.applied+s.plane.dialled+s.plane.removed != 0 {
		t.Errorf("it did something: %+v", s.plane)
	}
}

func TestTheActiveGatewayConnectsAndSaysSo(t *testing.T) {
	s := newStory(t)
	s.activate()
	s.mustStep(0)
	if len(s.plane.layout.Tunnels) != 1 || s.plane.identity.PrivateKey[0] != 1 || s.plane.identity.Port != 51820 {
		t.Fatalf("got %+v as %+v", s.plane.layout, s.plane.identity)
	}
	s.serviceLeadsHere()
	said := testkit.Get[corev1.ConfigMap](s.Home, "hanse-system-network", "hanse-gateway").Data["active"]
	if diff := cmp.Diff(`{"pod":"gateway-1","node":"n1","addresses":["10.244.1.3"],"mtu":0}`, said); diff != "" {
		t.Errorf("what nodes are told (-want +got):\n%s", diff)
	}
	s.says(metav1.ConditionFalse, v1alpha1.ReasonPending)

	s.plane.states = []kernel.TunnelState{{Peer: "hamburg", Handshake: s.Clock.Now()}}
	s.answers(true)
	s.mustStep(lookAfter)
	s.says(metav1.ConditionTrue, v1alpha1.ReasonReady)

	s.answers(false)
	s.activate()
	s.mustStep(0)
	s.says(metav1.ConditionFalse, v1alpha1.ReasonTunnelDown)
	s.answers(false)
	s.activate()
	s.mustStep(0)
	s.mustStep(lookAfter)
	if diff := cmp.Diff([]string{"hamburg"}, s.plane.redialled); diff != "" {
		t.Errorf("dialled again (-want +got):\n%s", diff)
	}
}

// serviceLeadsHere expects this gateway alone to have the label by which the Service finds it.
func (s *story) serviceLeadsHere() {
	s.Helper()
	labels := map[string]string{}
	for _, name := range []string{"gateway-1", "gateway-2"} {
		labels[name] = testkit.Get[corev1.Pod](s.Home, "hanse-system-network", name).Labels[v1alpha1.LabelGateway]
	}
	if diff := cmp.Diff(map[string]string{"gateway-1": "active", "gateway-2": ""}, labels); diff != "" {
		s.Errorf("labels (-want +got):\n%s", diff)
	}
}

// Another gateway that was active until now puts the label on itself late, or takes it off this one and is gone.
func TestTheServiceLeadsHereAgainAfterAnotherGatewayHasLabelledPods(t *testing.T) {
	s := newStory(t)
	s.activate()
	s.mustStep(0)
	for name, value := range map[string]string{"gateway-1": "", "gateway-2": v1alpha1.ActiveGateway} {
		pod := testkit.Get[corev1.Pod](s.Home, "hanse-system-network", name)
		pod.Labels = map[string]string{v1alpha1.LabelGateway: value}
		if err := s.Home.Client.Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	s.activate()
	s.mustStep(planAfter)
	s.serviceLeadsHere()
}

func TestAPeerThatFallsSilentIsToldWithinThreeSeconds(t *testing.T) {
	s := newStory(t)
	s.activate()
	s.mustStep(0)
	s.answers(true)
	s.mustStep(deadAfter%lookAfter - 10*time.Millisecond) // so that it is judged just before it counts as dead
	for range 11 {
		s.activate()
		s.mustStep(beat)
	}
	s.says(metav1.ConditionFalse, v1alpha1.ReasonTunnelDown)
}

func TestNothingIsDoneWhileNothingChanges(t *testing.T) {
	s := newStory(t)
	s.activate()
	s.mustStep(0)
	s.mustStep(lookAfter)
	applied, writes := s.plane.applied, 0
	s.Home.Before(func(testkit.Write) error {
		writes++
		return nil
	})
	for range 20 {
		s.mustStep(beat)
	}
	if s.plane.applied != applied || writes != 0 {
		t.Errorf("the plan was applied %d times more, and there were %d writes", s.plane.applied-applied, writes)
	}
}

func TestAnotherGatewayThatIsActiveEndsThisOne(t *testing.T) {
	s := newStory(t)
	s.activate()
	s.mustStep(0)
	s.gateway.lease.held.Store(false)
	s.mustStep(0)
	s.mustStep(time.Minute)
	if s.plane.removed != 1 || s.plane.applied != 1 {
		t.Errorf("removed %d times, applied %d times", s.plane.removed, s.plane.applied)
	}
}

func TestAGatewayThatIsCutOffGivesUpWhenAnotherOneIsAnswered(t *testing.T) {
	tests := map[string]struct {
		renews, answered, active bool
	}{
		"the lease is renewed, and peers answer":                              {true, true, true},
		"the lease is renewed, and all peers are dead":                        {true, false, true},
		"the API server is away, so that nobody takes over":                   {false, true, true},
		"the API server is away for this one, and peers answer the other one": {false, false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			away := false
			s.Home.Before(func(testkit.Write) error {
				if away {
					return errors.New("the API server is away")
				}
				return nil
			})
			s.activate()
			s.mustStep(0)
			s.plane.states = []kernel.TunnelState{{Peer: "hamburg", Handshake: s.Clock.Now()}}
			s.answers(true)
			s.mustStep(0)

			away = !test.renews
			s.answers(test.answered)
			_ = s.gateway.lease.step(s.Context())
			_ = s.step(0)
			s.expectActive(test.active)
			if !test.active && len(s.plane.redialled) > 0 {
				t.Error("peers are taken away from the other one")
			}

			away = false
			s.activate()
			s.mustStep(lookAfter)
			s.expectActive(true)
		})
	}
}

// One of two peers may notice the other gateway a moment later. Until then the first must not be dialled again, since it would come back.
func TestPeersAreNotDialledAgainWhileAnotherOneMayHaveTakenOver(t *testing.T) {
	for renews, want := range map[bool][]string{true: {"bremen"}, false: nil} {
		s := newStory(t, connectionTo("bremen", 8, "100.66.0.0/16", "100.66.0.1"))
		s.activate()
		s.mustStep(0)
		for _, peer := range []string{"hamburg", "bremen"} {
			s.plane.states = append(s.plane.states, kernel.TunnelState{Peer: peer, Handshake: s.Clock.Now()})
		}
		s.answers(true)
		s.answers(true)
		if renews {
			s.activate()
		}
		s.mustStep(0)
		s.expectActive(true)
		if diff := cmp.Diff(want, s.plane.redialled); diff != "" {
			t.Errorf("the lease is renewed: %t; dialled again (-want +got):\n%s", renews, diff)
		}
	}
}

// activate has the gateway renew the lease, or take it.
func (s *story) activate() {
	s.Helper()
	if err := s.gateway.lease.step(s.Context()); err != nil {
		s.Fatal(err)
	}
}

func (s *story) expectActive(yes bool) {
	s.Helper()
	if held, works := s.gateway.lease.held.Load(), s.gateway.active.network.Own != nil; held != yes || works != yes {
		s.Errorf("it believes that it is active: %t, and has tunnels: %t, want %t", held, works, yes)
	}
}

func TestWhatCannotBeSetUpIsToldAndTriedAgain(t *testing.T) {
	s := newStory(t)
	s.activate()
	s.plane.failure = errors.New("broken")
	if err := s.step(0); !errors.Is(err, s.plane.failure) {
		t.Errorf("got %v", err)
	}
	_ = s.step(retryAfter)
	s.says(metav1.ConditionFalse, v1alpha1.ReasonTunnelDown)
	s.plane.failure = nil
	s.mustStep(retryAfter)
	if s.plane.applied != 3 {
		t.Errorf("applied %d times", s.plane.applied)
	}
}

func TestNewPeersAreDialledAsSoonAsTheyArePlanned(t *testing.T) {
	s := newStory(t)
	s.activate()
	s.mustStep(0)
	dialled := s.plane.dialled
	s.gateway.changed()
	s.mustStep(beat)
	if s.plane.dialled != dialled+1 {
		t.Errorf("after a new plan peers were dialled %d times, want 1", s.plane.dialled-dialled)
	}
	s.mustStep(lookAfter - beat)
	s.mustStep(beat)
	if s.plane.dialled != dialled+2 {
		t.Errorf("%v after it they were dialled %d times, want 2", lookAfter, s.plane.dialled-dialled)
	}
}

// Hamburg and bremen are providers of lubeck, which this cluster, a third one, is too.
func TestPodsOfAHomeAreLedDirectlyWhileTheOtherProviderAnswers(t *testing.T) {
	third := func(id string, own, seen v1alpha1.CIDR) []v1alpha1.ClusterRange {
		return []v1alpha1.ClusterRange{{ClusterID: id, RangeMapping: v1alpha1.RangeMapping{Own: own, Seen: seen}}}
	}
	home := &v1alpha1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-peer-lubeck", Name: "hanse", UID: "d"}, Spec: v1alpha1.ConnectionSpec{
		ClusterID: "c-lubeck", PublicKey: base64.StdEncoding.EncodeToString(append([]byte{8}, make([]byte, 31)...)),
		Theirs: []v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: "100.70.0.0/16"}, {Own: "100.71.0.0/16", Seen: "100.72.0.0/16"}},
		Ours:   []v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: "100.73.0.0/16"}},
		Behind: third("c-hamburg", "10.244.0.0/16", "100.71.0.0/16"),
	}}
	s := newStory(t, home)
	hamburg := &v1alpha1.Connection{}
	s.Home.Get(hamburg, "hanse-peer-hamburg", "hanse")
	hamburg.Spec.ClusterID, hamburg.Spec.OurDirect = "c-hamburg", third("c-lubeck", "10.244.0.0/16", "240.0.0.0/16")
	s.Home.Put(hamburg)
	s.gateway.lease.held.Store(true)
	direct := func() []string {
		c := &v1alpha1.Connection{}
		s.Home.Get(c, "hanse-peer-hamburg", "hanse")
		return c.Status.Direct
	}
	for _, answers := range []bool{false, true, false} {
		s.mustStep(0)
		s.answers(answers)
		s.mustStep(lookAfter) // sees it
		s.mustStep(lookAfter) // acts
		s.mustStep(lookAfter) // says so
		led := len(s.plane.layout.Direct) > 0 && len(s.plane.layout.Direct[0].Out.Sources) > 0
		if said := len(direct()) == 1 && direct()[0] == "lubeck"; led != answers || said != answers {
			t.Errorf("while it is %t that hamburg answers, it is %t that pods of lubeck are led there, and %t that this is said", answers, led, said)
		}
	}
}

func TestPeersAreDialledAgainWhenTheyAreDue(t *testing.T) {
	s := newStory(t)
	s.activate()
	s.plane.again = s.Clock.Now().Add(2 * beat)
	s.mustStep(0)
	dialled := s.plane.dialled
	s.mustStep(beat)
	if s.plane.dialled != dialled {
		t.Error("peers are dialled before they are due")
	}
	s.plane.again = time.Time{}
	s.mustStep(beat)
	s.mustStep(beat)
	if s.plane.dialled != dialled+1 {
		t.Errorf("peers were dialled %d times, want 1", s.plane.dialled-dialled)
	}
}
