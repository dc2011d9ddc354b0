// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
	"github.com/hanse-dev/hanse/internal/trust"
)

const (
	request = "hand-over.wismar-id" // the Message of lubeck
	answer  = "answer.lubeck-id"    // that of wismar
)

// newHandOver is a world in which the members know each other, wismar lets members become consumers whose id begins with lub, and
// lubeck wants to be one.
func newHandOver(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.rounds(2)
	testkit.Change(w.wismar.Cluster, "", "hamburg", func(p *v1alpha1.Peer) { p.Spec.AcceptMembers = []string{"lub*"} })
	wanted := testkit.Peer("wismar", v1alpha1.RoleProvider)
	wanted.Spec.Introducer = "hamburg"
	w.lubeck.Put(wanted)
	return w
}

// invites puts where wismar's manager would put it an invitation for lubeck, changed by the functions.
func (w *world) invites(changes ...func(*trust.Invitation)) string {
	w.Helper()
	invitation := &trust.Invitation{
		ID: "i-1", ClusterID: "wismar-id", PublicKey: trust.PublicKeyOf(w.wismar.key), Servers: []string{"https://wismar.example:6443"},
		Namespace: "hanse-peer-lubeck-id", Token: "secret", Expires: w.Clock.Now().Add(time.Hour),
	}
	for _, change := range changes {
		change(invitation)
	}
	text, err := invitation.Format()
	if err != nil {
		w.Fatal(err)
	}
	w.wismar.Put(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace("lubeck-id"), Name: v1alpha1.InvitationSecret},
		Data:       map[string][]byte{v1alpha1.InvitationToken: []byte(text)},
	})
	return text
}

func (w *world) expectAsked(status metav1.ConditionStatus, reason string, texts ...string) {
	w.Helper()
	w.expectIntroduced(w.lubeck, "wismar", status, reason, texts...)
}

// consumer is the Peer that wismar has of lubeck, nil if there is none.
func (w *world) consumer() *v1alpha1.Peer {
	w.Helper()
	peer := &v1alpha1.Peer{}
	if !w.wismar.Find(peer, "", "lubeck-id") {
		return nil
	}
	return peer
}

// usesInvitation returns what lubeck has in Secret hanse-join for wismar.
func (w *world) usesInvitation() string {
	w.Helper()
	secret := &corev1.Secret{}
	w.lubeck.Find(secret, v1alpha1.TenantNamespace("wismar"), v1alpha1.JoinSecret)
	return string(secret.Data[v1alpha1.InvitationToken])
}

func TestAHandOver(t *testing.T) {
	w := newHandOver(t)
	w.looks(w.lubeck)
	w.expectAsked(metav1.ConditionFalse, v1alpha1.ReasonPending, "is asked")
	if got := testkit.Get[v1alpha1.Peer](w.lubeck.Cluster, "", "wismar").Spec.PublicKey; got != trust.PublicKeyOf(w.wismar.key) {
		t.Errorf("the Peer stands for the cluster with key %q", got)
	}
	w.looks(w.lubeck)
	w.expectAsked(metav1.ConditionFalse, v1alpha1.ReasonPending, "was asked")

	w.relays()
	if again := w.looks(w.wismar); again != lookSoon {
		t.Errorf("wismar waits for its invitation until %s later, want %s", again, lookSoon)
	}
	let := w.consumer()
	want := v1alpha1.PeerSpec{
		ClusterID: "lubeck-id", PublicKey: trust.PublicKeyOf(w.lubeck.key),
		Roles: []v1alpha1.PeerRole{v1alpha1.RoleConsumer}, Invitation: &v1alpha1.PeerInvitation{},
	}
	if diff := cmp.Diff(want, let.Spec); diff != "" || let.Annotations[v1alpha1.AnnotationIntroducedBy] != "hamburg" {
		t.Errorf("the Peer at wismar is introduced by %q (-want +got):\n%s", let.Annotations[v1alpha1.AnnotationIntroducedBy], diff)
	}
	text := w.invites()
	w.rounds(2)
	if got := w.usesInvitation(); got != text {
		t.Errorf("lubeck uses the invitation %q", got)
	}
	if got := testkit.Get[v1alpha1.Peer](w.lubeck.Cluster, "", "wismar").Annotations[v1alpha1.AnnotationJoin]; got != "i-1" {
		t.Errorf("the manager of lubeck is told of invitation %q", got)
	}
	w.expectAsked(metav1.ConditionFalse, v1alpha1.ReasonPending, "is being used")
	w.lubeck.Writes()
	w.looks(w.lubeck)
	w.lubeck.ExpectWrites() // it is used once

	testkit.Change(w.lubeck.Cluster, "", "wismar", func(p *v1alpha1.Peer) {
		testkit.SetCondition(&p.Status.Conditions, v1alpha1.ConditionSession, metav1.ConditionTrue, "Joined")
	})
	w.rounds(2)
	w.expectAsked(metav1.ConditionTrue, v1alpha1.ReasonIntroduced)
	if w.said(tenantOf(w.lubeck), request) != nil {
		t.Error("what was asked still lies at the broker")
	}
	w.Clock.Step(handOverLife)
	w.rounds(2)
	if w.said(tenantOf(w.wismar), answer) != nil {
		t.Error("what was answered still lies at the broker")
	}
}

