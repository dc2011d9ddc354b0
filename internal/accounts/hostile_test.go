package accounts

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
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
			peer := testkit.Peer("hamburg", v1alpha1.RoleProvider)
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
