// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/testkit"
)

var testSettings = &Config{ClusterID: here, Bounds: exchange.DefaultBounds(), SilenceTimeout: 30 * time.Minute}

// messageAt is a message of hamburg's that was made so long after the start.
func messageAt(sequence int64, after time.Duration, changes ...func(*spec)) spec {
	s := spec{
		ClusterID: "hamburg", Sequence: sequence, FullSequence: sequence,
		Availability: testkit.Quantities("cpu", "4", "memory", "8Gi", "pods", "10", "ephemeral-storage", "0"),
	}
	madeAt(after)(&s)
	for _, change := range changes {
		change(&s)
	}
	return s
}

// hears are the facts of a message that has just come in, beside the copy.
func hears(held *v1alpha1.Advertisement, message spec, decision policy.Decision, now time.Time) facts {
	f := facts{
		peer: &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "hamburg"}, Spec: v1alpha1.PeerSpec{ClusterID: "hamburg"}},
		copy: held, synced: true, offer: &v1alpha1.Advertisement{Spec: message},
		arrived: now, terms: termsOf(&message), answer: answer{decision: decision},
	}
	f.screened = testSettings.screen(f)
	return f
}

// stored is the copy after the outcome, or nil.
func stored(before *v1alpha1.Advertisement, o outcome, now time.Time) *v1alpha1.Advertisement {
	if o.spec == nil {
		return nil
	}
	held := &v1alpha1.Advertisement{}
	if before != nil {
		held = before.DeepCopy()
	}
	held.Spec = *o.spec.DeepCopy()
	o.record.store(held)
	if o.lapsed {
		delete(held.Annotations, v1alpha1.AnnotationDecision)
	}
	held.Status = answered(held.Status, 0, o.verdict, o, now)
	return held
}

