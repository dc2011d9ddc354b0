// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"crypto/ed25519"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/testkit"
	"github.com/hanse-dev/hanse/internal/trust"
)

func TestNobodyDisagreesByAnOutage(t *testing.T) {
	w := newWorld(t)
	w.runs("web", "6", testkit.Noon)
	w.periods(1)
	w.runs("short", "6", testkit.Noon.Add(DefaultPeriod))
	w.way.Cut()
	w.periods(1)
	w.expectAgreed(w.borrowed(), metav1.ConditionUnknown, v1alpha1.ReasonUnreachable)
	if got := inWords(w.borrowed().Own()); got != " used 0.5 reserved  cost 0.06 EUR" {
		t.Errorf("it has counted %s", got)
	}
	remote, home := testkit.Pod(twin, "short", "worker"), testkit.Pod("shop", "short", v1alpha1.VirtualNodeName("hamburg"))
	for _, pod := range []*corev1.Pod{remote, home} {
		pod.Status.Phase = corev1.PodSucceeded
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(testkit.Noon.Add(2 * DefaultPeriod))},
		}}}
	}
	w.provider.podChanged(t.Context(), remote, noQueue{})
	w.periods(4)
	w.expectAgreed(w.lent(), metav1.ConditionUnknown, v1alpha1.ReasonNotCounted, "The consumer has not counted for some time")
	w.EventReasons()

	w.way.Heal()
	w.consumer.podChanged(t.Context(), home, noQueue{}) // it is heard of long after its end
	w.periods(1)
	w.expect(" used 4 reserved  cost 0.48 EUR")
	w.expectBothAgree()
	w.ExpectEvents()
}

