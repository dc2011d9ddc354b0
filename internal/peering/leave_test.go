// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// part deletes the Peer, and sets the clock to that.
func (w *world) part() {
	w.t.Helper()
	w.remove(w.peer())
	if peer := (&v1alpha1.Peer{}); w.exists("", "hamburg", peer) {
		w.clock.SetTime(peer.DeletionTimestamp.Time)
	}
}

// partBy deletes the Peer in that mode.
func (w *world) partBy(mode v1alpha1.PartingMode) {
	w.t.Helper()
	peer := w.peer()
	peer.Spec.Parting = &v1alpha1.PeerParting{Mode: mode}
	w.update(peer)
	w.part()
}

// finish reconciles until the Peer is gone.
func (w *world) finish() {
	w.t.Helper()
	for range 5 {
		if !w.exists("", "hamburg", &v1alpha1.Peer{}) {
			return
		}
		w.reconcile()
	}
	w.t.Errorf("the Peer is left, and says %q", w.waitsFor())
}

// waitsFor returns what the parting waits for.
func (w *world) waitsFor() string {
	w.t.Helper()
	w.expect(v1alpha1.ConditionReady, no, v1alpha1.ReasonParting)
	return meta.FindStatusCondition(w.peer().Status.Conditions, v1alpha1.ConditionReady).Message
}

func (w *world) expectWait(want string) {
	w.t.Helper()
	w.reconcile()
	if got := w.waitsFor(); !strings.Contains(got, want) {
		w.t.Errorf("%q does not say %q", got, want)
	}
	w.expectNoWrites()
}

func (w *world) remoteClaim() *v1alpha1.PeeringClaim {
	w.t.Helper()
	return testkit.Get[v1alpha1.PeeringClaim](w.away, there, v1alpha1.PeeringClaimName)
}

func virtualNode() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "hanse-hamburg", Labels: map[string]string{"hanse.dev/type": "virtual-node"},
	}}
}

func remoteMapping() *v1alpha1.NamespaceMapping {
	return &v1alpha1.NamespaceMapping{ObjectMeta: metav1.ObjectMeta{
		Namespace: there, Name: "shop", Finalizers: []string{v1alpha1.FinalizerNamespaceMapping},
	}}
}

func TestConsumerLeavesStepByStep(t *testing.T) {
	node := virtualNode()
	w := newWorld(t, peerOf(v1alpha1.RoleProvider), node)
	mapping := remoteMapping()
	w.away.Put(mapping)
	w.reconcile()
	w.linked()
	w.part()

	w.expectWait("virtual node hanse-hamburg")
	w.remove(node)
	w.expectWait("namespaces there")
	w.away.Get(mapping, there, mapping.Name)
	if mapping.DeletionTimestamp.IsZero() || w.remoteClaim().Spec.Phase != "" {
		t.Error("we must first end our namespaces, and then take leave")
	}
	mapping.Finalizers = nil
	w.away.Put(mapping)
	w.finish()
	if got := w.remoteClaim().Spec.Phase; got != v1alpha1.ClaimLeaving {
		t.Errorf("the claim says %q", got)
	}
	if w.exists("", tenant, &corev1.Namespace{}) {
		t.Error("the tenant namespace is left")
	}
}

// Credentials may lead to a cluster that is another peer of ours.
func TestNothingIsEndedAtAnotherCluster(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleProvider))
	mapping := remoteMapping()
	w.away.Put(mapping)
	w.reconcile()
	w.linked()
	w.introduces(peers.ClusterInfo{ClusterID: "bremen", Version: hamburg.Version})
	w.part()
	w.finish()
	w.away.Get(mapping, there, mapping.Name)
	if !mapping.DeletionTimestamp.IsZero() || w.remoteClaim().Spec.Phase != "" {
		t.Error("the parting from one peer has ended what we have at another")
	}
}

// An older Peer may stand for the same cluster: what we have there is had by that one.
func TestNothingIsEndedThatAnOlderPeerHas(t *testing.T) {
	peer := peerOf(v1alpha1.RoleProvider)
	peer.Spec.ClusterID, peer.CreationTimestamp = "c-hamburg", metav1.NewTime(start)
	w := newWorld(t, peer)
	mapping := remoteMapping()
	w.away.Put(mapping)
	w.reconcile()
	w.linked()
	w.create(namesakeOf("altona", "c-hamburg", v1alpha1.RoleProvider))
	w.reconcile()
	w.expect(v1alpha1.ConditionReachable, metav1.ConditionUnknown, v1alpha1.ReasonClusterIDTaken)
	w.part()
	w.finish()
	w.away.Get(mapping, there, mapping.Name)
	if !mapping.DeletionTimestamp.IsZero() || w.remoteClaim().Spec.Phase != "" {
		t.Error("the parting by a second Peer has ended what the first one has")
	}
}

