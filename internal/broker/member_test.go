// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/testkit"
	"github.com/hanse-dev/hanse/internal/trust"
)

func TestMembersBecomeKnownToEachOther(t *testing.T) {
	w := newWorld(t)
	w.rounds(2)
	known := w.expectKnown(w.lubeck, w.wismar, "4")
	w.expectKnown(w.wismar, w.lubeck, "4")
	if known.Spec.PublicKey != trust.PublicKeyOf(w.wismar.key) {
		t.Error("another key is pinned")
	}
	if w.lubeck.knows(w.lubeck.ClusterID) != nil {
		t.Error("lubeck knows itself")
	}
	w.rounds(1)
	w.expectIntroduced(w.lubeck, "hamburg", metav1.ConditionTrue, v1alpha1.ReasonIntroduced)

	for _, c := range []*testkit.Cluster{w.lubeck.Cluster, w.wismar.Cluster, w.broker} {
		c.Writes()
	}
	w.rounds(1)
	for _, c := range []*testkit.Cluster{w.lubeck.Cluster, w.wismar.Cluster, w.broker} {
		c.ExpectWrites() // nothing has changed
	}
}

func TestAClusterIntroducesItselfAgain(t *testing.T) {
	w := newWorld(t)
	said := func() string { return w.said(tenantOf(w.lubeck), v1alpha1.MessageIntroduction).Spec.Statement }
	w.looks(w.lubeck)
	first := said()

	w.Clock.Step(introductionPause - time.Second)
	w.lubeck.hasToSpare("3")
	if again := w.looks(w.lubeck); said() != first || again != time.Second {
		t.Errorf("it is said again within %s of the first time, or looked at again after %s", introductionPause, again)
	}
	w.Clock.Step(time.Second)
	w.looks(w.lubeck)
	second := said()
	if second == first {
		t.Error("what has changed is not said")
	}
	w.Clock.Step(introductionLife/2 - time.Second)
	if again := w.looks(w.lubeck); said() != second || again != time.Second {
		t.Errorf("it is said again before half its life is over, or looked at again after %s", again)
	}
	w.Clock.Step(time.Second)
	w.looks(w.lubeck)
	third := said()
	if third == second {
		t.Error("it is not said again when half its life is over")
	}
	w.relays()
	w.looks(w.wismar)
	w.expectKnown(w.wismar, w.lubeck, "3")
	w.Clock.SetTime(w.Clock.Now().Add(-time.Minute)) // another manager, whose clock is behind
	w.lubeck.hasToSpare("2")
	w.looks(w.lubeck)
	w.relays()
	w.looks(w.wismar)
	w.expectKnown(w.wismar, w.lubeck, "2")
}

func TestWhyNobodyKnowsACluster(t *testing.T) {
	for name, test := range map[string]struct {
		change func(w *world)
		texts  []string
	}{
		"no connection": {func(w *world) { w.lubeck.links.Links.Close("hamburg") }, []string{"no connection", "Session"}},
		"not read yet":  {func(w *world) { w.lubeck.way.Silence() }, []string{"not read yet"}},
		"no right to read": {
			func(w *world) { w.lubeck.way.Fail(apierrors.NewForbidden(ofMessages, "", nil)) }, []string{"role Member", "broker.enabled"},
		},
		"cut off":      {func(w *world) { w.lubeck.way.Fail(errBroken) }, []string{"cannot be read", "broken"}},
		"not told yet": {func(*world) {}, []string{"has not told its members"}},
		"not relayed": {
			func(w *world) {
				w.broker.Refuse("create Message lubeck-id", noQuota)
				w.looks(w.lubeck)
				w.relays()
				w.lubeck.way.Heal()
			}, []string{"does not tell its members", "broker.enabled"},
		},
		"not said yet": {func(w *world) {
			w.lubeck.way.Refuse("create Message", apierrors.NewConflict(ofMessages, "", errBroken))
		}, []string{"not introduced itself"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			test.change(w)
			w.Reconcile(w.lubeck.member, "", "hamburg")
			w.Reconcile(w.lubeck.member, "", "hamburg") // which sees what it has said
			w.expectIntroduced(w.lubeck, "hamburg", metav1.ConditionFalse, v1alpha1.ReasonPending, test.texts...)
		})
	}
}