func TestAHostileProviderIsNotCopied(t *testing.T) {
	w := newWorld(t)
	w.runs("web", "6", testkit.Noon)
	w.periods(1)
	for name, by := range map[string]func(*v1alpha1.AccountCount){
		"a huge exponent":    func(c *v1alpha1.AccountCount) { c.Entries[0].Used["cpu"] = "1e999999999" },
		"a name of no form":  func(c *v1alpha1.AccountCount) { c.Entries[0].Application = "\x1b[2J" },
		"more than fits":     func(c *v1alpha1.AccountCount) { c.Entries = make([]v1alpha1.AccountEntry, 1000) },
		"until another year": func(c *v1alpha1.AccountCount) { c.CountedUntil.Time = testkit.Noon.AddDate(100, 0, 0) },
	} {
		before, lied := w.borrowed().Status.AccountCount, w.lent()
		by(&lied.Status.AccountCount)
		if err := w.there.Client.Status().Update(t.Context(), lied); err != nil {
			t.Fatal(err)
		}
		w.Reconcile(w.consumer, "borrowed", "hamburg")
		w.expectAgreed(w.borrowed(), metav1.ConditionFalse, v1alpha1.ReasonInvalidCount)
		if diff := cmp.Diff(before, w.borrowed().Status.AccountCount); diff != "" {
			t.Errorf("%s was copied:\n%s", name, diff)
		}
		lied = w.lent()
		lied.Status.AccountCount = before
		if err := w.there.Client.Status().Update(t.Context(), lied); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAHostileConsumerIsTold(t *testing.T) {
	w := newWorld(t)
	w.runs("web", "6", testkit.Noon)
	w.periods(1)
	before := w.lent()
	lied := before.DeepCopy()
	lied.Spec.Entries[0].Used["cpu"] = "-1"
	lied.Spec.Entries[0].Application = "\x1b[2J"
	if err := w.there.Client.Update(t.Context(), lied); err != nil {
		t.Fatal(err)
	}
	w.Reconcile(w.provider, "lent", "lubeck")
	w.expectAgreed(w.lent(), metav1.ConditionFalse, v1alpha1.ReasonInvalidCount, "The count of the consumer is none")
	if diff := cmp.Diff(before.Status.AccountCount, w.lent().Status.AccountCount); diff != "" {
		t.Errorf("it changes what the provider has counted:\n%s", diff)
	}
}

// Who holds the session of the consumer, and not its key, cannot say what it has used; nor can who may write at the provider say what that one
// has counted.
func TestACountIsThePeersOnlyIfItHasSignedIt(t *testing.T) {
	resigned := func(change func(*trust.Statement, *exchange.SignedCount), key ed25519.PrivateKey) func(*world, *v1alpha1.AccountCount) {
		return func(w *world, c *v1alpha1.AccountCount) {
			body := exchange.CountToSign(c, "consumer", testkit.Noon)
			said := trust.Statement{Type: trust.Account, From: "lubeck-id", To: "hamburg-id", Sequence: 1, Expires: w.Clock.Now().Add(time.Hour)}
			change(&said, &body)
			var err error
			if c.Signed, err = trust.SignStatement(key, said, body); err != nil {
				w.Fatal(err)
			}
		}
	}
	for name, test := range map[string]struct {
		by     func(*world, *v1alpha1.AccountCount)
		status metav1.ConditionStatus
		reason string
	}{
		"less was used":      {func(_ *world, c *v1alpha1.AccountCount) { c.Entries[0].Used["cpu"] = "0.4" }, metav1.ConditionFalse, v1alpha1.ReasonForged},
		"it is another hour": {func(_ *world, c *v1alpha1.AccountCount) { c.CountedUntil.Time = c.CountedUntil.Add(time.Minute) }, metav1.ConditionFalse, v1alpha1.ReasonForged},
		"it is not signed":   {func(_ *world, c *v1alpha1.AccountCount) { c.Signed = nil }, metav1.ConditionUnknown, v1alpha1.ReasonUnsigned},
		"by another key":     {resigned(func(*trust.Statement, *exchange.SignedCount) {}, hamburgKey), metav1.ConditionFalse, v1alpha1.ReasonForged},
		"for another":        {resigned(func(s *trust.Statement, _ *exchange.SignedCount) { s.To = "riga-id" }, lubeckKey), metav1.ConditionFalse, v1alpha1.ReasonMisaddressed},
		"as the provider": {
			resigned(func(_ *trust.Statement, c *exchange.SignedCount) { c.By = "provider" }, lubeckKey), metav1.ConditionFalse, v1alpha1.ReasonForged,
		},
		"of another day": {
			resigned(func(_ *trust.Statement, c *exchange.SignedCount) { c.Day = "2001-01-01" }, lubeckKey), metav1.ConditionFalse, v1alpha1.ReasonForged,
		},
		"another statement": {resigned(func(s *trust.Statement, _ *exchange.SignedCount) { s.Type = trust.Quote }, lubeckKey), metav1.ConditionFalse, v1alpha1.ReasonMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.runs("web", "6", testkit.Noon)
			w.periods(1)
			w.expectBothAgree()
			lied := w.lent()
			test.by(w, &lied.Spec.AccountCount)
			if err := w.there.Client.Update(t.Context(), lied); err != nil {
				t.Fatal(err)
			}
			refused := peers.StatementsRefused.WithLabelValues("lubeck", test.reason)
			before := testkit.Counted(t, refused)
			for range 2 {
				w.Reconcile(w.provider, "lent", "lubeck")
			}
			w.expectAgreed(w.lent(), test.status, test.reason, "the count of the consumer")
			if more := testkit.Counted(t, refused) - before; more != 1 {
				t.Errorf("it counts %d times", more)
			}
			w.periods(1)
			w.expectBothAgree() // the consumer has said it anew
		})
	}
}

func TestWhatTheProviderHasNotSignedIsNotCopied(t *testing.T) {
	for name, test := range map[string]struct {
		by     func(*v1alpha1.AccountCount)
		status metav1.ConditionStatus
		reason string
	}{
		"more was used":   {func(c *v1alpha1.AccountCount) { c.Entries[0].Used["cpu"] = "7" }, metav1.ConditionFalse, v1alpha1.ReasonForged},
		"until no time":   {func(c *v1alpha1.AccountCount) { c.CountedUntil, c.Signed = nil, nil }, metav1.ConditionUnknown, v1alpha1.ReasonUnsigned},
		"nothing at all":  {func(c *v1alpha1.AccountCount) { *c = v1alpha1.AccountCount{Signed: c.Signed} }, metav1.ConditionUnknown, v1alpha1.ReasonNotCounted},
		"nothing is used": {func(c *v1alpha1.AccountCount) { c.Entries = nil }, metav1.ConditionFalse, v1alpha1.ReasonForged},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.runs("web", "6", testkit.Noon)
			w.periods(1)
			before, lied := w.borrowed().Status.AccountCount, w.lent()
			test.by(&lied.Status.AccountCount)
			if err := w.there.Client.Status().Update(t.Context(), lied); err != nil {
				t.Fatal(err)
			}
			w.Reconcile(w.consumer, "borrowed", "hamburg")
			w.expectAgreed(w.borrowed(), test.status, test.reason, "he provider")
			if diff := cmp.Diff(before, w.borrowed().Status.AccountCount); diff != "" {
				t.Errorf("it was copied:\n%s", diff)
			}
		})
	}
}

