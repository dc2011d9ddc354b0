// SPDX-License-Identifier: Apache-2.0

package market

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// knownMembers plays the broker, and those that are asked through it.
type knownMembers struct {
	asked  map[string]*v1alpha1.QuoteSpec // by broker and member
	offers map[string]exchange.Bidder
	// requested are the Requests, by broker and member, and answers are those to them, by member.
	requested map[string]*v1alpha1.RequestSpec
	answers   map[string]*exchange.SignedAnswer
}

// Quote implements Members.
func (k *knownMembers) Quote(_ context.Context, broker, member, _ string, quote *v1alpha1.QuoteSpec) error {
	k.asked[broker+"/"+member] = quote
	return nil
}

// Offer implements Members.
func (k *knownMembers) Offer(_ context.Context, broker, member, _ string) *v1alpha1.Quote {
	asked, bidder := k.asked[broker+"/"+member], k.offers[member]
	if asked == nil || bidder.Free == nil {
		return nil
	}
	whole, each := bidder.Offers(asked.Components)
	return &v1alpha1.Quote{Spec: *asked, Status: v1alpha1.QuoteStatus{Whole: &whole, Components: each}}
}

// Request implements Members.
func (k *knownMembers) Request(_ context.Context, broker, member, _ string, request *v1alpha1.RequestSpec) error {
	k.requested[broker+"/"+member] = request
	return nil
}

// Answer implements Members.
func (k *knownMembers) Answer(_ context.Context, broker, member, _ string) *v1alpha1.Request {
	asked, answer := k.requested[broker+"/"+member], k.answers[member]
	if asked == nil || answer == nil {
		return nil
	}
	return answer.AsRequest(asked)
}

// Changes implements Members.
func (k *knownMembers) Changes(func(context.Context, string, peers.Queue[reconcile.Request])) source.Source {
	return nil
}

// newMembers is a world with one provider, a, and a broker, hub, through which member m is known. Auctions are always held.
func newMembers(t *testing.T, changes ...func(*v1alpha1.Application)) (*world, *knownMembers) {
	t.Helper()
	w := newWorld(t, map[string]int64{"a": 10}, append(changes, always)...)
	known := &knownMembers{map[string]*v1alpha1.QuoteSpec{}, map[string]exchange.Bidder{}, map[string]*v1alpha1.RequestSpec{}, map[string]*exchange.SignedAnswer{}}
	w.market.Members = known
	hub := testkit.Peer("hub", v1alpha1.RoleProvider, v1alpha1.RoleBroker)
	hub.Spec.AskMembers = []string{"m*"}
	w.Home.Put(hub, newMember("m", "hub"))
	return w, known
}

func newMember(name, broker string) *v1alpha1.Member {
	member := &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MemberSpec{PublicKey: publicOf(keyOf(name))}}
	member.Status.Brokers = []v1alpha1.MemberBroker{{Name: broker}}
	member.Status.Offer = &v1alpha1.MemberOffer{Availability: testkit.Quantities("cpu", "8")}
	testkit.SetCondition(&member.Status.Conditions, v1alpha1.ConditionCurrent, metav1.ConditionTrue, v1alpha1.ReasonHeard)
	return member
}

// peerM is the Peer that stands for m, nil if there is none.
func (w *world) peerM() *v1alpha1.Peer {
	peer := &v1alpha1.Peer{}
	if !w.Home.Find(peer, "", "m") {
		return nil
	}
	return peer
}

// expectBound checks that m is asked for both components, and for what they have won by.
func (w *world) expectBound(asked *v1alpha1.RequestSpec) {
	w.Helper()
	if asked == nil || asked.MaxPrice == nil || asked.MaxPrice.Amount.String() != "48m" || len(asked.Components) != 2 {
		w.Fatalf("m is asked for %+v", asked)
	}
}

