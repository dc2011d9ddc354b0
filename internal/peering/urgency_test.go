// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// nodeThatShows is the virtual node of the peer, whose condition Ready has that reason.
func nodeThatShows(reason string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: v1alpha1.VirtualNodeName("hamburg"), Labels: map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode},
		},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Reason: reason}}},
	}
}

func (w *world) nodeShows(reason string) {
	w.t.Helper()
	w.nodeShowsBecause(reason, "")
}

func (w *world) nodeShowsBecause(reason, message string) {
	w.t.Helper()
	node := &corev1.Node{}
	w.get("", v1alpha1.VirtualNodeName("hamburg"), node)
	node.Status.Conditions[0].Reason, node.Status.Conditions[0].Message = reason, message
	if err := w.client.Status().Update(w.t.Context(), node); err != nil {
		w.t.Fatal(err)
	}
}

func TestPeerIsProbedAtOnceWhenItsNodeIsCutOff(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleProvider), nodeThatShows("KubeletReady"))
	w.reconcile()
	w.expect(v1alpha1.ConditionReachable, yes, v1alpha1.ReasonReady)
	if asked, _ := w.probed(func() { w.reconcile() }); asked != 0 {
		t.Fatalf("asked %d times though nothing is urgent", asked)
	}

	w.remote.Refuse(readInfo, noAnswer)
	w.nodeShows(v1alpha1.ReasonDisconnected)
	w.reconcile()
	w.expect(v1alpha1.ConditionReachable, no, v1alpha1.ReasonUnreachable)
	if asked, _ := w.probed(func() { w.reconcile() }); asked != 0 {
		t.Errorf("asked %d times though both agree that the peer is away", asked)
	}

	w.remote.Refuse(readInfo, nil)
	w.nodeShows("KubeletReady")
	w.reconcile()
	w.expect(v1alpha1.ConditionReachable, yes, v1alpha1.ReasonReady)
}

func TestManyPeersAreProbedLessOften(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleProvider))
	for i := range 999 {
		w.states[fmt.Sprint("other-", i)] = &state{}
	}
	w.reconcile()
	if due := w.contact().probe.due.Sub(w.clock.Now()); due < 100*time.Second || due > 120*time.Second {
		t.Errorf("one of a thousand is probed again after %s", due)
	}
}

func TestOnlySomeChangesOfANodeCount(t *testing.T) {
	ready, cut, other := nodeThatShows("KubeletReady"), nodeThatShows(v1alpha1.ReasonDisconnected), nodeThatShows("NodeStatusUnknown")
	tooMuch := nodeThatShows(v1alpha1.ReasonOverBudget)
	physical := nodeThatShows(v1alpha1.ReasonDisconnected)
	physical.Labels = nil
	for name, test := range map[string]struct {
		before, after *corev1.Node
		want          bool
	}{
		"cut off":                     {ready, cut, true},
		"healed":                      {cut, ready, true},
		"still cut off":               {cut, cut, false},
		"sends too much":              {ready, tooMuch, true},
		"cut off for another reason":  {cut, tooMuch, true},
		"not ready for other reasons": {ready, other, false},
		"no virtual node":             {ready, physical, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := nodeTurned.Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after}); got != test.want {
				t.Errorf("counts: %v, want %v", got, test.want)
			}
		})
	}
}

func TestPeerThatExceedsItsBudgetSaysSoUntilThatIsOver(t *testing.T) {
	const atNode = "Nothing more is taken from the peer: ask its administrator"
	few := &peers.Subject{Example: &corev1.ConfigMap{}, MostObjects: 1}
	tests := map[string]struct{ begin, end func(w *world) }{
		"in the manager": {
			func(w *world) {
				w.away.Put(configMap(there, "too-much"))
				w.links.Link(w.peer()).Follow(few, there)
			},
			func(w *world) {
				w.away.Remove(configMap(there, "too-much"))
				w.remote.Heal() // all is read again
			},
		},
		"in the kubelet": {
			func(w *world) { w.nodeShowsBecause(v1alpha1.ReasonOverBudget, atNode) },
			func(w *world) { w.nodeShows("KubeletReady") },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, peerOf(v1alpha1.RoleProvider), nodeThatShows("KubeletReady"))
			w.reconcile() // makes the tenant namespace
			w.advertises(yes, v1alpha1.ReasonAccepted)
			w.reconcile()
			w.expect(v1alpha1.ConditionWithinBudget, yes, v1alpha1.ReasonReady)
			w.expect(v1alpha1.ConditionReady, yes, v1alpha1.ReasonReady)

			test.begin(w)
			w.reconcile()
			for _, kind := range []string{v1alpha1.ConditionWithinBudget, v1alpha1.ConditionReady} {
				w.expect(kind, no, v1alpha1.ReasonOverBudget)
				told := said(w.peer(), kind).message
				if !strings.Contains(told, "Nothing more is taken") || !strings.Contains(told, "ask its administrator") {
					t.Errorf("%s tells no cause or no remedy: %s", kind, told)
				}
			}
			w.expectNoWrites()

			test.end(w)
			w.reconcile()
			w.expect(v1alpha1.ConditionWithinBudget, yes, v1alpha1.ReasonReady)
			w.expect(v1alpha1.ConditionReady, yes, v1alpha1.ReasonReady)
			w.expectNoWrites()
		})
	}
}
