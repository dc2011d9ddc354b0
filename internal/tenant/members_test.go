// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/testkit"
	"github.com/hanse-dev/hanse/internal/trust"
)

// broker is the peer as a broker, and no consumer.
func broker() *v1alpha1.Peer {
	broker := peer()
	broker.Spec.Roles = []v1alpha1.PeerRole{v1alpha1.RoleProvider, v1alpha1.RoleBroker}
	broker.Spec.AcceptMembers = []string{"wis*"}
	return broker
}

// wismar is a member that is known through it, and ofWismar makes what lies in the tenant namespace of the broker what wismar asks.
func wismar() *v1alpha1.Member { return member("wismar") }

func member(id string) *v1alpha1.Member {
	return &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: v1alpha1.MemberSpec{PublicKey: trust.PublicKeyOf(kielKey)}}
}

func ofWismar(asked client.Object) { ofMember(asked, "wismar") }

func ofMember(asked client.Object, id string) {
	asked.SetLabels(map[string]string{v1alpha1.LabelFrom: id})
}

// signsFor has lubeck sign what it asks, or a member if that asks through it.
func (c *counter) signsFor(asked client.Object, kind trust.StatementType, body any) *v1alpha1.SignedStatement {
	c.Helper()
	from := asked.GetLabels()[v1alpha1.LabelFrom]
	if from == "" {
		return c.signs(kind, body)
	}
	return c.signsWith(kielKey, kind, body, func(s *trust.Statement) { s.From = from })
}

// introduced is the peer that wismar comes to be, through the broker that is called lubeck.
func introduced() *v1alpha1.Peer {
	peer := testkit.Peer("wismar", v1alpha1.RoleConsumer)
	peer.Spec.ClusterID, peer.Spec.PublicKey = "wismar", trust.PublicKeyOf(kielKey)
	peer.Annotations = map[string]string{v1alpha1.AnnotationIntroducedBy: "lubeck"}
	return peer
}

// asksItself has wismar ask as a peer, and returns the answer.
func (c *counter) asksItself(cpu string) *v1alpha1.Request {
	c.Helper()
	tenant := v1alpha1.TenantNamespace("wismar")
	c.Home.Put(introduced(), &v1alpha1.Advertisement{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: ourID}})
	own := &v1alpha1.Request{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "shop", UID: "own", Generation: 1}, Spec: v1alpha1.RequestSpec{
		Application:    v1alpha1.RequestedApplication{UID: "app-1", Name: "shop"},
		Components:     []v1alpha1.RequestedComponent{{Name: "web", Replicas: 1, Resources: testkit.Quantities("cpu", cpu)}},
		ExpirationTime: metav1.NewTime(c.Clock.Now().Add(time.Hour)),
	}}
	own.Spec.Signed = c.signsWith(kielKey, trust.Request, exchange.RequestToSign(own), func(s *trust.Statement) { s.From = "wismar" })
	c.Home.Put(own)
	c.Reconcile(c.requests, tenant, "shop")
	c.Home.Find(own, tenant, "shop")
	return own
}

func (c *counter) asksThroughTheBroker(cpu string) *v1alpha1.Request {
	c.Helper()
	return c.memberAsks("wismar", cpu)
}

func (c *counter) memberAsks(id, cpu string) *v1alpha1.Request {
	c.Helper()
	return c.ask(id+".shop", cpu, func(r *v1alpha1.Request) {
		ofMember(r, id)
		r.Spec.ExpirationTime = metav1.NewTime(c.Clock.Now().Add(10 * time.Minute))
	})
}

// What a member has reserved through its broker is nobody else's, also not the broker's, and is its own when it has become a peer.
func TestAMemberReservesThroughItsBroker(t *testing.T) {
	c := newCounter(t, broker(), wismar())
	c.expect(c.asksThroughTheBroker("3"), v1alpha1.RequestAcknowledged, "3", v1alpha1.ReasonReserved, "is reserved")
	for _, request := range []string{"", "wismar.shop"} {
		if c.fits("lubeck", request, "2") {
			t.Errorf("a pod of the broker that names %q gets the room of the member", request)
		}
	}
	c.expect(c.asksItself("3"), v1alpha1.RequestAcknowledged, "3", v1alpha1.ReasonReserved, "is reserved")
	if c.Home.Find(&v1alpha1.Request{}, v1alpha1.TenantNamespace("lubeck"), "wismar.shop") {
		t.Error("the Request of the member is kept beside that of the peer")
	}
	c.look("wismar.shop") // it is gone
	if c.fits("lubeck", "", "2") || !c.fits("lubeck", "", "1") || !c.fits("wismar", "shop", "3") {
		t.Error("the room is not that of the peer")
	}
}

// A manager that was killed after it had acknowledged the Request of the peer, and before it deleted that of the member, holds the room once.
func TestTheRequestOfAMemberGoesAfterARestart(t *testing.T) {
	c := newCounter(t, broker(), wismar())
	left := c.asksThroughTheBroker("3")
	c.asksItself("3")
	left.ResourceVersion = ""
	c.Home.Put(left)
	c.Reconcile(c.requests, v1alpha1.TenantNamespace("wismar"), "shop")
	if c.Home.Find(&v1alpha1.Request{}, left.Namespace, left.Name) {
		t.Error("it is kept beside that of the peer")
	}
}

// A peer that asks for more than there is keeps what it had as a member.
func TestAPeerThatIsRefusedKeepsTheRoomOfTheMember(t *testing.T) {
	c := newCounter(t, broker(), wismar())
	c.asksThroughTheBroker("3")
	c.expect(c.asksItself("5"), v1alpha1.RequestRefused, "0", v1alpha1.ReasonNoRoom, "cpu")
	if c.fits("lubeck", "", "2") {
		t.Error("the room of the member is others'")
	}
}