func TestAMemberThatWinsBecomesAPeer(t *testing.T) {
	w, known := newMembers(t)
	w.expectAuction(w.looks(), "1 open, a 0, m 0")
	if asked := known.asked["hub/m"]; asked == nil || len(asked.Components) != 2 {
		t.Fatalf("m is asked for %+v", asked)
	}
	if w.peerM() != nil {
		t.Error("it is a peer before it has won")
	}
	w.offers("a", cents(9, 50))
	known.offers["m"] = cents(8, 50)
	app := w.looks()
	w.expect(app, "Requested front@m back@m")
	w.expectAuction(app, "1 closed, a 50 54m, m 50 48m won front+back,  0")
	w.expectBound(known.requested["hub/m"])
	w.expect(w.looks(), "Requested front@m back@m")
	if w.peerM() != nil {
		t.Error("it is a peer before it has reserved anything")
	}
	known.answers["m"] = acknowledged
	w.expect(w.looks(), "Requested front@m back@m")
	peer := w.peerM()
	if peer == nil {
		t.Fatal("it has no Peer")
	}
	want := v1alpha1.PeerSpec{ClusterID: "m", PublicKey: publicOf(keyOf("m")), Roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider}, Introducer: "hub"}
	if diff := cmp.Diff(want, peer.Spec); diff != "" {
		t.Fatalf("its Peer (-want +got):\n%s", diff)
	}
	w.expect(w.looks(), "Requested front@m back@m") // it waits for the invitation

	// The invitation has come.
	cluster := testkit.NewCluster(t, w.Clock)
	there := w.links.Add("m", tenantThere, cluster.Client)
	cluster.Client = there.Client
	w.there["m"] = cluster
	w.links.Link(peer)
	w.looks()
	if request := w.requestAt("m"); request == nil {
		t.Fatal("m is not asked")
	} else {
		w.expectBound(&request.Spec)
	}
	w.answer("m", v1alpha1.RequestAcknowledged, "")
	w.expect(w.looks(), "Placed front@m! back@m!")
}

var acknowledged = &exchange.SignedAnswer{Acknowledged: true, Reason: v1alpha1.ReasonReserved, Phase: v1alpha1.RequestAcknowledged}

// A member that refuses becomes no peer, and the next one is asked.
func TestAMemberThatRefuses(t *testing.T) {
	w, known := newMembers(t)
	w.looks()
	w.offers("a", cents(9, 50))
	known.offers["m"] = cents(8, 50)
	known.answers["m"] = &exchange.SignedAnswer{Reason: v1alpha1.ReasonNoRoom, Message: "It has none", Phase: v1alpha1.RequestRefused}
	app := w.looks()
	w.expect(app, "Requested front@a back@a")
	if refusals := app.Status.Refusals; len(refusals) != 1 || refusals[0].Message != "It refuses: It has none" || w.peerM() != nil {
		t.Errorf("it has refused: %+v, and has the Peer %+v", refusals, w.peerM())
	}
}

// A member that gives no invitation, or is silent, loses what it has won to the next.
func TestAMemberThatIsNoPeerInTheEnd(t *testing.T) {
	for name, fails := range map[string]func(w *world){
		"it gives no invitation": func(w *world) {
			peer := w.peerM()
			testkit.SetCondition(&peer.Status.Conditions, v1alpha1.ConditionIntroduced, metav1.ConditionFalse, v1alpha1.ReasonNotAccepted)
			w.Home.Put(peer)
		},
		"it does not answer": func(w *world) { w.Clock.Step(answerTime) },
	} {
		t.Run(name, func(t *testing.T) {
			w, known := newMembers(t)
			w.looks()
			w.offers("a", cents(9, 50))
			known.offers["m"], known.answers["m"] = cents(8, 50), acknowledged
			w.expect(w.looks(), "Requested front@m back@m")
			w.looks()
			fails(w)
			app := w.looks()
			w.expect(app, "Requested front@a back@a")
			w.expectAuction(app, "1 closed, a 50 54m won front+back, m 0,  0")
		})
	}
}

