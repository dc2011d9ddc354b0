// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type spec = v1alpha1.AdvertisementSpec

func TestGoodOfferIsCopiedAndAnswered(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.offered(func(s *spec) { s.Flags = map[string]v1alpha1.Text{"unheard-of": "kept"} })

	w.expectWrites(3, w.receiver) // copy, its status, the answer

	held := w.held()
	w.expect(w.theirs().Spec, held.Spec)
	w.expect(v1alpha1.Text("kept"), held.Spec.Flags["unheard-of"])
	w.expect("hamburg", held.Labels[v1alpha1.LabelPeer])
	w.expectAccepted(held, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	w.expectAccepted(w.theirs(), metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	w.expect(&v1alpha1.Acknowledgement{State: v1alpha1.AcknowledgementAccepted, Reason: v1alpha1.ReasonAccepted, Sequence: 1},
		w.theirs().Status.Acknowledgement)
	w.expect(w.theirs().Generation, w.theirs().Status.ObservedGeneration)
	w.expectAdvertised(metav1.ConditionTrue, v1alpha1.ReasonAccepted)

	result := w.expectWrites(0, w.receiver)
	w.expect(5*time.Minute, result.RequeueAfter)
}

func TestRenewalCostsOneWriteAndAFullMessageIsAnswered(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.offered()
	w.reconcile(w.receiver)

	w.Clock.Step(10 * time.Minute)
	w.says(w.offer(2, func(s *spec) { s.Availability["cpu"] = resource.MustParse("2") }))
	w.expectWrites(1, w.receiver)
	w.expect(resource.MustParse("2"), w.held().Spec.Availability[corev1.ResourceCPU])
	w.expect(int64(1), w.theirs().Status.Acknowledgement.Sequence)
	w.expectWrites(0, w.receiver)

	w.Clock.Step(10 * time.Minute)
	w.says(w.offer(3, func(s *spec) { s.FullSequence = 3 }))
	w.expectWrites(3, w.receiver)
	w.expect(int64(3), w.theirs().Status.Acknowledgement.Sequence)
	w.expect(w.theirs().Generation, w.theirs().Status.ObservedGeneration)
	w.expectWrites(0, w.receiver)

	w.says(w.offer(4, func(s *spec) { s.FullSequence = 4e18 })) // which it has not sent
	w.expectWrites(3, w.receiver)
	w.expectWrites(0, w.receiver)
}

// An answer that was lost is given later, although nothing new came in.
func TestLostAnswerIsGivenAgain(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.offered()
	w.reconcile(w.receiver)
	w.says(w.offer(2, func(s *spec) { s.FullSequence = 2 }))
	w.reconcile(w.receiver)
	ad := w.theirs()
	ad.Status = v1alpha1.AdvertisementStatus{}
	w.Away.Put(ad)

	w.expectWrites(1, w.receiver)
	w.expect(int64(2), w.theirs().Status.Acknowledgement.Sequence)
}

// The bad inputs: refused with a reason in the provider's object, and what was accepted before is kept, but closed.
func TestBadOfferIsRefused(t *testing.T) {
	available := func(name corev1.ResourceName, quantity string) func(*spec) {
		return func(s *spec) { s.Availability[name] = resource.MustParse(quantity) }
	}
	for name, test := range map[string]struct {
		change func(*spec)
		reason string
	}{
		"negative quantity": {available("memory", "-1Gi"), v1alpha1.ReasonInvalidQuantity},
		"absurd quantity":   {available("cpu", "1e12"), v1alpha1.ReasonInvalidQuantity},
		"missing quantity":  {func(s *spec) { delete(s.Availability, "pods") }, v1alpha1.ReasonInvalidQuantity},
		"expired": {func(s *spec) {
			s.Timestamp, s.TimeToLive = metav1.NewTime(testkit.Noon.Add(-time.Minute)), metav1.NewTime(testkit.Noon.Add(-time.Second))
		}, v1alpha1.ReasonExpired},
		"clock of the future": {madeAt(time.Hour), v1alpha1.ReasonClockSkew},
		"clock of next year":  {madeAt(365 * 24 * time.Hour), v1alpha1.ReasonClockSkew},
		"clock of last year":  {madeAt(-365 * 24 * time.Hour), v1alpha1.ReasonClockSkew},
		"loop": {func(s *spec) {
			s.Nested = []v1alpha1.NestedOffer{{ClusterID: here, Availability: s.Availability}}
		}, v1alpha1.ReasonLoop},
		"unknown phase":         {func(s *spec) { s.Phase = "Gone" }, v1alpha1.ReasonInvalidField},
		"label that is none":    {func(s *spec) { s.Labels = map[string]v1alpha1.Text{"a": "two words"} }, v1alpha1.ReasonInvalidField},
		"pod range that is not": {func(s *spec) { s.Network = &v1alpha1.Network{PodCIDRs: []v1alpha1.CIDR{"everything"}} }, v1alpha1.ReasonInvalidField},
	} {
		t.Run(name+" at first", func(t *testing.T) {
			w := newWorld(t)
			w.peer(v1alpha1.RoleProvider)
			w.offered(test.change)
			w.reconcile(w.receiver)

			w.expectAccepted(w.held(), metav1.ConditionFalse, test.reason)
			w.expectAccepted(w.theirs(), metav1.ConditionFalse, test.reason)
			w.expect(v1alpha1.AcknowledgementRefused, w.theirs().Status.Acknowledgement.State)
			w.expectAdvertised(metav1.ConditionFalse, test.reason)
			w.expectWrites(0, w.receiver)

			w.says(w.offer(2))
			w.reconcile(w.receiver)
			w.expectAccepted(w.held(), metav1.ConditionTrue, v1alpha1.ReasonAccepted)
			w.expectAdvertised(metav1.ConditionTrue, v1alpha1.ReasonAccepted)
		})
		t.Run(name+" after a good one", func(t *testing.T) {
			w := newWorld(t)
			w.peer(v1alpha1.RoleProvider)
			w.offered()
			w.reconcile(w.receiver)
			good := w.held()
			w.says(w.offer(2, test.change))
			w.reconcile(w.receiver)

			w.expect(good.Spec, w.held().Spec)
			w.expect(good.Generation, w.held().Generation)
			for _, ad := range []*v1alpha1.Advertisement{w.held(), w.theirs()} {
				w.expectAccepted(ad, metav1.ConditionFalse, test.reason)
				w.expect(v1alpha1.AcknowledgementRefused, ad.Status.Acknowledgement.State)
				w.expect(test.reason, ad.Status.Acknowledgement.Reason)
				w.expect(int64(2), ad.Status.Acknowledgement.Sequence)
			}
			w.expectAdvertised(metav1.ConditionFalse, test.reason)
			w.expectWrites(0, w.receiver)

			w.says(w.offer(3))
			w.reconcile(w.receiver)
			w.expectAccepted(w.held(), metav1.ConditionTrue, v1alpha1.ReasonAccepted)
			w.expectAdvertised(metav1.ConditionTrue, v1alpha1.ReasonAccepted)
			w.expectWrites(0, w.receiver)
		})
	}
}

// madeAt makes a message that was made so long after the start, by the clock of the sender.
func madeAt(after time.Duration) func(*spec) {
	return func(s *spec) {
		s.Timestamp, s.TimeToLive = metav1.NewTime(testkit.Noon.Add(after)), metav1.NewTime(testkit.Noon.Add(after+30*time.Minute))
	}
}

func TestOfferOfAnotherClusterIsRefusedAndNeverStored(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.offered(func(s *spec) { s.ClusterID = "bremen" })
	w.reconcile(w.receiver)

	w.expect(spec{ClusterID: "hamburg", Timestamp: metav1.NewTime(testkit.Noon), TimeToLive: metav1.NewTime(testkit.Noon.Add(time.Second)), Availability: testkit.Quantities()}, w.held().Spec)
	w.expectAccepted(w.theirs(), metav1.ConditionFalse, v1alpha1.ReasonClusterIDMismatch)
	w.expectAdvertised(metav1.ConditionFalse, v1alpha1.ReasonClusterIDMismatch)
	w.expectWrites(0, w.receiver)
}

// A message from before is told that it is, and changes nothing else.
func TestReplayChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.offered(func(s *spec) { s.Sequence = 9 })
	w.reconcile(w.receiver)
	before := w.held()
	w.says(w.offer(8))
	w.expectWrites(1, w.receiver)

	w.expect(v1alpha1.ReasonStale, w.theirs().Status.Acknowledgement.Reason)
	w.expectAccepted(w.theirs(), metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	w.expect(before, w.held())
	w.expectAdvertised(metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	w.expectWrites(0, w.receiver)

	w.Clock.Step(30 * time.Minute) // nor does it count as a renewal
	w.says(w.offer(8))
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonExpired)
}

func TestReplayOfWhatWasNotAcceptedChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.offered(func(s *spec) { s.Sequence, s.Phase = 9, "Gone" })
	w.reconcile(w.receiver)
	w.says(w.offer(8))
	w.reconcile(w.receiver)
	w.expect(v1alpha1.ReasonStale, w.theirs().Status.Acknowledgement.Reason)
	w.expect(int64(9), w.held().Spec.Sequence)
	w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonInvalidField)
	w.expectWrites(0, w.receiver)
}