func TestDecision(t *testing.T) {
	allowed := policy.Decision{Outcome: policy.Allow}
	inUse := func() *v1alpha1.Advertisement {
		return stored(nil, testSettings.decide(hears(nil, messageAt(5, 0), allowed, testkit.Noon), testkit.Noon), testkit.Noon)
	}
	waiting := func() *v1alpha1.Advertisement {
		return stored(inUse(), testSettings.decide(hears(inUse(), messageAt(6, 0), pending, testkit.Noon), testkit.Noon), testkit.Noon)
	}
	huge := func(s *spec) {
		for i := range 100 {
			name := fmt.Sprintf("%d/%s", i, strings.Repeat("x", 490))
			s.Images = append(s.Images, v1alpha1.Image{Names: []string{name, name + "a", name + "b", name + "c", name + "d"}})
		}
	}
	with := func(decision string) *v1alpha1.Advertisement {
		held := inUse()
		held.Annotations[v1alpha1.AnnotationDecision] = decision
		return held
	}
	expensive := func(s *spec) { s.Prices = &v1alpha1.Prices{Currency: "EUR"} }
	failing := func(f facts) facts {
		f.answer = answer{err: errors.New("too slow")}
		return f
	}
	type want struct {
		State    v1alpha1.AcknowledgementState
		Reason   string
		InForce  bool
		Sequence int64 // of the copy; -1 is none
		Taken    bool
		Lapsed   bool
	}
	const (
		yes   = v1alpha1.AcknowledgementAccepted
		maybe = v1alpha1.AcknowledgementPending
		no    = v1alpha1.AcknowledgementRefused
	)
	later := testkit.Noon.Add(time.Minute)
	for name, test := range map[string]struct {
		facts facts
		now   time.Time
		want  want
	}{
		"nothing is there":   {facts{peer: &v1alpha1.Peer{}}, later, want{Sequence: -1}},
		"the first is taken": {hears(nil, messageAt(5, 0), allowed, later), later, want{yes, v1alpha1.ReasonAccepted, true, 5, true, false}},
		"the next too":       {hears(inUse(), messageAt(6, 0), allowed, later), later, want{yes, v1alpha1.ReasonAccepted, true, 6, true, false}},
		"the same is not taken again": {
			hears(inUse(), messageAt(5, 0), allowed, later), later, want{yes, v1alpha1.ReasonAccepted, true, 5, false, false},
		},
		"an older one changes nothing": {
			hears(inUse(), messageAt(4, 0), denied, later), later, want{yes, v1alpha1.ReasonAccepted, true, 5, false, false},
		},
		"a correction is used": {hears(nil, messageAt(5, 0), capped, later), later, want{yes, v1alpha1.ReasonCorrected, true, 5, true, false}},
		"a refusal keeps what was, closed": {
			hears(inUse(), messageAt(6, 0), denied, later), later, want{no, v1alpha1.ReasonRefusedByPolicy, false, 5, false, false},
		},
		"a refusal of the first is shown": {
			hears(nil, messageAt(6, 0), denied, later), later, want{no, v1alpha1.ReasonRefusedByPolicy, false, 6, false, false},
		},
		"pending is shown": {
			hears(inUse(), messageAt(6, 0), pending, later), later, want{maybe, v1alpha1.ReasonPendingApproval, false, 6, false, false},
		},
		"a refusal after that is shown": {
			hears(waiting(), messageAt(7, 0), denied, later), later, want{no, v1alpha1.ReasonRefusedByPolicy, false, 7, false, false},
		},
		"one that can be accepted is": {
			hears(waiting(), messageAt(7, 0), allowed, later), later, want{yes, v1alpha1.ReasonAccepted, true, 7, true, false},
		},
		"older than what is pending changes nothing": {
			hears(waiting(), messageAt(5, 0), allowed, later), later, want{maybe, v1alpha1.ReasonPendingApproval, false, 6, false, false},
		},
		"pending is not shown if too much would be forgotten": {
			hears(stored(nil, testSettings.decide(hears(nil, messageAt(5, 0, huge), allowed, testkit.Noon), testkit.Noon), testkit.Noon),
				messageAt(6, 0), pending, later), later, want{maybe, v1alpha1.ReasonPendingApproval, false, 5, false, false},
		},
		"pending and approved": {
			hears(with("Accept"), messageAt(6, 0), pending, later), later, want{yes, v1alpha1.ReasonApproved, true, 6, true, false},
		},
		"approval lapses with the terms": {
			hears(with("Accept"), messageAt(6, 0, expensive), pending, later), later,
			want{maybe, v1alpha1.ReasonPendingApproval, false, 6, false, true},
		},
		"approval does not help against a policy": {
			hears(with("Accept"), messageAt(6, 0), denied, later), later, want{no, v1alpha1.ReasonRefusedByPolicy, false, 5, false, false},
		},
		"an administrator refuses": {
			hears(with("Refuse"), messageAt(6, 0), allowed, later), later, want{no, v1alpha1.ReasonRefusedByAdministrator, false, 5, false, false},
		},
		"which lapses with the terms": {
			hears(with("Refuse"), messageAt(6, 0, expensive), allowed, later), later, want{yes, v1alpha1.ReasonAccepted, true, 6, true, true},
		},
		"a word that is none does not count": {
			hears(with("Perhaps"), messageAt(6, 0), pending, later), later, want{maybe, v1alpha1.ReasonPendingApproval, false, 6, false, false},
		},
		"no answer leaves what is in use": {
			failing(hears(inUse(), messageAt(6, 0), allowed, later)), later, want{yes, v1alpha1.ReasonAccepted, true, 5, false, false},
		},
		"no answer to the first": {
			failing(hears(nil, messageAt(6, 0), allowed, later)), later, want{no, v1alpha1.ReasonPolicyFailed, false, 6, false, false},
		},
		"an answer that is none": {
			hears(nil, messageAt(6, 0), policy.Decision{}, later), later, want{no, v1alpha1.ReasonPolicyFailed, false, 6, false, false},
		},
		"a loop": {
			hears(inUse(), messageAt(6, 0, func(s *spec) {
				s.Nested = []v1alpha1.NestedOffer{{ClusterID: here, Availability: s.Availability}}
			}), allowed, later), later, want{no, v1alpha1.ReasonLoop, false, 5, false, false},
		},
		"another cluster": {
			hears(nil, messageAt(6, 0, func(s *spec) { s.ClusterID = "bremen" }), allowed, later), later,
			want{no, v1alpha1.ReasonClusterIDMismatch, false, 0, false, false},
		},
		"silence": {
			hears(inUse(), messageAt(5, 0), allowed, testkit.Noon), testkit.Noon.Add(30 * time.Minute), want{no, v1alpha1.ReasonExpired, false, 5, false, false},
		},
		"nobody to be heard": {
			facts{peer: &v1alpha1.Peer{}, copy: inUse()}, later, want{yes, v1alpha1.ReasonAccepted, true, 5, false, false},
		},
		"withdrawn": {facts{peer: &v1alpha1.Peer{}, copy: inUse(), withdrawn: true}, later, want{Sequence: -1}},
		"malformed": {
			facts{peer: &v1alpha1.Peer{}, copy: inUse(), malformed: errors.New("nonsense")},
			later,
			want{no, v1alpha1.ReasonMalformed, false, 5, false, false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := testSettings.decide(test.facts, test.now)
			got := want{o.verdict.state, o.verdict.reason, o.inForce(), -1, o.taken, o.lapsed}
			if o.spec != nil {
				got.Sequence = o.spec.Sequence
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("unexpected (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever a peer says and whenever, the sequence of what is kept never goes back, and nothing is used that is not
// allowed, has ended, or is of another cluster.
func TestSequenceNeverGoesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var held *v1alpha1.Advertisement
		now := testkit.Noon
		for range rapid.IntRange(1, 30).Draw(t, "messages") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "minutes")) * time.Minute)
			message := messageAt(rapid.Int64Range(0, 20).Draw(t, "sequence"),
				now.Sub(testkit.Noon)+time.Duration(rapid.IntRange(-40, 40).Draw(t, "clock"))*time.Minute,
				func(s *spec) {
					s.ClusterID = rapid.SampledFrom([]string{"hamburg", "hamburg", "hamburg", "bremen"}).Draw(t, "cluster")
					s.Phase = v1alpha1.OfferPhase(rapid.SampledFrom([]string{"", "", "", "Gone"}).Draw(t, "phase"))
				})
			decision := policy.Decision{
				Outcome: rapid.SampledFrom([]policy.Outcome{policy.Allow, policy.Deny, policy.Pend}).Draw(t, "decision"),
			}
			o := testSettings.decide(hears(held, message, decision, now), now)
			next := stored(held, o, now)
			switch {
			case held != nil && (next == nil || next.Spec.Sequence < held.Spec.Sequence):
				t.Fatalf("from %v to %v", held.Spec.Sequence, next)
			case next != nil && next.Spec.ClusterID != "hamburg":
				t.Fatalf("an offer of %s is kept", next.Spec.ClusterID)
			case o.inForce() && !o.spec.TimeToLive.After(now):
				t.Fatal("an offer is used that has ended")
			case o.taken && decision.Outcome != policy.Allow:
				t.Fatalf("an offer is used in spite of %s", decision.Outcome)
			}
			held = next
		}
	})
}

