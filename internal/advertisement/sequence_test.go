// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// remade has hamburg's administrator delete the advertisement, and its manager make it again at once.
func (w *world) remade(sequence int64) {
	w.Helper()
	w.Clock.Step(w.receiver.config.ReceiveInterval)
	ad := w.theirs()
	w.Away.Remove(ad)
	w.Away.Put(&v1alpha1.Advertisement{
		ObjectMeta: metav1.ObjectMeta{Namespace: ad.Namespace, Name: ad.Name, UID: ad.UID + "-again"}, Spec: w.offer(sequence),
	})
}

func TestNoSequenceWedgesAnOffer(t *testing.T) {
	for name, test := range map[string]struct {
		stuck int64
		next  func(*world)
	}{
		"the next message, behind the end":  {math.MaxInt64, func(w *world) { w.says(w.offer(w.Clock.Now().UnixMilli())) }},
		"the object, made again at the end": {math.MaxInt64, func(w *world) { w.remade(7) }},
		"the object, made again":            {math.MaxInt64/2 + 8, func(w *world) { w.remade(7) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.peer(v1alpha1.RoleProvider)
			w.offered(func(s *spec) { s.Sequence = test.stuck })
			w.reconcile(w.receiver)
			w.expect(test.stuck, w.held().Spec.Sequence)
			test.next(w)
			w.reconcile(w.receiver)
			w.expectAccepted(w.theirs(), metav1.ConditionTrue, v1alpha1.ReasonAccepted)
			w.expect(w.theirs().Spec.Sequence, w.held().Spec.Sequence)
			w.expectWrites(0, w.receiver)
		})
	}
}

func TestSequenceBeginsAgainBehindItsEnd(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleConsumer)
	w.node("a", "4")
	w.reconcile(w.publisher)
	last := w.ours()
	last.Spec.Sequence = math.MaxInt64
	w.Home.Put(last)
	w.Clock.Step(10 * time.Minute)
	w.expectWrites(1, w.publisher)
	w.expect(w.Clock.Now().UnixMilli(), w.ours().Spec.Sequence)
}
