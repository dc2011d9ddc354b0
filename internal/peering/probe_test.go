package peering

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// probed returns how often the peer was asked and our credentials were compared while f ran.
func (w *world) probed(f func()) (asked, compared int) {
	asked, compared = w.links.link.asked, w.links.ensured
	f()
	return w.links.link.asked - asked, w.links.ensured - compared
}

// nextProbe steps the clock to when the peer is to be probed, and reconciles.
func (w *world) nextProbe() {
	w.t.Helper()
	w.clock.SetTime(w.contact().probe.due)
	w.reconcile()
}

func TestProbeOfAPeerThatIsWellIsOneRequest(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleProvider))
	w.links.link.hello.RoundTrip = ms // so short that nobody cares by how much it varies
	w.reconcile()
	w.clock.Step(2 * firstRepair)
	w.reconcile() // what was made is looked at once more
	before, reads := w.writes, w.reads
	for end := w.contact().probe.fresh.Add(-time.Minute); w.clock.Now().Before(end); {
		if asked, compared := w.probed(w.nextProbe); asked != 1 || compared != 0 {
			t.Fatalf("asked %d times, looked %d times at our credentials", asked, compared)
		}
	}
	if w.writes != before || w.reads != reads {
		t.Errorf("%d writes and %d reads though nothing changed", w.writes-before, w.reads-reads)
	}
	w.clock.Step(2 * time.Minute)
	if asked, compared := w.probed(func() { w.reconcile() }); asked != 1 || compared != 1 {
		t.Errorf("after a while: asked %d times, looked %d times at our credentials", asked, compared)
	}
}

func TestPeerThatTakesExceptionToUsIsAskedWithTheNewestCredentials(t *testing.T) {
	for name, test := range map[string]struct {
		err             error
		asked, compared int
	}{
		"they may be too old":            {peers.ErrUnauthorized, 2, 1},
		"the link was closed":            {peers.ErrClosed, 2, 1},
		"they do not matter to the dead": {peers.ErrUnreachable, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, peerOf(v1alpha1.RoleProvider))
			w.reconcile()
			w.links.link.err = fmt.Errorf("%w: today", test.err)
			asked, compared := w.probed(func() {
				w.clock.SetTime(w.contact().probe.due)
				_, _ = w.tryReconcile()
			})
			if asked != test.asked || compared != test.compared {
				t.Errorf("asked %d times, looked %d times at our credentials", asked, compared)
			}
			w.links.link.err = nil
			if _, compared := w.probed(w.nextProbe); compared != 1 {
				t.Error("the next attempt is not with the newest credentials")
			}
		})
	}
}

func TestRenewedCredentialsAreTakenWithoutBlame(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleProvider))
	w.reconcile()
	w.links.link.err = peers.ErrUnauthorized
	w.links.renew = func(link *fakeLink) { link.err = nil } // the same link, with another token
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