func TestWhichMembersAreAsked(t *testing.T) {
	for name, test := range map[string]struct {
		change func(w *world)
		app    func(*v1alpha1.Application)
		want   string
	}{
		"one that may be asked":          {want: "1 open, a 0, m 0"},
		"one that is not to be asked":    {change: asks("x"), want: "1 open, a 0"},
		"one that is not heard any more": {change: func(w *world) { w.Home.Put(silentMember()) }, want: "1 open, a 0"},
		"one that is known elsewhere":    {change: func(w *world) { w.Home.Put(newMember("m", "other")) }, want: "1 open, a 0"},
		"one that is a peer":             {change: func(w *world) { w.Home.Put(testkit.Peer("m", v1alpha1.RoleConsumer)) }, want: "1 open, a 0"},
		"one whose name somebody has":    {change: func(w *world) { w.Home.Put(named("m", "other-id")) }, want: "1 open, a 0"},
		"one that waits for an invitation": {change: func(w *world) {
			peer := named("m", "m")
			peer.Spec.Introducer = "hub"
			w.Home.Put(peer)
		}, want: "1 open, a 0, m 0"},
		"one that the user excludes": {app: func(app *v1alpha1.Application) {
			app.Spec.Placement = &v1alpha1.ApplicationPlacement{Exclude: []string{"m"}}
		}, want: "1 open, a 0"},
		"one that the namespace does not select": {change: func(w *world) {
			testkit.Change(w.Home, ns, v1alpha1.NamespaceOffloadingName, func(o *v1alpha1.NamespaceOffloading) {
				o.Spec.ClusterSelector = &v1alpha1.ClusterSelector{MatchLabels: map[string]v1alpha1.LabelValue{v1alpha1.LabelPeer: "a"}}
			})
		}, want: "1 open, a 0"},
	} {
		t.Run(name, func(t *testing.T) {
			var changes []func(*v1alpha1.Application)
			if test.app != nil {
				changes = append(changes, test.app)
			}
			w, _ := newMembers(t, changes...)
			if test.change != nil {
				test.change(w)
			}
			w.expectAuction(w.looks(), test.want)
		})
	}
}

// Who can be asked only after the auction has led nowhere is asked soon, and not when its offers would be forgotten.
func TestWhoComesLaterIsAskedSoon(t *testing.T) {
	w, _ := newMembers(t)
	asks("x")(w)
	w.expectAuction(w.looks(), "1 open, a 0")
	w.Clock.Step(6 * time.Second)
	w.expectAuction(w.looks(), "1 closed, a 0,  0")
	asks("m")(w)
	w.expectAuction(w.looks(), "1 closed, a 0,  0")
	if again := w.Reconcile(w.market, ns, "web").RequeueAfter; again != newcomerPause-6*time.Second {
		t.Errorf("it is looked at again after %s", again)
	}
	w.Clock.Step(newcomerPause - 6*time.Second)
	w.expectAuction(w.looks(), "2 open, a 0, m 0")
}

func asks(pattern string) func(w *world) {
	return func(w *world) {
		testkit.Change(w.Home, "", "hub", func(p *v1alpha1.Peer) { p.Spec.AskMembers = []string{pattern} })
	}
}

func silentMember() *v1alpha1.Member {
	member := newMember("m", "hub")
	testkit.SetCondition(&member.Status.Conditions, v1alpha1.ConditionCurrent, metav1.ConditionFalse, v1alpha1.ReasonExpired)
	return member
}

func named(name, id string) *v1alpha1.Peer {
	peer := testkit.Peer(name, v1alpha1.RoleProvider)
	peer.Spec.ClusterID = id
	return peer
}

// Where no auction is held, members are not looked at: nothing of them can be placed by what they say to all.
func TestNoLookupFindsAMember(t *testing.T) {
	w, known := newMembers(t)
	testkit.Change(w.Home, ns, "web", func(app *v1alpha1.Application) {
		app.Spec.Auction = &v1alpha1.ApplicationAuctionSpec{When: v1alpha1.AuctionNever}
	})
	known.offers["m"] = cents(0, 100)
	w.expect(w.looks(), "Requested front@a back@a")
	w.Clock.Step(time.Minute)
	if len(known.asked) > 0 || w.peerM() != nil {
		t.Errorf("members are asked: %v", known.asked)
	}
}