func TestOfferEndsWhenTheProviderIsSilent(t *testing.T) {
	for name, life := range map[string]time.Duration{
		"its time to live passes":            30 * time.Minute,
		"or before, if renewals are missing": 24 * time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.peer(v1alpha1.RoleProvider)
			w.offered(func(s *spec) { s.TimeToLive = metav1.NewTime(testkit.Noon.Add(life)) })
			w.reconcile(w.receiver)

			w.Clock.Step(30*time.Minute - time.Second)
			result := w.expectWrites(0, w.receiver)
			w.expect(time.Second, result.RequeueAfter)

			w.Clock.Step(time.Second)
			w.reconcile(w.receiver)
			w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonExpired)
			w.expect(v1alpha1.ReasonExpired, w.theirs().Status.Acknowledgement.Reason)
			w.expectAdvertised(metav1.ConditionFalse, v1alpha1.ReasonExpired)
			w.expectWrites(0, w.receiver)

			w.says(w.offer(2)) // a late renewal brings it back
			w.reconcile(w.receiver)
			w.expectAccepted(w.held(), metav1.ConditionTrue, v1alpha1.ReasonAccepted)
			w.expectAdvertised(metav1.ConditionTrue, v1alpha1.ReasonAccepted)
		})
	}
}

func TestCutLinkLeavesTheCopyUntilItExpires(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.offered()
	w.reconcile(w.receiver)

	w.peers.Links.Close("hamburg")
	w.Clock.Step(20 * time.Minute)
	w.expectWrites(0, w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionTrue, v1alpha1.ReasonAccepted)

	w.Clock.Step(10 * time.Minute)
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonExpired)
	w.expectAdvertised(metav1.ConditionFalse, v1alpha1.ReasonExpired)
	w.expectWrites(0, w.receiver)
}