func TestConsumerWaitsForItsProvider(t *testing.T) {
	for name, test := range map[string]struct {
		refuse error
		says   string
	}{
		"no answer":    {noAnswer, "to answer"},
		"unauthorized": {unauthorized, "to accept our credentials"},
		"suspended":    {forbidden, "suspended us"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, peerOf(v1alpha1.RoleProvider))
			w.reconcile()
			w.linked()
			w.part()
			w.refuseWork(test.refuse)
			w.expectWait(test.says)
			if !strings.Contains(w.waitsFor(), "--force") {
				t.Error("no way out is named")
			}
			w.clock.Step(24 * time.Hour)
			w.expectWait(test.says)
			w.refuseWork(nil)
			w.finish()
		})
	}
}

func TestLeavingIsDoneWhenThePeerKnowsUsNoMore(t *testing.T) {
	t.Run("the claim is gone", func(t *testing.T) {
		w := newWorld(t, peerOf(v1alpha1.RoleProvider))
		w.reconcile()
		w.linked()
		w.part()
		w.away.Remove(w.remoteClaim())
		w.finish()
	})
	t.Run("we were killed right after we had taken leave", func(t *testing.T) {
		w := newWorld(t, peerOf(v1alpha1.RoleProvider))
		w.reconcile()
		w.linked()
		w.part()
		w.refuse = func(o client.Object) error {
			if o.GetName() == "hanse-link" {
				return peers.ErrClosed
			}
			return nil
		}
		if _, err := w.tryReconcile(); err == nil || w.remoteClaim().Spec.Phase != v1alpha1.ClaimLeaving {
			t.Errorf("got %v, in phase %q", err, w.remoteClaim().Spec.Phase)
		}
		w.refuse = nil
		w.refuseWork(unauthorized)
		w.finish()
	})
	t.Run("we have never joined", func(t *testing.T) {
		w := newWorld(t, peerOf(v1alpha1.RoleProvider))
		w.remote.RemoveCredentials()
		w.reconcile()
		w.part()
		w.finish()
	})
}

func TestProviderRevokesAfterTheAcknowledgement(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleConsumer))
	w.reconcile()
	answer := w.joins()
	w.part()
	w.expectWait("to leave")
	binding := &rbacv1.RoleBinding{}
	w.get(tenant, v1alpha1.ClusterRolePeerTenant, binding)
	if len(binding.Subjects) == 0 {
		t.Error("the peer needs its rights to leave")
	}
	answer.Spec.Phase = v1alpha1.ClaimLeaving
	w.update(answer)
	w.finish()
	if w.exists("", tenant, &corev1.Namespace{}) {
		t.Error("the tenant namespace is left")
	}
}

func TestProviderDoesNotWaitForWhoNeverJoined(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleConsumer))
	w.reconcile()
	w.part()
	w.finish()
	if w.exists("", tenant, &corev1.Namespace{}) {
		t.Error("the tenant namespace is left")
	}
}

func TestDeletedPeerLeavesNothing(t *testing.T) {
	twin := namespace("shop-hamburg-123456", map[string]string{"hanse.dev/type": "twin", "hanse.dev/peer": "hamburg"})
	other := namespace("shop-bremen-123456", map[string]string{"hanse.dev/type": "twin", "hanse.dev/peer": "bremen"})
	mapping := remoteMapping()
	mapping.Namespace = tenant
	w := newWorld(t, peerOf(v1alpha1.RoleConsumer), twin, other, mapping)
	w.reconcile()
	w.part()

	w.expectWait("namespaces in this cluster")
	w.get(tenant, "shop", mapping)
	if mapping.DeletionTimestamp.IsZero() || !w.exists(tenant, manager, &rbacv1.RoleBinding{}) {
		t.Error("mappings must be ended first, while the right to do so is still there")
	}
	mapping.Finalizers = nil
	w.update(mapping)
	w.reconcile()
	if !w.exists("", tenant, &corev1.Namespace{}) {
		t.Error("the tenant namespace must wait for the twins")
	}
	w.remove(twin)
	w.finish()
	if w.exists("", tenant, &corev1.Namespace{}) || !w.exists("", other.Name, &corev1.Namespace{}) {
		t.Error("the tenant namespace must go, and another peer's twin stay")
	}
}