func TestWhyThereIsNoInvitation(t *testing.T) {
	changeWanted := func(change func(*v1alpha1.Peer)) func(*world) {
		return func(w *world) { testkit.Change(w.lubeck.Cluster, "", "wismar", change) }
	}
	for name, test := range map[string]struct {
		change func(w *world)
		reason string
		texts  []string
	}{
		"it is not known": {changeWanted(func(p *v1alpha1.Peer) { p.Spec.ClusterID = "visby-id" }), v1alpha1.ReasonUnknownMember, []string{"visby-id", "get members"}},
		"no broker names it any more": {func(w *world) {
			w.broker.Refuse("create Message wismar-id", noQuota)
			w.broker.Remove(w.introduction(w.wismar))
		}, v1alpha1.ReasonNotHeard, []string{"wismar-id", "get members"}},
		"it has another key": {changeWanted(func(p *v1alpha1.Peer) { p.Spec.PublicKey = trust.PublicKeyOf(keyOf("x")) }), v1alpha1.ReasonKeyMismatch, []string{"administrator"}},
		"it does not want to": {func(w *world) {
			testkit.Change(w.wismar.Cluster, "", "hamburg", func(p *v1alpha1.Peer) { p.Spec.AcceptMembers = []string{"lub", "xlubeck-id"} })
		}, v1alpha1.ReasonNotAccepted, []string{"acceptMembers"}},
		"it has not decided": {func(*world) {}, v1alpha1.ReasonPending, []string{"has not answered"}},
		"it is not asked":    {func(w *world) { w.broker.Refuse("create Message lubeck-id."+request, noQuota) }, v1alpha1.ReasonPending, []string{"does not bring", "no room"}},
		"the invitation is for somebody else's cluster": {
			func(w *world) { w.invites(func(i *trust.Invitation) { i.ClusterID = "visby-id" }) }, v1alpha1.ReasonMalformed, []string{"another cluster"},
		},
		"the invitation is too large": {
			func(w *world) { w.invites(func(i *trust.Invitation) { i.Token = strings.Repeat("x", 12_000) }) }, v1alpha1.ReasonNotAccepted, []string{"too large", "hanse invite"},
		},
		"the invitation has another key": {
			func(w *world) {
				w.invites(func(i *trust.Invitation) { i.PublicKey = trust.PublicKeyOf(keyOf("x")) })
			}, v1alpha1.ReasonMalformed, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHandOver(t)
			test.change(w)
			w.rounds(3)
			w.expectAsked(metav1.ConditionFalse, test.reason, test.texts...)
			if got := w.usesInvitation(); got != "" {
				t.Errorf("lubeck uses %q", got)
			}
		})
	}
}