// A provider that does not take our answers cannot put off the end of its offer by that.
func TestProviderThatCannotBeAnswered(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.offered()
	answered := w.Away.Refuse("patch/status", apierrors.NewForbidden(schema.GroupResource{}, "hamburg", nil))
	result := w.reconcile(w.receiver)
	w.expect(lookSoon, result.RequeueAfter)
	w.expectAccepted(w.held(), metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	w.expectAdvertised(metav1.ConditionTrue, v1alpha1.ReasonAccepted)

	answered()
	w.reconcile(w.receiver)
	w.expectAccepted(w.theirs(), metav1.ConditionTrue, v1alpha1.ReasonAccepted)
}

func TestWithdrawnOfferIsNotAccepted(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	ad := w.offered()
	w.reconcile(w.receiver)

	w.peers.Links.Close("hamburg")
	w.hamburg.Silence()
	w.connect()
	w.expectWrites(0, w.receiver) // the mirror is empty, which proves nothing

	w.hamburg.Heal()
	w.Away.Remove(ad)
	w.Clock.Step(time.Minute)
	w.reconcile(w.receiver)
	if w.held() != nil {
		t.Error("the copy is still there")
	}
	w.expectWrites(0, w.receiver)

	w.Clock.Step(time.Minute)
	w.offered(func(s *spec) { s.Sequence = 0 }) // a provider that was set up anew may begin anew
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionTrue, v1alpha1.ReasonAccepted)
}

func TestPeerWithoutOfferOrLinkHasNoCopy(t *testing.T) {
	for name, arrange := range map[string]func(*world){
		"no offer":       func(*world) {},
		"no link":        func(w *world) { w.peers.Links.Close("hamburg") },
		"not synced yet": func(w *world) { w.hamburg.Silence() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.peer(v1alpha1.RoleProvider)
			arrange(w)
			w.expectWrites(0, w.receiver)
		})
	}
}

func TestPhaseIsTakenIn(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.offered()
	w.reconcile(w.receiver)
	for i, phase := range []v1alpha1.OfferPhase{
		v1alpha1.OfferCordoned, v1alpha1.OfferDraining, v1alpha1.OfferLeaving, v1alpha1.OfferOpen,
	} {
		w.says(w.offer(int64(i+2), func(s *spec) { s.Phase, s.FullSequence = phase, int64(i+2) }))
		w.reconcile(w.receiver)
		w.expect(phase, w.held().Spec.Phase)
		w.expectAccepted(w.held(), metav1.ConditionTrue, v1alpha1.ReasonAccepted)
		w.expect(int64(i+2), w.theirs().Status.Acknowledgement.Sequence)
		w.expectWrites(0, w.receiver)
	}
}

func TestPeerOfOurOwnIDIsRefusedAndOurOfferKept(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.ClusterID = "hamburg" })
	w.peer(v1alpha1.RoleProvider, v1alpha1.RoleConsumer)
	w.expectWrites(0, w.receiver)
}