func TestWhatIsSaidOfAMemberEnds(t *testing.T) {
	w := newWorld(t)
	w.rounds(2)
	look := func() time.Duration { return w.Reconcile(w.lubeck.ages, "", "wismar-id").RequeueAfter }
	w.Clock.Step(introductionLife - time.Second)
	if again := look(); again != time.Second {
		t.Errorf("it is looked at again after %s, want when what is known ends", again)
	}
	w.expectKnown(w.lubeck, w.wismar, "4")
	w.Clock.Step(time.Second)
	if again := look(); again != retention {
		t.Errorf("it is looked at again after %s, want when the Member ends", again)
	}
	old := w.lubeck.knows("wismar-id")
	testkit.ExpectCondition(t, old.Status.Conditions, v1alpha1.ConditionCurrent, metav1.ConditionFalse, v1alpha1.ReasonExpired)
	testkit.ExpectCondition(t, old.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonExpired)

	w.looks(w.wismar) // it comes back
	w.relays()
	if again := w.looks(w.lubeck); again <= lookSoon {
		t.Errorf("it is looked at again after %s, as if it had been written twice", again)
	}
	w.expectKnown(w.lubeck, w.wismar, "4")

	w.Clock.Step(introductionLife + retention - time.Second)
	look()
	if w.lubeck.knows("wismar-id") == nil {
		t.Errorf("one that is silent for less than %s is not known any more", retention)
	}
	w.Clock.Step(time.Second)
	if again := look(); w.lubeck.knows("wismar-id") != nil || again != 0 {
		t.Errorf("one that is silent for %s is still known", retention)
	}
	look() // it is gone
}

// A broker that withholds a member, or is left, could else introduce another key under its id.
func TestTheKeyOfAMemberOutlivesItsBrokers(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"the member leaves": func(w *world) {
			w.broker.Remove(w.said(tenantOf(w.wismar), v1alpha1.MessageIntroduction))
			w.Reconcile(w.relay, tenantOf(w.wismar), v1alpha1.MessageIntroduction)
		},
		"the broker keeps it to itself": func(w *world) { w.broker.Remove(w.introduction(w.wismar)) },
		"the broker is none any more": func(w *world) {
			testkit.Change(w.lubeck.Cluster, "", "hamburg", func(p *v1alpha1.Peer) { p.Spec.Roles = []v1alpha1.PeerRole{v1alpha1.RoleProvider} })
		},
		"the broker is no peer any more": func(w *world) { w.lubeck.Remove(testkit.Peer("hamburg")) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.rounds(2)
			testkit.Change(w.lubeck.Cluster, "", "wismar-id", func(m *v1alpha1.Member) { m.Status.HandOverSequence = 7 })
			w.expectKnown(w.lubeck, w.wismar, "4")
			end(w)
			w.looks(w.lubeck)
			until := w.Clock.Now().Add(introductionLife + retention).UTC()
			kept := w.expectNotHeard(w.lubeck, w.wismar, "hamburg", until.Format(time.RFC3339), "delete the Member")
			if len(kept.Status.Brokers) > 0 || kept.Status.LastBroker != "hamburg" || kept.Status.HandOverSequence != 7 {
				t.Errorf("what is kept is %+v", kept.Status)
			}
			w.lubeck.Writes()
			w.looks(w.lubeck)
			w.Reconcile(w.lubeck.ages, "", "wismar-id")
			w.Clock.Step(introductionLife)
			w.Reconcile(w.lubeck.ages, "", "wismar-id") // what it has said would not hold any more either
			w.lubeck.ExpectWrites()

			w.lubeck.Put(brokerPeer("hamburg")) // as before, if it was left
			other := w.says(keyOf("x"), v1alpha1.MembersNamespace, "wismar-id",
				trust.Statement{Type: trust.Introduction, From: "wismar-id", Sequence: w.Clock.Now().UnixNano()}, v1alpha1.MemberOffer{})
			w.expectRefused(func() { w.looks(w.lubeck) }, v1alpha1.ReasonForged, v1alpha1.ReasonExpired) // of old is what lubeck has said itself
			w.expectNotHeard(w.lubeck, w.wismar)

			w.broker.Remove(other)
			w.Clock.Step(introductionPause)
			w.rounds(2)
			if again := w.expectKnown(w.lubeck, w.wismar, "4"); again.UID != kept.UID || again.Status.LastBroker != "" {
				t.Errorf("it comes back as %+v", again)
			}
		})
	}
}

