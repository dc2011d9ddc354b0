// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// inBackground has calls run as in a real process, where they take until the peer answers.
func (w *world) inBackground() (answer func()) {
	answered := make(chan struct{})
	w.wait = answered
	w.calls.run = w.calls.group.Go
	return func() { close(answered) }
}

// lookOnce reconciles without telling the controller that anything has changed.
func (w *world) lookOnce(name string) reconcile.Result {
	w.t.Helper()
	result, err := w.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
	if err != nil {
		w.t.Fatal(err)
	}
	return result
}

func TestPeerThatDoesNotAnswerKeepsNobodyWaiting(t *testing.T) {
	other := peerOf(v1alpha1.RoleConsumer)
	other.Name, other.UID, other.Spec.ClusterID = "bremen", "other-uid", "c-bremen"
	w := newWorld(t, peerOf(v1alpha1.RoleProvider), other)
	answer := w.inBackground()
	for range 3 { // one call is enough
		w.lookOnce("hamburg")
	}
	if conditions := w.peer().Status.Conditions; len(conditions) > 0 {
		t.Errorf("the Peer says %v before anything is known", conditions)
	}
	w.lookOnce("bremen")
	w.get(v1alpha1.TenantNamespace("bremen"), v1alpha1.ClusterInfo, configMap("", ""))

	answer()
	for told := ""; told != "hamburg"; {
		select {
		case event := <-w.calls.ended:
			told = event.Object.GetName()
		case <-time.After(time.Minute):
			t.Fatal("nobody is told that the peer has answered")
		}
	}
	w.lookOnce("hamburg")
	w.expect(v1alpha1.ConditionReachable, yes, v1alpha1.ReasonReady)
	if asked := w.asked(); asked != 2 { // the first one is for the handshakes
		t.Errorf("asked %d times", asked)
	}
	writes := w.writes
	w.lookOnce("hamburg")
	if w.writes != writes || w.asked() != 2 {
		t.Error("the end of a call leads to another one")
	}
}

func TestWhatWasKnownStaysWhileAPeerIsAsked(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleProvider))
	w.reconcile()
	w.expect(v1alpha1.ConditionReachable, yes, v1alpha1.ReasonReady)
	answer := w.inBackground()
	w.remote.Refuse(readInfo, noAnswer)
	w.clock.SetTime(w.contact().probe.due)
	for range 3 {
		if pause := w.lookOnce("hamburg").RequeueAfter; pause < time.Second {
			t.Errorf("looks again in %s while the peer is asked", pause)
		}
	}
	w.expect(v1alpha1.ConditionReachable, yes, v1alpha1.ReasonReady)
	answer()
	<-w.calls.ended
	w.lookOnce("hamburg")
	w.expect(v1alpha1.ConditionReachable, no, v1alpha1.ReasonUnreachable)
}

func TestCallsEndWithTheProcess(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleProvider))
	answer := w.inBackground()
	w.lookOnce("hamburg")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := make(chan error, 1)
	go func() { ended <- w.calls.Start(ctx) }()
	select {
	case err := <-ended:
		t.Errorf("it ends while a call runs: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	answer()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestPeerThatItsNodeCannotReachIsAskedOnce(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleProvider), nodeThatShows("KubeletReady"))
	w.lookOnce("hamburg")
	w.nodeShows(v1alpha1.ReasonDisconnected)
	before := w.asked()
	for range 5 { // as the end of each call has it
		w.lookOnce("hamburg")
	}
	if asked := w.asked() - before; asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

func TestPeersWithoutRightsAreNotLookedAtAllTheTime(t *testing.T) {
	w := newJoinWorld(t, newPeer(v1alpha1.RoleProvider))
	w.noRights = func() bool { return true }
	for range 5 {
		if pause := w.lookOnce("hamburg").RequeueAfter; pause < lookSettling/2 {
			t.Errorf("looks again in %s", pause)
		}
	}
}