func TestWhomAMemberDoesNotInvite(t *testing.T) {
	w := newHandOver(t)
	from := w.wismar.knows("lubeck-id")
	known := func(change func(*v1alpha1.Peer)) v1alpha1.Peer {
		peer := testkit.Peer("lubeck", v1alpha1.RoleConsumer)
		peer.Spec.PublicKey, peer.Spec.Invitation = from.Spec.PublicKey, &v1alpha1.PeerInvitation{}
		change(peer)
		return *peer
	}
	for name, test := range map[string]struct {
		peer   v1alpha1.Peer
		accept string
		want   bool // that it is invited
	}{
		"one that is accepted":          {v1alpha1.Peer{}, "lubeck-id", true},
		"by a pattern":                  {v1alpha1.Peer{}, "*", true},
		"by none":                       {v1alpha1.Peer{}, "", false},
		"by one of another":             {v1alpha1.Peer{}, "lubeck", false},
		"whose Peer was made for it":    {known(func(*v1alpha1.Peer) {}), "", true},
		"which is known by another key": {known(func(p *v1alpha1.Peer) { p.Spec.PublicKey = "x" }), "*", false},
		"which is known without a key":  {known(func(p *v1alpha1.Peer) { p.Spec.PublicKey = "" }), "*", false},
		"which is a provider":           {known(func(p *v1alpha1.Peer) { p.Spec.Roles = []v1alpha1.PeerRole{v1alpha1.RoleProvider} }), "*", false},
		"which was not invited":         {known(func(p *v1alpha1.Peer) { p.Spec.Invitation = nil }), "*", false},
		"which was only discovered":     {known(func(p *v1alpha1.Peer) { p.Name, p.Spec.Roles = "lubeck-id", nil }), "*", true},
		"by another key than here":      {known(func(p *v1alpha1.Peer) { p.Name, p.Spec.Roles, p.Spec.PublicKey = "lubeck-id", nil, "x" }), "*", false},
		"which is just being left":      {known(func(p *v1alpha1.Peer) { p.DeletionTimestamp = &metav1.Time{Time: testkit.Noon} }), "*", false},
		"which was left by that name": {known(func(p *v1alpha1.Peer) {
			p.Name, p.Spec.Roles, p.DeletionTimestamp = "lubeck-id", nil, &metav1.Time{Time: testkit.Noon}
		}), "*", false},
		"whose name another peer has": {known(func(p *v1alpha1.Peer) { p.Name, p.Spec.ClusterID = "lubeck-id", "visby-id" }), "*", false},
		"which is a consumer since long": {known(func(p *v1alpha1.Peer) {
			testkit.SetCondition(&p.Status.Conditions, v1alpha1.ConditionJoined, metav1.ConditionTrue, "Joined")
		}), "*", false},
	} {
		t.Run(name, func(t *testing.T) {
			broker := testkit.Peer("hamburg", v1alpha1.RoleBroker)
			if test.accept != "" {
				broker.Spec.AcceptMembers = []string{test.accept}
			}
			seen := &scene{broker: broker, peers: []v1alpha1.Peer{*broker, test.peer}}
			why := w.wismar.objection(seen, from, peerOf(seen.peers, from.Name))
			if (why == "") != test.want {
				t.Errorf("the objection is %q", why)
			}
		})
	}
}

// An administrator who has deleted the Peer decides that; the broker can say the request again as often as it likes.
func TestARequestIsTakenInOnce(t *testing.T) {
	w := newHandOver(t)
	w.invites()
	w.rounds(2)
	w.looks(w.wismar)
	asked := w.said(tenantOf(w.wismar), "lubeck-id."+request)
	w.wismar.Remove(w.consumer())
	w.broker.Remove(w.said(tenantOf(w.wismar), answer))
	w.rounds(2)
	if w.consumer() != nil || w.said(tenantOf(w.wismar), answer) != nil {
		t.Error("a request that was answered has made a Peer, or was answered again")
	}

	testkit.Change(w.lubeck.Cluster, "", "wismar", func(p *v1alpha1.Peer) { p.Spec.Introducer = "" }) // it asks no more by itself
	asks := func(sealingKey string) {
		w.Clock.Step(time.Minute)
		w.says(w.lubeck.key, tenantOf(w.lubeck), request, ask(w.lubeck, w.wismar, w.Clock.Now().UnixNano()), trust.HandOverRequest{SealingKey: sealingKey})
		w.relays()
	}
	asks("x")
	w.expectRefused(func() { w.looks(w.wismar) }, v1alpha1.ReasonMalformed) // nothing can be sealed to that
	w.wismar.Remove(w.consumer())
	asks(trust.SealingKey{1}.Public())
	w.looks(w.wismar)
	if w.consumer() == nil {
		t.Error("a new request makes no Peer")
	}
	w.wismar.Remove(w.consumer())
	again := w.said(tenantOf(w.wismar), "lubeck-id."+request)
	again.Spec = asked.Spec
	w.broker.Put(again)
	w.expectRefused(func() { w.looks(w.wismar); w.looks(w.wismar) }, v1alpha1.ReasonStale)
	if w.consumer() != nil {
		t.Error("an old request has made a Peer")
	}
}