func TestCopyGoesWithTheRole(t *testing.T) {
	w := newWorld(t)
	peer := w.peer(v1alpha1.RoleProvider)
	w.offered()
	w.reconcile(w.receiver)

	w.Home.Get(peer, "", peer.Name)
	peer.Spec.Roles = []v1alpha1.PeerRole{v1alpha1.RoleConsumer}
	w.Home.Put(peer)
	w.reconcile(w.receiver)

	if w.held() != nil {
		t.Error("the copy is still there")
	}
	w.expect(0, len(w.hamburg.Follows()))
	w.expectWrites(0, w.receiver)
}

// Of two Peers that stand for one cluster only one has its offer, or what it offers would count twice.
func TestNothingIsTakenFromASecondPeerOfACluster(t *testing.T) {
	w := newWorld(t)
	peer := w.peer(v1alpha1.RoleProvider)
	w.offered()
	w.reconcile(w.receiver)

	says := func(reason string) {
		t.Helper()
		w.Home.Get(peer, "", peer.Name)
		peer.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAuthenticated, Status: metav1.ConditionFalse, Reason: reason}}
		if err := w.Home.Server.Status().Update(t.Context(), peer); err != nil {
			t.Fatal(err)
		}
		w.reconcile(w.receiver)
	}
	says(v1alpha1.ReasonClusterIDTaken)
	if w.held() != nil {
		t.Error("the copy is still there")
	}
	says(v1alpha1.ReasonUnauthorized)
	if w.held() == nil {
		t.Error("there is no copy when the other Peer is gone")
	}
}

func TestNewLinkIsWatchedAnew(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.offered()
	w.reconcile(w.receiver)
	w.hamburg.Rejoin(v1alpha1.TenantNamespace(here))
	w.connect()
	w.says(w.offer(2))
	w.reconcile(w.receiver)
	w.expect(int64(2), w.held().Spec.Sequence)
	w.expect([]string{"Advertisement in " + v1alpha1.TenantNamespace(here)}, w.hamburg.Follows())
}

func TestConfigIsValidated(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		good   bool
	}{
		"the defaults":                  {func(*Config) {}, true},
		"no cluster id":                 {func(c *Config) { c.ClusterID = "" }, false},
		"no workers":                    {func(c *Config) { c.Workers = -1 }, false},
		"renewals rarer than the bound": {func(c *Config) { c.RenewInterval = time.Hour }, false},
		"an interval below zero":        {func(c *Config) { c.MinInterval = -1 }, false},
		"more images than are allowed":  {func(c *Config) { c.MaxImages = 101 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{ClusterID: here, Namespace: "hanse-system"}
			config.Default()
			test.change(&config)
			if err := config.Validate(); (err == nil) != test.good {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestBoundsOfMessages(t *testing.T) {
	o := (&Config{}).decide(facts{peer: &v1alpha1.Peer{}, malformed: errors.New(strings.Repeat("x", 5000))}, testkit.Noon)
	if len(o.verdict.message) != maxMessage {
		t.Errorf("message has %d bytes", len(o.verdict.message))
	}
}

// without is the error of a cluster without Hanse of which no offer can be made.
type without struct{}

func (without) Error() string { return "no right" }
func (without) NoOffer() (reason, message string) {
	return v1alpha1.ReasonAgentless, "A right is missing"
}

// The link to a cluster without Hanse shows the offer that we make for it.
func TestOfferThatIsMadeAtHomeIsKeptAndAnsweredNowhereElse(t *testing.T) {
	w := newWorld(t)
	peer := w.peer(v1alpha1.RoleProvider)
	peer.Spec.Mode, peer.Spec.Namespaces = v1alpha1.ModeAgentless, []string{"guests"}
	w.Home.Put(peer)
	w.policies.say(policy.Incoming, denied, nil)
	w.hamburg.Fail(without{})
	w.reconcile(w.receiver)
	if message := w.expectAdvertised(metav1.ConditionFalse, v1alpha1.ReasonAgentless); message != "A right is missing" {
		t.Errorf("message %q", message)
	}
	w.expectWrites(0, w.receiver)

	w.offered()
	w.hamburg.Heal()
	w.Clock.Step(w.receiver.config.ReceiveInterval)
	w.expectWrites(2, w.receiver) // copy and its status
	w.expectAdvertised(metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	w.expect((*v1alpha1.Acknowledgement)(nil), w.theirs().Status.Acknowledgement)

	w.hamburg.Fail(without{})
	w.reconcile(w.receiver)
	w.expectAdvertised(metav1.ConditionFalse, v1alpha1.ReasonAgentless)
	w.expect(w.theirs().Spec, w.held().Spec)

	w.hamburg.Heal()
	w.reconcile(w.receiver)
	w.expectAdvertised(metav1.ConditionTrue, v1alpha1.ReasonAccepted)
}