// What was accepted last is not forgotten while others wait or are refused: policies compare with it.
func TestWhatWasAcceptedIsRemembered(t *testing.T) {
	now := testkit.Noon
	hear := func(held *v1alpha1.Advertisement, sequence int64, decision policy.Decision, changes ...func(*spec)) *v1alpha1.Advertisement {
		message := messageAt(sequence, now.Sub(testkit.Noon), changes...)
		return stored(held, testSettings.decide(hears(held, message, decision, now), now), now)
	}
	expect := func(held *v1alpha1.Advertisement, want int64) {
		t.Helper()
		previous := previousOf(held)
		if previous == nil || previous.Sequence != want {
			t.Errorf("remembered is %+v, want that of sequence %d", previous, want)
		}
	}
	held := hear(nil, 1, pending)
	if previous := previousOf(held); previous != nil {
		t.Errorf("remembered is %+v before anything was accepted", previous)
	}
	held = hear(held, 2, policy.Decision{Outcome: policy.Allow})
	expect(held, 2)
	want := messageAt(2, 0)
	if diff := cmp.Diff(&want, previousOf(hear(held, 3, pending))); diff != "" {
		t.Errorf("remembered (-want +got):\n%s", diff)
	}
	held = hear(hear(held, 3, pending), 4, pending)
	expect(held, 2)
	held = hear(held, 5, denied)
	expect(held, 2)
	expect(hear(held, 6, policy.Decision{Outcome: policy.Allow}), 6)
	now = now.Add(time.Hour)
	expect(hear(held, 7, denied), 2)
}