// What a mirror shows may be old: what was said meanwhile is not deleted.
func TestARequestIsMadeAgainWhenItHasExpired(t *testing.T) {
	w := newHandOver(t)
	w.looks(w.lubeck)
	w.lubeck.way.Heal()
	first := w.said(tenantOf(w.lubeck), request).Spec
	w.Clock.Step(handOverLife)
	w.lubeck.way.Freeze()
	w.Reconcile(w.lubeck.member, "", "hamburg")
	if again := w.said(tenantOf(w.lubeck), request); again == nil || again.Spec == first {
		t.Errorf("it was not asked again: %+v", again)
	}
}

func TestWhoWasRefusedAsksAgain(t *testing.T) {
	w := newHandOver(t)
	accept := func(patterns ...string) {
		testkit.Change(w.wismar.Cluster, "", "hamburg", func(p *v1alpha1.Peer) { p.Spec.AcceptMembers = patterns })
	}
	accept()
	text := w.invites()
	w.rounds(3)
	w.expectAsked(metav1.ConditionFalse, v1alpha1.ReasonNotAccepted)
	accept("lubeck-id")
	w.Clock.Step(askAgain - time.Second)
	w.rounds(2)
	w.expectAsked(metav1.ConditionFalse, v1alpha1.ReasonNotAccepted)
	w.Clock.Step(time.Second)
	w.lubeck.Writes()
	before := w.said(tenantOf(w.lubeck), request).Spec
	w.looks(w.lubeck)
	w.looks(w.lubeck)
	if w.said(tenantOf(w.lubeck), request).Spec == before {
		t.Error("it does not ask again")
	}
	w.lubeck.ExpectWrites() // what is said of the Peer stands until there is another answer
	w.rounds(3)
	if got := w.usesInvitation(); got != text {
		t.Errorf("lubeck uses %q", got)
	}
}

// A refusal is not said of a Peer that was made after it, whether the request of before lies at the broker still or not.
func TestARefusalIsOfThePeerThatWasRefused(t *testing.T) {
	w := newHandOver(t)
	testkit.Change(w.wismar.Cluster, "", "hamburg", func(p *v1alpha1.Peer) { p.Spec.AcceptMembers = nil })
	w.rounds(3)
	w.expectAsked(metav1.ConditionFalse, v1alpha1.ReasonNotAccepted)
	again := testkit.Get[v1alpha1.Peer](w.lubeck.Cluster, "", "wismar")
	w.lubeck.Remove(testkit.Get[v1alpha1.Peer](w.lubeck.Cluster, "", "wismar"))
	again.ObjectMeta = metav1.ObjectMeta{Name: again.Name}
	again.Status = v1alpha1.PeerStatus{}
	w.lubeck.Put(again)
	w.Clock.Step(time.Second)
	before := w.said(tenantOf(w.lubeck), request).Spec
	w.looks(w.lubeck)
	w.expectAsked(metav1.ConditionFalse, v1alpha1.ReasonPending)
	if w.said(tenantOf(w.lubeck), request).Spec == before {
		t.Error("what was asked for the Peer of before is not asked again")
	}
	w.looks(w.lubeck)
	w.expectAsked(metav1.ConditionFalse, v1alpha1.ReasonPending)
}