func TestTheKeyOfAMemberEnds(t *testing.T) {
	w := newWorld(t)
	w.rounds(2)
	w.lubeck.Remove(testkit.Peer("hamburg"))
	w.looks(w.lubeck)
	w.Clock.Step(introductionLife)
	if again := w.Reconcile(w.lubeck.ages, "", "wismar-id").RequeueAfter; again != retention {
		t.Errorf("it is looked at again after %s, want %s", again, retention)
	}
	w.Clock.Step(retention)
	w.Reconcile(w.lubeck.ages, "", "wismar-id")
	if w.lubeck.knows("wismar-id") != nil {
		t.Error("it is still known")
	}
}

// A member speaks to each of its brokers apart, so that what comes by one is older than what has come by the other.
func TestTwoBrokersOneMember(t *testing.T) {
	w := newWorld(t)
	bremen := testkit.NewCluster(t, w.Clock)
	w.lubeck.Put(brokerPeer("bremen"))
	way := w.lubeck.joins("bremen", v1alpha1.TenantNamespace("lubeck"), bremen)
	introduces := func(through *testkit.Cluster, sequence int64, cpu string) {
		signed, err := trust.SignStatement(w.wismar.key, trust.Statement{
			Type: trust.Introduction, From: "wismar-id", Sequence: sequence, Expires: w.Clock.Now().Add(introductionLife),
		}, v1alpha1.MemberOffer{Availability: testkit.Resources(cpu)})
		if err != nil {
			t.Fatal(err)
		}
		through.Put(&v1alpha1.Message{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.MembersNamespace, Name: "wismar-id"}, Spec: v1alpha1.MessageSpec{SignedStatement: *signed}})
	}
	look := func() {
		w.looks(w.lubeck)
		way.Heal()
		w.Reconcile(w.lubeck.member, "", "bremen")
	}
	expect := func(cpu string, brokers ...string) {
		t.Helper()
		var names []string
		for _, broker := range w.expectKnown(w.lubeck, w.wismar, cpu).Status.Brokers {
			names = append(names, broker.Name)
		}
		if diff := cmp.Diff(brokers, names); diff != "" {
			t.Errorf("known through (-want +got):\n%s", diff)
		}
	}
	now := w.Clock.Now().UnixNano()
	introduces(w.broker, now+2, "2")
	introduces(bremen, now+1, "1")
	w.expectRefused(look)
	expect("2", "hamburg", "bremen")

	w.Clock.Step(introductionPause)
	introduces(bremen, now+3, "3")
	w.expectRefused(look)
	expect("3", "hamburg", "bremen")

	bremen.Remove(&v1alpha1.Message{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.MembersNamespace, Name: "wismar-id"}})
	look()
	expect("3", "hamburg")
	w.broker.Remove(w.introduction(w.wismar))
	look()
	w.expectNotHeard(w.lubeck, w.wismar, "hamburg as the last")
	introduces(bremen, now+4, "4")
	look()
	expect("4", "bremen")
}