func TestEndOfANamespaceIsAwaitedWithoutRightsInIt(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleProvider, v1alpha1.RoleConsumer))
	w.reconcile()
	ns := &corev1.Namespace{}
	w.get("", tenant, ns)
	ns.Finalizers = []string{"kubernetes"}
	w.update(ns)
	w.partBy(v1alpha1.PartingForgotten)
	w.expectWait("namespace " + tenant)
	w.noRights = func() bool { return true }
	w.expectWait("namespace " + tenant)
	w.get("", tenant, ns)
	ns.Finalizers = nil
	w.update(ns)
	w.finish()
}

func TestPeerThatIsDeletedAtOnceGoesToo(t *testing.T) {
	peer := peerOf(v1alpha1.RoleConsumer)
	peer.Finalizers = []string{v1alpha1.FinalizerPeer}
	w := newWorld(t, peer, tenantNamespace(peer)) // killed before anything was made in there
	w.part()
	w.noRights = func() bool { return !w.exists(tenant, manager, &rbacv1.RoleBinding{}) }
	w.finish()
}

func TestConsumerThatDoesNotLeaveInTimeIsPartedFromByForce(t *testing.T) {
	node := virtualNode()
	w := newWorld(t, peerOf(v1alpha1.RoleProvider, v1alpha1.RoleConsumer), node)
	w.reconcile()
	w.joins()
	w.linked()
	w.part()
	w.clock.Step(4 * time.Minute)
	if pause := w.reconcile().RequeueAfter; pause > time.Minute {
		t.Errorf("looks again in %s, after the deadline", pause)
	}
	w.clock.Step(time.Minute)
	w.expectWait("virtual node")
	w.expectNobodyHas(v1alpha1.ClusterRolePeerTenant)

	w.remove(node) // our own pods at the peer have all the time that they need
	w.finish()
	if got := w.remoteClaim().Spec.Phase; got != v1alpha1.ClaimLeaving {
		t.Errorf("our claim at the peer says %q", got)
	}
	w.stone("ServiceAccount hanse-peer", "Secret hanse-session", "ConfigMap hanse-tombstone")
}

func TestPartingGoesOnWhereverItWasInterrupted(t *testing.T) {
	for mode, check := range map[v1alpha1.PartingMode]func(*world){
		v1alpha1.PartingForced: func(w *world) {
			got := w.stone("ServiceAccount hanse-peer", "Secret hanse-session", "Secret hanse-link", "ConfigMap hanse-tombstone")
			expectStatements(w.t, got, map[string]string{"statement": "our-invitation"})
		},
		v1alpha1.PartingAgreed: func(w *world) {
			if w.exists("", tenant, &corev1.Namespace{}) || w.remoteClaim().Spec.Phase != v1alpha1.ClaimLeaving {
				w.t.Error("the tenant namespace is left, or the peer was not told")
			}
		},
	} {
		t.Run(string(mode), func(t *testing.T) {
			interruptions := 0
			for interrupted := true; interrupted; interruptions++ {
				w := newWorld(t, peerOf(v1alpha1.RoleProvider, v1alpha1.RoleConsumer), advertisement("10.0.0.0/16"))
				w.reconcile()
				answer := w.joins()
				answer.Spec.Phase = v1alpha1.ClaimLeaving
				w.update(answer)
				w.linked()
				w.partBy(mode)
				interrupted = w.interruptAfter(interruptions)
				w.finish()
				check(w)
			}
			t.Logf("%d writes", interruptions)
			if interruptions < 5 {
				t.Error("that cannot have been all")
			}
		})
	}
}

// interruptAfter reconciles and kills us after so many writes. It reports whether that came to pass.
func (w *world) interruptAfter(writes int) bool {
	w.t.Helper()
	w.refuse = func(client.Object) error {
		if writes--; writes < 0 {
			return peers.ErrClosed
		}
		return nil
	}
	for range 3 {
		if _, err := w.tryReconcile(); err != nil || !w.exists("", "hamburg", &v1alpha1.Peer{}) {
			break
		}
	}
	w.refuse = nil
	w.restart()
	return writes < 0
}
