// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers/peerstest"
)

// probed returns how often the peer was asked and our credentials were compared while f ran.
func (w *world) probed(f func()) (asked, compared int) {
	asked, compared = w.asked(), w.links.CredentialReads()
	f()
	return w.asked() - asked, w.links.CredentialReads() - compared
}

// nextProbe steps the clock to when the peer is to be probed, and reconciles.
func (w *world) nextProbe() {
	w.t.Helper()
	w.clock.SetTime(w.contact().probe.due)
	w.reconcile()
}

func TestProbeOfAPeerThatIsWellIsOneRequest(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleProvider))
	w.roundTrip = ms // so short that nobody cares by how much it varies
	w.reconcile()
	w.clock.Step(2 * firstRepair)
	w.reconcile() // what was made is looked at once more
	before, reads := w.writes, w.reads
	for end := w.clock.Now().Add(credentialsPeriod - 2*firstRepair); w.clock.Now().Before(end); {
		if asked, compared := w.probed(w.nextProbe); asked != 1 || compared != 0 && w.clock.Now().Before(end) {
			t.Fatalf("asked %d times, looked %d times at our credentials", asked, compared)
		}
	}
	w.clock.Step(credentialsPeriod)
	if asked, compared := w.probed(func() { w.reconcile() }); asked != 1 || compared != 1 {
		t.Errorf("after a while: asked %d times, looked %d times at our credentials", asked, compared)
	}
	if w.writes != before || w.reads != reads {
		t.Errorf("%d writes and %d reads though nothing changed", w.writes-before, w.reads-reads)
	}
}

func TestRenewedCredentialsAreTakenWithoutBlame(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleProvider))
	w.reconcile()
	w.remote.Renew(there, "renewed")
	reads := w.links.CredentialReads()
	w.remote.OnRequest(func(peerstest.Request) error { // the peer takes the new token alone
		if w.links.CredentialReads() == reads {
			return unauthorized
		}
		return nil
	})
	before := w.writes
	w.nextProbe()
	w.expect(v1alpha1.ConditionAuthenticated, yes, v1alpha1.ReasonReady)
	if w.writes != before {
		t.Error("the peer was blamed for our old token")
	}
}

func TestWhatAMereProviderMustNotHaveIsLookedForTwice(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleProvider))
	account := func() client.Object { return serviceAccount(tenant, v1alpha1.PeerServiceAccount) }
	w.reconcile()
	w.create(account()) // by somebody who does not know yet
	w.clock.Step(2 * firstRepair)
	w.reconcile()
	if w.exists(tenant, v1alpha1.PeerServiceAccount, &corev1.ServiceAccount{}) {
		t.Error("it has an identity here")
	}
}
