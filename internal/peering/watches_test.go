// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestOnlySomeChangesOfAPeerCount(t *testing.T) {
	said := func(kind string, status metav1.ConditionStatus, at time.Time) func(*v1alpha1.Peer) {
		return func(p *v1alpha1.Peer) {
			p.Status.Conditions = []metav1.Condition{{
				Type: kind, Status: status, Reason: "Because", LastTransitionTime: metav1.NewTime(at),
			}}
		}
	}
	joined := said(v1alpha1.ConditionJoined, metav1.ConditionTrue, time.Unix(1, 0))
	for name, test := range map[string]struct {
		before, after func(*v1alpha1.Peer)
		want          bool
	}{
		"nothing":                        {joined, joined, false},
		"our invitation ends":            {joined, said(v1alpha1.ConditionJoined, metav1.ConditionFalse, time.Unix(1, 0)), true},
		"a time in the status":           {joined, said(v1alpha1.ConditionJoined, metav1.ConditionTrue, time.Unix(9, 0)), false},
		"the peer joins":                 {func(*v1alpha1.Peer) {}, said(v1alpha1.ConditionJoined, metav1.ConditionTrue, time.Unix(1, 0)), true},
		"our session ends":               {func(*v1alpha1.Peer) {}, said(v1alpha1.ConditionSession, metav1.ConditionFalse, time.Unix(1, 0)), true},
		"a condition that we write":      {func(*v1alpha1.Peer) {}, said(v1alpha1.ConditionReady, metav1.ConditionTrue, time.Unix(1, 0)), false},
		"the spec":                       {joined, func(p *v1alpha1.Peer) { joined(p); p.Generation++ }, true},
		"somebody takes a finalizer off": {func(p *v1alpha1.Peer) { p.Finalizers = []string{v1alpha1.FinalizerPeer} }, func(*v1alpha1.Peer) {}, true},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := &v1alpha1.Peer{}, &v1alpha1.Peer{}
			test.before(before)
			test.after(after)
			if got := peerChanges.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != test.want {
				t.Errorf("counts: %v, want %v", got, test.want)
			}
		})
	}
}
