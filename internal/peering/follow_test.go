// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// expectFollowed sees that the Peer was deleted in that mode, with an event.
func (w *world) expectFollowed(mode v1alpha1.PartingMode) {
	w.t.Helper()
	w.recorder.events = nil
	w.reconcile()
	peer := w.peer()
	if peer.DeletionTimestamp.IsZero() || peer.Parting().Mode != mode {
		w.t.Errorf("deleted at %v, mode %s", peer.DeletionTimestamp, peer.Parting().Mode)
	}
	w.expectEventCount(1)
}

func (w *world) expectStays() {
	w.t.Helper()
	w.reconcile()
	if !w.peer().DeletionTimestamp.IsZero() {
		w.t.Error("the Peer is deleted")
	}
	w.expectNoWrites()
}

func TestProviderThatLeavesIsLeft(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleProvider), advertisement("10.0.0.0/16"))
	offer := &v1alpha1.Advertisement{}
	for _, phase := range []v1alpha1.OfferPhase{v1alpha1.OfferOpen, v1alpha1.OfferDraining} {
		w.get(tenant, "c-hamburg", offer)
		offer.Spec.Phase = phase
		w.update(offer)
		w.expectStays()
	}
	offer.Spec.Phase = v1alpha1.OfferLeaving
	w.update(offer)
	w.expectFollowed(v1alpha1.PartingAgreed)
}

func TestConsumerThatLeavesIsLeft(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleConsumer))
	w.reconcile()
	answer := w.joins()
	answer.Spec.Phase = v1alpha1.ClaimJoined
	w.update(answer)
	w.expectStays()
	answer.Spec.Phase = v1alpha1.ClaimLeaving
	w.update(answer)
	w.expectFollowed(v1alpha1.PartingAgreed)
	w.finish()
	if w.exists("", tenant, &corev1.Namespace{}) {
		t.Error("the tenant namespace is left")
	}
}

func TestConsumerThatComesBackFindsTheTombstone(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleProvider))
	w.remote.Refuse(readInfo, forbidden)
	w.keepsTombstone(theirTombstone(t, theirKey, "their-invitation"))
	w.expectFollowed(v1alpha1.PartingForgotten)
	w.finish()
}

func TestNothingIsDeletedWithoutAValidTombstone(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		text   string
		reason string
	}{
		"unauthorized": {unauthorized, "", v1alpha1.ReasonUnauthorized},
		"suspended":    {forbidden, "", v1alpha1.ReasonForbidden},
		"a tombstone while we are let in": {
			nil, theirTombstone(t, theirKey, "their-invitation"), v1alpha1.ReasonReady,
		},
		"another's tombstone":               {forbidden, theirTombstone(t, ourKey, "their-invitation"), v1alpha1.ReasonForbidden},
		"the tombstone of a former peering": {forbidden, theirTombstone(t, theirKey, "former"), v1alpha1.ReasonForbidden},
		"nonsense":                          {forbidden, "{}", v1alpha1.ReasonForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, peerOf(v1alpha1.RoleProvider))
			w.remote.Refuse(readInfo, test.err)
			w.keepsTombstone(test.text)
			w.expectStays()
			status := no
			if test.err == nil {
				status = yes
			}
			w.expect(v1alpha1.ConditionAuthenticated, status, test.reason)
		})
	}
}

func TestTombstoneInAClaimIsVerified(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleConsumer))
	w.reconcile()
	answer := w.joins()
	w.reconcile()
	w.expectEventCount(2)
	answer.Spec.Phase, answer.Spec.Tombstone = v1alpha1.ClaimLeaving, theirTombstone(t, ourKey, "our-invitation")
	w.update(answer)
	w.expectStays()
	w.expectEventCount(1)

	answer.Spec.Tombstone = theirTombstone(t, theirKey, "our-invitation")
	w.update(answer)
	w.expectFollowed(v1alpha1.PartingForgotten)
	w.finish()
}

func TestPeerWithoutAPinnedKeyIsNotBelieved(t *testing.T) {
	peer := peerOf(v1alpha1.RoleProvider)
	peer.Spec.PublicKey = ""
	w := newWorld(t, peer)
	w.remote.Refuse(readInfo, forbidden)
	w.keepsTombstone(theirTombstone(t, theirKey, "their-invitation"))
	w.expectStays()
}

func TestPartingConsumerFindsTheTombstone(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleProvider), virtualNode())
	w.reconcile()
	w.linked()
	w.part()
	w.expectWait("virtual node")
	w.refuseWork(forbidden)
	w.keepsTombstone(theirTombstone(t, theirKey, "their-invitation"))
	w.reconcile()
	if mode := w.peer().Parting().Mode; mode != v1alpha1.PartingForgotten {
		t.Errorf("mode %s", mode)
	}
	w.remove(virtualNode())
	w.finish()
}