func TestFingerprintOfTermsIsWhatIsComparedElsewhere(t *testing.T) {
	base := messageAt(1, 0)
	for name, change := range map[string]func(*spec){
		"availability":  func(s *spec) { s.Availability = testkit.Quantities("cpu", "1") },
		"largestPod":    func(s *spec) { s.LargestPod = testkit.Quantities("cpu", "1") },
		"sequences":     func(s *spec) { s.Sequence, s.FullSequence = 9, 9 },
		"times":         madeAt(time.Hour),
		"default phase": func(s *spec) { s.Phase = v1alpha1.OfferOpen },
		"phase":         func(s *spec) { s.Phase = v1alpha1.OfferCordoned },
		"guarantee":     func(s *spec) { s.Guarantee = testkit.Quantities("cpu", "1") },
		"ingress":       func(s *spec) { s.Ingress = &v1alpha1.IngressOffer{Hosts: []string{"*"}} },
		"prices": func(s *spec) {
			s.Prices = &v1alpha1.Prices{Currency: "EUR", PerHour: testkit.Quantities(string(corev1.ResourceCPU), "1m")}
		},
		"labels":     func(s *spec) { s.Labels = map[string]v1alpha1.Text{"a": "b"} },
		"flags":      func(s *spec) { s.Flags = map[string]v1alpha1.Text{"a": "b"} },
		"extensions": func(s *spec) { s.Extensions = map[string]v1alpha1.Extension{"a": "b"} },
		"nested":     func(s *spec) { s.Nested = []v1alpha1.NestedOffer{{ClusterID: "kiel"}} },
		"empty list": func(s *spec) { s.Nested = []v1alpha1.NestedOffer{} },
	} {
		t.Run(name, func(t *testing.T) {
			changed := messageAt(1, 0, change)
			if same := termsOf(&base) == termsOf(&changed); same != exchange.SameTerms(&base, &changed) {
				t.Errorf("same by fingerprint: %t, by comparison: %t", same, !same)
			}
		})
	}
}

func TestImagesVersionAndNetworkAreNoTerms(t *testing.T) {
	base := messageAt(1, 0)
	for name, change := range map[string]func(*spec){
		"images":  func(s *spec) { s.Images = []v1alpha1.Image{{Names: []string{"a"}}} },
		"version": func(s *spec) { s.KubernetesVersion = "v1.37.1" },
		"network": func(s *spec) { s.Network = &v1alpha1.Network{PodCIDRs: []v1alpha1.CIDR{"10.0.0.0/16"}} },
	} {
		if changed := messageAt(1, 0, change); termsOf(&base) != termsOf(&changed) {
			t.Errorf("other %s are other terms", name)
		}
	}
}