// What was signed of a count can be proven to others, from what either side keeps of it.
func TestWhatIsKeptProvesWhatWasSigned(t *testing.T) {
	w := newWorld(t)
	w.runs("web", "6", testkit.Noon)
	w.periods(1)
	for _, account := range []*v1alpha1.Account{w.lent(), w.borrowed()} {
		for by, count := range map[string]*v1alpha1.AccountCount{"consumer": &account.Spec.AccountCount, "provider": &account.Status.AccountCount} {
			from, to, key := "lubeck-id", "hamburg-id", lubeckKey
			if by == "provider" {
				from, to, key = to, from, hamburgKey
			}
			body := exchange.CountToSign(count, by, testkit.Noon)
			if _, err := (trust.Expected{Type: trust.Account, From: from, Pinned: trust.PublicKeyOf(key), To: to, Same: body.Same}).Verify(count.Signed); err != nil {
				t.Errorf("%s, of the %s: %v", account.Name, by, err)
			}
		}
	}
}

func TestAPeerWithoutAccounts(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*world, *v1alpha1.Peer)
		text   string
	}{
		"one without Hanse": {func(_ *world, peer *v1alpha1.Peer) { peer.Spec.Mode = v1alpha1.ModeAgentless }, "without Hanse"},
		"one that has not counted": {func(w *world, _ *v1alpha1.Peer) {
			w.provider.podGone(t.Context(), testkit.Pod(twin, "web", ""), noQueue{})
		}, "The provider has not counted yet"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.runs("web", "6", testkit.Noon.Add(time.Minute))
			peer := providerPeer()
			test.change(w, peer)
			w.here.Put(peer)
			w.periods(1)
			w.expectAgreed(w.borrowed(), metav1.ConditionUnknown, v1alpha1.ReasonNotCounted, test.text)
			if got := inWords(w.borrowed().Own()); got != " used 0.4 reserved  cost 0.048 EUR" {
				t.Errorf("it has counted %s", got)
			}
		})
	}
}

func TestAPeerThatIsGoneIsForgotten(t *testing.T) {
	w := newWorld(t)
	w.runs("web", "6", testkit.Noon)
	if err := w.there.Server.Delete(t.Context(), testkit.Peer("lubeck")); err != nil {
		t.Fatal(err)
	}
	w.Clock.Step(2 * DefaultPeriod)
	if result := w.Reconcile(w.provider, "lent", "lubeck"); result.RequeueAfter != 0 || w.lent().UID != "" {
		t.Errorf("it is counted: %+v", result)
	}
}
