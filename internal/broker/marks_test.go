// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/testkit"
	"github.com/hanse-dev/hanse/internal/trust"
)

// marks has the broker say what it has counted, and the members hear it.
func (w *world) marks() time.Duration {
	w.Helper()
	again := w.Reconcile(w.marker, "", everyMember.Name).RequeueAfter
	w.rounds(1)
	return again
}

// expectMarks checks what hamburg says to lubeck of wismar.
func (w *world) expectMarks(want *v1alpha1.MemberMarks) {
	w.Helper()
	known := w.lubeck.knows("wismar-id")
	if known == nil {
		w.Fatal("lubeck does not know wismar")
	}
	if diff := cmp.Diff(want, known.MarksOf("hamburg")); diff != "" {
		w.Errorf("marks of wismar at lubeck (-want +got):\n%s", diff)
	}
}

// marked are the Messages with marks.
func (w *world) marked() []v1alpha1.Message {
	w.Helper()
	all := &v1alpha1.MessageList{}
	if err := w.broker.Server.List(w.Context(), all); err != nil {
		w.Fatal(err)
	}
	var found []v1alpha1.Message
	for _, message := range all.Items {
		if strings.HasPrefix(message.Name, marksPrefix) {
			found = append(found, message)
		}
	}
	return found
}

func TestMembersHearWhatTheBrokerHasCounted(t *testing.T) {
	w, _ := newAuction(t)
	since := metav1.NewTime(testkit.Noon)
	if again := w.marks(); again != lookSoon {
		t.Errorf("it is looked at again after %s", again)
	}
	w.expectMarks(&v1alpha1.MemberMarks{Since: since})
	w.rounds(1)
	w.offers(70)
	w.Clock.Step(2 * time.Second)
	w.rounds(2)
	want := &v1alpha1.MemberMarks{Since: since, Quotes: 1, Offers: 1, OfferTime: &metav1.Duration{Duration: 2 * time.Second}}
	w.broker.Writes()
	if again := w.marks(); again != introductionPause-2*time.Second {
		t.Errorf("it is looked at again after %s", again)
	}
	w.broker.ExpectWrites() // other marks came just before
	w.Clock.Step(introductionPause)
	w.marks()
	w.expectMarks(want)
	w.broker.Writes()
	w.marks()
	w.broker.ExpectWrites() // nothing is new
	if of := w.wismar.knows("lubeck-id").MarksOf("hamburg"); of == nil || of.Quotes != 0 {
		t.Errorf("lubeck is marked with %+v", of)
	}

	// What the member says anew changes none of it, and they are renewed in time.
	w.hasMarksAfter(introductionLife-time.Minute, want)
	w.hasMarksAfter(marksLife/2, want)
	for _, message := range w.marked() {
		if said, err := trust.ReadStatement(&message.Spec.SignedStatement, message.Spec.To, w.Clock.Now()); err != nil || said.Expires.Sub(w.Clock.Now()) < marksLife/2 {
			t.Errorf("%s says %+v: %v", message.Name, said, err)
		}
		if got := originOf(t.Context(), &message); len(got) > 0 {
			t.Errorf("it is relayed: %v", got)
		}
	}

	// A member that has left is not marked any more, nor is anybody by a broker that nobody is a member of.
	testkit.Change(w.broker, "", "wismar", func(p *v1alpha1.Peer) { p.Spec.Roles = nil })
	w.Clock.Step(introductionPause)
	w.marks()
	if of := w.lubeck.knows("wismar-id").MarksOf("hamburg"); of != nil {
		t.Errorf("wismar has left, and is marked with %+v", of)
	}
	testkit.Change(w.broker, "", "lubeck", func(p *v1alpha1.Peer) { p.Spec.Roles = nil })
	w.marks()
	if left := w.marked(); len(left) > 0 {
		t.Errorf("there are still %d Messages", len(left))
	}
	if again := w.marks(); again != 0 {
		t.Errorf("it is looked at again after %s", again)
	}
}

// hasMarksAfter lets time pass, and checks that nothing is counted meanwhile but the gap.
func (w *world) hasMarksAfter(d time.Duration, want *v1alpha1.MemberMarks) {
	w.Helper()
	w.Clock.Step(d)
	w.rounds(2)
	w.marks()
	want.LongestGap = w.lubeck.knows("wismar-id").MarksOf("hamburg").LongestGap
	w.expectMarks(want)
	if want.LongestGap == nil || want.LongestGap.Duration > d+time.Minute {
		w.Errorf("the longest gap is %+v", want.LongestGap)
	}
}

// A Quote whose copy is taken away from the member was not left unanswered.
func TestWhatIsNotRelayedIsNotCounted(t *testing.T) {
	w, _ := newAuction(t)
	w.rounds(2)
	if len(w.relay.notes.asked) != 1 {
		t.Fatalf("%d Quotes wait for an offer", len(w.relay.notes.asked))
	}
	testkit.Change(w.broker, "", "lubeck", func(p *v1alpha1.Peer) { p.Spec.Access = v1alpha1.AccessSuspended })
	w.relays()
	w.Clock.Step(time.Hour)
	if of := w.relay.notes.marks(map[string]bool{"wismar-id": true}, w.Clock.Now())["wismar-id"]; of.Quotes != 0 {
		t.Errorf("wismar is marked with %+v", of)
	}
}