func TestWhatNobodyHasNamedIsDeleted(t *testing.T) {
	w := newWorld(t)
	w.lubeck.Put(&v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: "x-id"}}) // a manager has ended before it wrote the status
	if again := w.Reconcile(w.lubeck.ages, "", "x-id").RequeueAfter; again <= 0 || again > retention || w.lubeck.knows("x-id") == nil {
		t.Errorf("it is deleted before it was looked for at brokers, or looked at again after %s", again)
	}
	w.looks(w.lubeck)
	if w.lubeck.knows("x-id") != nil {
		t.Error("it is still there")
	}
}

func TestNewsOfAMemberAreTakenInAtAPace(t *testing.T) {
	w := newWorld(t)
	says := func(cpu string) {
		w.says(w.wismar.key, v1alpha1.MembersNamespace, "wismar-id",
			trust.Statement{Type: trust.Introduction, From: "wismar-id", Sequence: w.Clock.Now().UnixNano()}, v1alpha1.MemberOffer{Availability: testkit.Resources(cpu)})
	}
	says("4")
	w.looks(w.lubeck)
	w.Clock.Step(time.Second)
	says("3")
	if again := w.looks(w.lubeck); again != introductionPause-time.Second {
		t.Errorf("it is looked at again after %s", again)
	}
	w.expectKnown(w.lubeck, w.wismar, "4")
	w.Clock.Step(introductionPause - time.Second)
	w.looks(w.lubeck)
	w.expectKnown(w.lubeck, w.wismar, "3")
}

func TestWhatIsWrittenMeanwhileStands(t *testing.T) {
	w := newWorld(t)
	w.rounds(2)
	w.Clock.Step(introductionPause)
	w.wismar.hasToSpare("3")
	w.rounds(1)
	w.lubeck.Before(func(write testkit.Write) error { // another worker, for another broker
		if write.String() == "patch/status Member wismar-id" {
			known := w.lubeck.knows("wismar-id")
			known.Status.HandOverSequence++
			w.lubeck.Put(known)
		}
		return nil
	})
	if again := w.looks(w.lubeck); again != lookSoon {
		t.Errorf("it is looked at again after %s, want %s", again, lookSoon)
	}
	if got := w.lubeck.knows("wismar-id").Status; got.HandOverSequence != 1 || got.Offer.Availability.Cpu().String() != "4" {
		t.Errorf("it was overwritten: %+v", got)
	}
}

func TestWhatGoesWrongIsSaid(t *testing.T) {
	w := newWorld(t)
	w.lubeck.way.Refuse("create Message", errBroken)
	if err := w.errorOf(w.lubeck); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
}

func TestThereIsRoomForSoManyMembersOfOneBroker(t *testing.T) {
	said := &trust.Statement{Type: trust.Introduction, From: "x-id", Key: "k", Sequence: 1}
	seen := &scene{broker: brokerPeer("hamburg"), members: map[string]*v1alpha1.Member{}, charged: maxMembers}
	known := &v1alpha1.Member{Spec: v1alpha1.MemberSpec{PublicKey: "k"}}
	why := &trust.Refusal{}
	if err := believes(seen, known, said); !errors.As(err, &why) || why.Reason != v1alpha1.ReasonRecipientFull {
		t.Errorf("one more is answered with %v", err)
	}
	seen.members["x-id"] = known
	if err := believes(seen, known, said); err != nil {
		t.Errorf("one of them is answered with %v", err)
	}
}

