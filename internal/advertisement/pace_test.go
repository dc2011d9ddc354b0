// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

func TestChangesAreLookedAtAtOnceAndThenOncePerInterval(t *testing.T) {
	w := newWorld(t)
	var waits []time.Duration
	for range 5000 { // five seconds
		if wait, due := w.receiver.nextLookAt("hamburg", w.Clock.Now()); due {
			waits = append(waits, wait)
		}
		w.Clock.Step(time.Millisecond)
	}
	w.expect([]time.Duration{
		0, time.Second - time.Millisecond, time.Second, time.Second, time.Second, time.Second,
	}, waits)
	wait, due := w.receiver.nextLookAt("kiel", w.Clock.Now())
	if !due || wait != 0 {
		t.Errorf("another peer waits for %s", wait)
	}
}

// The queue has one place for each peer: a look that comes sooner, for another reason, is the one that was planned, and the
// next change plans another.
func TestALookThatComesSoonerIsTheOneThatWasPlanned(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.offered()
	w.receiver.nextLookAt("hamburg", w.Clock.Now())
	w.reconcile(w.receiver)
	w.Clock.Step(100 * time.Millisecond)
	if _, due := w.receiver.nextLookAt("hamburg", w.Clock.Now()); !due {
		t.Fatal("a change is not looked at")
	}
	if _, due := w.receiver.nextLookAt("hamburg", w.Clock.Now()); due {
		t.Error("two changes are looked at one by one")
	}
	w.reconcile(w.receiver)
	w.Clock.Step(100 * time.Millisecond)
	if wait, due := w.receiver.nextLookAt("hamburg", w.Clock.Now()); !due || wait > w.receiver.config.ReceiveInterval {
		t.Errorf("a change after that look is looked at: %t, after %s", due, wait)
	}
}

// A thousand changes in a second, and our own writes have it looked at too: what we write does not depend on how fast a peer is.
func TestPeerThatWritesWithoutEndCostsBoundedWrites(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.offered()
	w.reconcile(w.receiver)
	w.wrote()
	asked := w.policies.times(policy.Incoming)
	ad := w.theirs()
	for i := range 1000 {
		ad.Spec = w.offer(int64(i+2), func(s *spec) { s.FullSequence = s.Sequence })
		w.Away.Put(ad)
		result := w.reconcile(w.receiver)
		if result.RequeueAfter > time.Second {
			t.Fatalf("message %d is looked at after %s", i+2, result.RequeueAfter)
		}
		ad = w.theirs()
		w.Clock.Step(time.Millisecond)
	}
	if got := len(w.wrote()); got > 3 { // what one message costs
		t.Errorf("%d writes in a second", got)
	}
	w.Clock.Step(time.Second)
	w.expectWrites(3, w.receiver)
	w.expect(int64(1001), w.held().Spec.Sequence)
	w.expect(int64(1001), w.theirs().Status.Acknowledgement.Sequence)
	if got := w.policies.times(policy.Incoming) - asked; got > 2 {
		t.Errorf("the policies were asked %d times", got)
	}
}

// With far more the offer is too large for what is held of one peer, and does not come this far.
func TestTenThousandImagesAreRefusedAndNotStored(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.offered()
	w.reconcile(w.receiver)
	good := w.held()
	images := make([]any, 10_000)
	for i := range images {
		images[i] = map[string]any{"names": []any{fmt.Sprintf("registry.example/image:%d", i)}}
	}
	flooding := emptyAdvertisement()
	w.Away.Get(flooding, v1alpha1.TenantNamespace(here), "hamburg")
	if err := unstructured.SetNestedField(flooding.Object, images, "spec", "images"); err != nil {
		t.Fatal(err)
	}
	w.shows(flooding)
	w.Clock.Step(time.Second)
	w.reconcile(w.receiver)

	w.expect(good.Spec, w.held().Spec)
	w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonMalformed)
	w.expectAccepted(w.theirs(), metav1.ConditionFalse, v1alpha1.ReasonMalformed)
	w.expectAdvertised(metav1.ConditionFalse, v1alpha1.ReasonMalformed)
	w.expect(1, w.policies.times(policy.Incoming))
}
