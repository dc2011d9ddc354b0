// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// partedByForce is a world after a forced parting, in which the peer does not answer.
func partedByForce(t *testing.T, roles ...v1alpha1.PeerRole) *world {
	t.Helper()
	w := newWorld(t, peerOf(roles...))
	w.reconcile()
	if w.peer().HasRole(v1alpha1.RoleConsumer) {
		w.joins()
	}
	if w.peer().HasRole(v1alpha1.RoleProvider) {
		w.linked()
	}
	w.refuseWork(noAnswer)
	w.partBy(v1alpha1.PartingForced)
	w.finish()
	return w
}

// lookAfter has the controller look at the tombstone, and returns when it wants to again.
func (w *world) lookAfter() time.Duration {
	w.t.Helper()
	return w.reconcile().RequeueAfter
}

func (w *world) tombstoneStands() bool { return w.exists("", tenant, &corev1.Namespace{}) }

func TestTombstoneIsKeptForItsTime(t *testing.T) {
	w := partedByForce(t, v1alpha1.RoleConsumer)
	if pause := w.lookAfter(); pause < 29*24*time.Hour || pause > 30*24*time.Hour {
		t.Errorf("looks again in %s", pause)
	}
	w.clock.Step(30*24*time.Hour - time.Second)
	if w.lookAfter(); !w.tombstoneStands() {
		t.Error("the tombstone is gone before its time")
	}
	w.clock.Step(time.Second)
	if w.lookAfter(); w.tombstoneStands() {
		t.Error("the tombstone is left after its time")
	}
}

func TestStatementIsDeliveredWhenThePeerAnswers(t *testing.T) {
	w := partedByForce(t, v1alpha1.RoleProvider)
	for _, pause := range []time.Duration{time.Minute, time.Minute, 2 * time.Minute, 4 * time.Minute} {
		if got := w.lookAfter(); got.Round(2*time.Second) != pause {
			t.Errorf("tries again in %s, want %s", got, pause)
		}
		w.clock.Step(pause)
	}
	w.clock.Step(24 * time.Hour)
	if got := w.lookAfter(); got != time.Hour {
		t.Errorf("after a day it tries again in %s", got)
	}

	w.refuseWork(nil)
	w.lookAfter()
	got := w.remoteClaim().Spec
	expectStatements(t, map[string]string{"claim": got.Tombstone}, map[string]string{"claim": "their-invitation"})
	if got.Phase != v1alpha1.ClaimLeaving {
		t.Errorf("phase %q", got.Phase)
	}
	if w.tombstoneStands() {
		t.Error("the tombstone has served and is left")
	}
}

func TestWhatThePeerHasToFindStaysAfterDelivery(t *testing.T) {
	w := partedByForce(t, v1alpha1.RoleProvider, v1alpha1.RoleConsumer)
	w.refuseWork(nil)
	if pause := w.lookAfter(); pause < 29*24*time.Hour {
		t.Errorf("looks again in %s", pause)
	}
	got := w.stone("ServiceAccount hanse-peer", "Secret hanse-session", "ConfigMap hanse-tombstone")
	if len(got) != 1 || got["statement"] == "" {
		t.Errorf("statements %v", got)
	}
	if !w.tombstoneStands() {
		t.Error("the tombstone is gone")
	}
}

func TestPeerThatForgotUsNeedsNoStatement(t *testing.T) {
	w := partedByForce(t, v1alpha1.RoleProvider)
	w.refuseWork(nil)
	w.away.Remove(w.remoteClaim())
	if w.lookAfter(); w.tombstoneStands() {
		t.Error("the tombstone is left")
	}
}

func TestOnlyTombstonesAreEnded(t *testing.T) {
	t.Run("a new Peer of the name", func(t *testing.T) {
		w := partedByForce(t, v1alpha1.RoleProvider)
		peer := peerOf(v1alpha1.RoleProvider)
		peer.UID = "new"
		w.create(peer)
		w.refuseWork(nil)
		if w.lookAfter(); w.remoteClaim().Spec.Phase != "" {
			t.Error("a new peer is told that we have left it")
		}
	})
	t.Run("a tenant namespace", func(t *testing.T) {
		w := newWorld(t, tenantNamespace(peerOf()))
		if w.lookAfter(); !w.tombstoneStands() {
			t.Error("it is gone")
		}
	})
	t.Run("a namespace of another name", func(t *testing.T) {
		w := newWorld(t, namespace(tenant, map[string]string{
			"hanse.dev/type": "tombstone", "hanse.dev/peer": "bremen", "hanse.dev/managed": "true",
		}))
		if w.lookAfter(); !w.tombstoneStands() {
			t.Error("it is gone")
		}
	})
}