// A broker that invents members, and takes them back, takes away room from itself alone, and has none forgotten that it withholds.
func TestForWhichBrokersAMemberCounts(t *testing.T) {
	w := newWorld(t)
	expires := metav1.NewTime(w.Clock.Now())
	for name, status := range map[string]v1alpha1.MemberStatus{
		"named":      {Brokers: []v1alpha1.MemberBroker{{Name: "hamburg", Heard: expires}}, Expires: &expires},
		"by-two":     {Brokers: []v1alpha1.MemberBroker{{Name: "hamburg", Heard: expires}, {Name: "bremen", Heard: expires}}, Expires: &expires},
		"named-once": {LastBroker: "hamburg", Expires: &expires},
		"made-alone": {},
	} {
		w.lubeck.Put(&v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: status})
	}
	for broker, want := range map[string]int{"hamburg": 4, "bremen": 2, "kiel": 1} {
		seen, err := w.lubeck.remember(t.Context(), brokerPeer(broker))
		if err != nil || seen.charged != want {
			t.Errorf("%d Members count for %s, want %d: %v", seen.charged, broker, want, err)
		}
	}
	w.says(keyOf("visby"), v1alpha1.MembersNamespace, "visby-id", trust.Statement{Type: trust.Introduction, From: "visby-id", Sequence: 1}, nothing)
	w.lubeck.way.Heal()
	seen, err := w.lubeck.observe(t.Context(), brokerPeer("hamburg"))
	if err != nil || w.lubeck.connect(seen) != nil {
		t.Fatal(err)
	}
	w.lubeck.hear(t.Context(), seen)
	if seen.charged != 5 {
		t.Errorf("with one more, %d count for hamburg", seen.charged)
	}
}

func TestWhatIsTooMuchForALinkIsSaidLater(t *testing.T) {
	seen := &scene{again: lookAgain}
	seen.note(fmt.Errorf("write: %w", &peers.BusyError{After: 3 * time.Second}))
	seen.note(nil)
	if seen.again != 3*time.Second || len(seen.problems) > 0 {
		t.Errorf("it is looked at again after %s, with %v", seen.again, seen.problems)
	}
}

func TestWhoseBrokersAreLookedAt(t *testing.T) {
	w := newWorld(t)
	wanted := testkit.Peer("visby")
	wanted.Spec.Introducer = "hamburg"
	let := testkit.Peer("wismar")
	let.Annotations = map[string]string{v1alpha1.AnnotationIntroducedBy: "hamburg"}
	ours, theirs := testkit.Advertisement("hamburg"), testkit.Advertisement("hamburg")
	ours.Name, ours.Labels = "lubeck-id", map[string]string{v1alpha1.LabelPeer: "hamburg"}
	for name, test := range map[string]struct {
		got  []reconcile.Request
		want []reconcile.Request
	}{
		"one that is asked for":   {w.lubeck.brokersOf(t.Context(), wanted), []reconcile.Request{brokerRequest("visby"), brokerRequest("hamburg")}},
		"one that was let in":     {w.lubeck.brokersOf(t.Context(), let), []reconcile.Request{brokerRequest("wismar"), brokerRequest("hamburg")}},
		"what we have to spare":   {w.lubeck.brokersOf(t.Context(), ours), []reconcile.Request{brokerRequest("hamburg")}},
		"what the broker has":     {w.lubeck.brokersOf(t.Context(), theirs), nil},
		"what has no such matter": {w.lubeck.brokersOf(t.Context(), &corev1.Pod{}), nil},
	} {
		if diff := cmp.Diff(test.want, test.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAnIntroductionFitsIntoAStatement(t *testing.T) {
	w := newWorld(t)
	ad := toSpare("lubeck-id", "4")
	ad.Spec.Labels, ad.Spec.Prices = map[string]v1alpha1.Text{}, &v1alpha1.Prices{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{}}
	for i := range 64 {
		name := fmt.Sprintf("%sexample/%s-%02d", strings.Repeat("a.", 115), strings.Repeat("b", 60), i)
		ad.Spec.Labels[name] = v1alpha1.Text(strings.Repeat("x", 63))
		ad.Spec.Availability[corev1.ResourceName(name)] = resource.MustParse("9007199254740992")
		ad.Spec.Prices.PerHour[corev1.ResourceName(name)] = resource.MustParse("123456789.123456789")
	}
	w.lubeck.Put(ad)
	w.rounds(2)
	known := w.expectKnown(w.wismar, w.lubeck, "4")
	if len(known.Status.Offer.Labels) < 10 || len(known.Status.Offer.Availability) < 10 {
		t.Errorf("little is said: %+v", known.Status.Offer)
	}
}