func TestADiscoveredPeerBecomesTheConsumer(t *testing.T) {
	w := newHandOver(t)
	discovered := testkit.Peer("lubeck")
	discovered.Name, discovered.Labels = "lubeck-id", map[string]string{"a": "b"}
	w.wismar.Put(discovered)
	text := w.invites()
	w.lubeck.Put(&corev1.Secret{ // from before
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace("wismar"), Name: v1alpha1.JoinSecret},
	})
	w.rounds(3)
	if got := w.consumer(); !got.HasRole(v1alpha1.RoleConsumer) || got.Spec.Invitation == nil || got.Labels["a"] != "b" || got.UID != discovered.UID {
		t.Errorf("it is %+v", got)
	}
	if got := w.usesInvitation(); got != text {
		t.Errorf("lubeck uses %q", got)
	}
}

func TestNobodyIsAskedInVain(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"its Peer is gone": func(w *world) { w.lubeck.Remove(testkit.Peer("wismar")) },
		"it is asked through another": func(w *world) {
			testkit.Change(w.lubeck.Cluster, "", "wismar", func(p *v1alpha1.Peer) { p.Spec.Introducer = "bremen" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHandOver(t)
			w.looks(w.lubeck)
			end(w)
			w.looks(w.lubeck)
			if w.said(tenantOf(w.lubeck), request) != nil {
				t.Error("what was asked still lies at the broker")
			}
		})
	}
}

func TestAnAnswerThatIsNotSentIsSentLater(t *testing.T) {
	w := newHandOver(t)
	w.invites()
	w.looks(w.lubeck)
	w.relays()
	w.wismar.way.Refuse("create Message answer", notThere)
	if again := w.looks(w.wismar); again != lookSoon {
		t.Errorf("it is looked at again after %s, want %s", again, lookSoon)
	}
	w.wismar.way.Refuse("create Message answer", nil)
	w.rounds(2)
	if w.usesInvitation() == "" {
		t.Error("there is no answer")
	}
}

func TestRightsToAnInvitationMayCome(t *testing.T) {
	w := newHandOver(t)
	text := w.invites()
	w.wismar.OnRead(func(read testkit.Read) error {
		if read.Name == v1alpha1.InvitationSecret && w.Clock.Now().Equal(testkit.Noon) {
			return noQuota
		}
		return nil
	})
	w.rounds(3)
	w.expectAsked(metav1.ConditionFalse, v1alpha1.ReasonPending, "has not answered")
	w.Clock.Step(time.Second)
	w.rounds(2)
	if got := w.usesInvitation(); got != text {
		t.Errorf("lubeck uses %q", got)
	}
}

// Of a broker that is asked for through another one is said how that goes, until there is a session, and then what its members know.
func TestABrokerMayBeAskedForThroughAnother(t *testing.T) {
	w := newHandOver(t)
	testkit.Change(w.lubeck.Cluster, "", "wismar", func(p *v1alpha1.Peer) { p.Spec.Roles = append(p.Spec.Roles, v1alpha1.RoleBroker) })
	looks := func() {
		w.looks(w.lubeck)
		w.Reconcile(w.lubeck.member, "", "wismar")
		w.looks(w.lubeck)
	}
	looks()
	w.expectAsked(metav1.ConditionFalse, v1alpha1.ReasonPending, "was asked")
	testkit.Change(w.lubeck.Cluster, "", "wismar", func(p *v1alpha1.Peer) {
		testkit.SetCondition(&p.Status.Conditions, v1alpha1.ConditionSession, metav1.ConditionTrue, "Joined")
	})
	looks()
	w.expectAsked(metav1.ConditionFalse, v1alpha1.ReasonPending, "no connection")
	testkit.Change(w.lubeck.Cluster, "", "wismar", func(p *v1alpha1.Peer) { p.Spec.Roles = []v1alpha1.PeerRole{v1alpha1.RoleProvider} })
	looks()
	w.expectAsked(metav1.ConditionTrue, v1alpha1.ReasonIntroduced, "through hamburg")
	testkit.Change(w.lubeck.Cluster, "", "wismar", func(p *v1alpha1.Peer) { p.Spec.Introducer = "" })
	looks()
	if said := introducedOf(testkit.Get[v1alpha1.Peer](w.lubeck.Cluster, "", "wismar")); said != nil {
		t.Errorf("of one that is neither asked for nor a broker is said %+v", said)
	}
}