// The limits of a broker's Peer hold for all that its members reserve, whatever there is: who lets a broker in need not know how many members
// it has.
func TestMembersHaveTheirBrokersLimitsTogether(t *testing.T) {
	limited := broker()
	limited.Spec.AcceptMembers = []string{"*"}
	limited.Spec.Limits = &v1alpha1.PeerLimits{Resources: testkit.Quantities("cpu", "3")}
	c := newCounter(t, limited, wismar(), member("rostock"))
	c.expect(c.memberAsks("wismar", "2"), v1alpha1.RequestAcknowledged, "2", v1alpha1.ReasonReserved, "is reserved")
	c.expect(c.memberAsks("rostock", "2"), v1alpha1.RequestRefused, "0", v1alpha1.ReasonLimitExceeded, "all clusters that ask through this broker")

	// What one has already does not stand against it, in what it asks or is offered.
	c.expect(c.memberAsks("wismar", "3"), v1alpha1.RequestAcknowledged, "3", v1alpha1.ReasonReserved, "is reserved")
	for id, free := range map[string]string{"wismar": "3", "rostock": "0"} {
		quoted := &v1alpha1.Quote{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace("lubeck"), Name: id + ".shop"}}
		ofMember(quoted, id)
		left := c.pods.ledger.free(reservationOf(quoted), testkit.Quantities("cpu", "4"), limited.Spec.Limits.Resources)[corev1.ResourceCPU]
		if left.String() != free {
			t.Errorf("%s is offered %s, want %s", id, left.String(), free)
		}
	}

	// As a peer it has limits of its own, and what it has is not the broker's any more.
	c.expect(c.asksItself("3"), v1alpha1.RequestAcknowledged, "3", v1alpha1.ReasonReserved, "is reserved")
	c.expect(c.memberAsks("rostock", "1"), v1alpha1.RequestAcknowledged, "1", v1alpha1.ReasonReserved, "is reserved")
}

func TestTheRoomOfAMemberEnds(t *testing.T) {
	for name, ends := range map[string]func(c *counter){
		"at its time": func(c *counter) { c.Clock.Step(10 * time.Minute) },
		"when it is deleted": func(c *counter) {
			c.Home.Remove(testkit.Get[v1alpha1.Request](c.Home, v1alpha1.TenantNamespace("lubeck"), "wismar.shop"))
		},
		"with the broker": func(c *counter) {
			parting := broker()
			parting.Spec.Roles = []v1alpha1.PeerRole{v1alpha1.RoleProvider}
			c.Home.Put(parting)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCounter(t, broker(), wismar())
			c.asksThroughTheBroker("3")
			ends(c)
			c.look("wismar.shop")
			if name == "at its time" && c.Home.Find(&v1alpha1.Request{}, v1alpha1.TenantNamespace("lubeck"), "wismar.shop") {
				t.Error("it is kept")
			}
			if !c.fits("lubeck", "", "4") {
				t.Error("its room is not free")
			}
		})
	}
}

// A broker that is a consumer too may write Requests of members itself: of those that are not accepted it reserves nothing, and for those that are
// not for long.
func TestARequestOfAMemberThatMayNotAsk(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(c *counter, r *v1alpha1.Request)
		reason  string
		invited bool
	}{
		"one that is not accepted": {change: notAccepted, reason: v1alpha1.ReasonNotAccepted},
		"one that is invited":      {change: notAccepted, reason: v1alpha1.ReasonReserved, invited: true},
		"one that asks for too long": {change: func(c *counter, r *v1alpha1.Request) {
			r.Spec.ExpirationTime = metav1.NewTime(c.Clock.Now().Add(time.Hour))
		}, reason: v1alpha1.ReasonInvalidExpirationTime},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCounter(t, broker(), wismar())
			if test.invited {
				c.Home.Put(introduced())
			}
			got := c.ask("wismar.shop", "3", func(r *v1alpha1.Request) {
				ofWismar(r)
				r.Spec.ExpirationTime = metav1.NewTime(c.Clock.Now().Add(10 * time.Minute))
				r.CreationTimestamp = metav1.NewTime(c.Clock.Now())
				test.change(c, r)
			})
			if test.reason == v1alpha1.ReasonReserved {
				c.expect(got, v1alpha1.RequestAcknowledged, "3", test.reason, "")
				return
			}
			c.expect(got, v1alpha1.RequestRefused, "0", test.reason, "")
			c.Clock.Step(v1alpha1.MaxRelayedReservation)
			c.look("wismar.shop")
			if c.Home.Find(&v1alpha1.Request{}, v1alpha1.TenantNamespace("lubeck"), "wismar.shop") {
				t.Error("it is kept")
			}
		})
	}
}

func notAccepted(c *counter, _ *v1alpha1.Request) {
	testkit.Change(c.Home, "", "lubeck", func(p *v1alpha1.Peer) { p.Spec.AcceptMembers = nil })
}

// What a member has not signed reserves nothing, whoever has put it there.
func TestNobodyAsksInTheNameOfAMember(t *testing.T) {
	c := newCounter(t, broker(), wismar())
	got := c.ask("wismar.shop", "3", func(r *v1alpha1.Request) {
		ofWismar(r)
		r.Spec.Signed = c.signs(trust.Request, exchange.RequestToSign(r), func(s *trust.Statement) { s.From = "wismar" })
	})
	c.expect(got, v1alpha1.RequestRefused, "0", v1alpha1.ReasonForged, "another key")
}