// Where there is no namespace for what is said to all, nothing is marked, and nothing goes wrong.
func TestNobodyIsMarkedByWhatIsNoBroker(t *testing.T) {
	w := newWorld(t)
	w.broker.Refuse("create Message", notThere)
	w.marks()
	if got := w.marked(); len(got) > 0 {
		t.Errorf("there are %d Messages", len(got))
	}
}

func TestAMemberIsNotOverwhelmedByMarks(t *testing.T) {
	w := newWorld(t)
	w.rounds(2)
	says := func(quotes int32) {
		w.says(keyOf("hamburg"), v1alpha1.MembersNamespace, "marks.1", trust.Statement{Type: trust.Marks, From: "hamburg-id", Sequence: int64(quotes)},
			exchange.Marks{Members: map[string]v1alpha1.MemberMarks{"wismar-id": {Since: metav1.NewTime(testkit.Noon), Quotes: quotes}}})
		w.looks(w.lubeck)
	}
	says(1)
	says(2)
	w.expectMarks(&v1alpha1.MemberMarks{Since: metav1.NewTime(testkit.Noon), Quotes: 1})
	w.Clock.Step(introductionPause)
	w.looks(w.lubeck)
	w.expectMarks(&v1alpha1.MemberMarks{Since: metav1.NewTime(testkit.Noon), Quotes: 2})
	// Of two Messages that mark the same member, the newer one counts.
	w.Clock.Step(introductionPause)
	w.says(keyOf("hamburg"), v1alpha1.MembersNamespace, "marks.0", trust.Statement{Type: trust.Marks, From: "hamburg-id", Sequence: 1},
		exchange.Marks{Members: map[string]v1alpha1.MemberMarks{"wismar-id": {Since: metav1.NewTime(testkit.Noon), Quotes: 9}}})
	w.looks(w.lubeck)
	w.expectMarks(&v1alpha1.MemberMarks{Since: metav1.NewTime(testkit.Noon), Quotes: 2})
}

// What is no sense, or not said by the broker, is refused, and counted. What is said of clusters that nobody knows, or of the reader, is left out.
func TestMarksThatAreNotBelieved(t *testing.T) {
	since := metav1.NewTime(testkit.Noon)
	of := func(id string, marks v1alpha1.MemberMarks) exchange.Marks {
		return exchange.Marks{Members: map[string]v1alpha1.MemberMarks{id: marks}}
	}
	good := of("wismar-id", v1alpha1.MemberMarks{Since: since, Quotes: 1})
	for name, test := range map[string]struct {
		key, from string
		body      any
		reasons   []string
	}{
		"signed by a member":         {"wismar", "hamburg-id", good, []string{v1alpha1.ReasonForged}},
		"said by a member":           {"wismar", "wismar-id", good, []string{v1alpha1.ReasonForged}},
		"said in a member's name":    {"hamburg", "wismar-id", good, []string{v1alpha1.ReasonForged}},
		"said by another broker":     {"bremen", "bremen-id", good, []string{v1alpha1.ReasonForged}},
		"of the broker itself":       {"hamburg", "hamburg-id", of("hamburg-id", v1alpha1.MemberMarks{Since: since}), []string{v1alpha1.ReasonMalformed}},
		"beyond all numbers":         {"hamburg", "hamburg-id", map[string]any{"members": map[string]any{"wismar-id": map[string]any{"since": since, "quotes": 1e18}}}, []string{v1alpha1.ReasonMalformed}},
		"below nothing":              {"hamburg", "hamburg-id", of("wismar-id", v1alpha1.MemberMarks{Since: since, Quotes: -1}), []string{v1alpha1.ReasonMalformed}},
		"of no sense":                {"hamburg", "hamburg-id", "hello", []string{v1alpha1.ReasonMalformed}},
		"of nobody that is known":    {"hamburg", "hamburg-id", of("visby-id", v1alpha1.MemberMarks{Since: since}), nil},
		"of the one who reads it":    {"hamburg", "hamburg-id", of("lubeck-id", v1alpha1.MemberMarks{Since: since}), nil},
		"of the reader, by a member": {"lubeck", "lubeck-id", good, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.rounds(2)
			w.says(keyOf(test.key), v1alpha1.MembersNamespace, "marks.1", trust.Statement{Type: trust.Marks, From: test.from, Sequence: 1}, test.body)
			w.expectRefused(func() { w.looks(w.lubeck); w.looks(w.lubeck) }, test.reasons...)
			w.expectMarks(nil)
			w.expectKnown(w.lubeck, w.wismar, "4")
			if known := w.lubeck.Names(&v1alpha1.MemberList{}, ""); len(known) != 1 {
				t.Errorf("lubeck knows %s", known)
			}
		})
	}
}

// Marks that nobody renews end, and are gone with the broker that has said them.
func TestMarksEnd(t *testing.T) {
	w := newWorld(t)
	w.rounds(2)
	w.marks()
	w.expectMarks(&v1alpha1.MemberMarks{Since: metav1.NewTime(testkit.Noon)})
	w.Clock.Step(marksLife)
	w.rounds(2)
	w.expectMarks(nil)
}
