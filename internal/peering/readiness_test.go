// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestReadySumsUp(t *testing.T) {
	const provider, consumer = v1alpha1.RoleProvider, v1alpha1.RoleConsumer
	type says map[string]condition // what other packages say
	hasJoined := condition{status: yes, reason: v1alpha1.ReasonJoined}
	isAdvertised := condition{status: yes, reason: v1alpha1.ReasonAccepted}
	tests := map[string]struct {
		roles   []v1alpha1.PeerRole
		says    says
		missing bool // there is no Secret hanse-link
		joining bool // there is a Secret hanse-join
		status  metav1.ConditionStatus
		reason  string
		message string
	}{
		"discovered": {status: no, reason: v1alpha1.ReasonDiscovered},
		"invited": {
			roles: []v1alpha1.PeerRole{consumer}, says: says{v1alpha1.ConditionJoined: {status: no, reason: v1alpha1.ReasonInvited}},
			status: no, reason: v1alpha1.ReasonInvited,
		},
		"consumer": {
			roles: []v1alpha1.PeerRole{consumer}, says: says{v1alpha1.ConditionJoined: hasJoined}, status: yes, reason: v1alpha1.ReasonReady,
		},
		"provider": {
			roles: []v1alpha1.PeerRole{provider}, says: says{v1alpha1.ConditionAdvertised: isAdvertised}, status: yes, reason: v1alpha1.ReasonReady,
		},
		"shortened session": {
			roles: []v1alpha1.PeerRole{provider},
			says: says{
				v1alpha1.ConditionAdvertised: isAdvertised,
				v1alpha1.ConditionSession:    {status: no, reason: v1alpha1.ReasonSessionShortened},
			},
			status: yes, reason: v1alpha1.ReasonReady,
		},
		"ended session": {
			roles: []v1alpha1.PeerRole{provider},
			says: says{
				v1alpha1.ConditionAdvertised: isAdvertised,
				v1alpha1.ConditionSession:    {status: no, reason: v1alpha1.ReasonUnauthorized},
			},
			status: no, reason: v1alpha1.ReasonUnauthorized, message: "As Session says",
		},
		"link made by hand": {
			roles: []v1alpha1.PeerRole{provider},
			says: says{
				v1alpha1.ConditionAdvertised: isAdvertised,
				v1alpha1.ConditionSession:    {status: unsure, reason: v1alpha1.ReasonNotInvited},
			},
			status: yes, reason: v1alpha1.ReasonReady,
		},
		"both directions": {
			roles: []v1alpha1.PeerRole{provider, consumer},
			says:  says{v1alpha1.ConditionJoined: hasJoined, v1alpha1.ConditionAdvertised: isAdvertised}, status: yes, reason: v1alpha1.ReasonReady,
		},
		"one direction": {
			roles: []v1alpha1.PeerRole{provider, consumer}, says: says{v1alpha1.ConditionJoined: hasJoined}, missing: true,
			status: yes, reason: v1alpha1.ReasonReady, message: "Only this direction",
		},
		"second direction on its way": {
			roles: []v1alpha1.PeerRole{provider, consumer}, says: says{v1alpha1.ConditionJoined: hasJoined}, missing: true, joining: true,
			status: no, reason: v1alpha1.ReasonCredentialsMissing,
		},
		"neither direction": {
			roles:   []v1alpha1.PeerRole{provider, consumer},
			says:    says{v1alpha1.ConditionJoined: {status: no, reason: v1alpha1.ReasonInvitationExpired}},
			missing: true, status: no, reason: v1alpha1.ReasonInvitationExpired,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, peerOf(test.roles...))
			for kind, c := range test.says {
				if kind == v1alpha1.ConditionAdvertised {
					w.advertises(c.status, c.reason)
					continue
				}
				w.says(kind, c.status, c.reason)
			}
			w.reconcile() // makes the tenant namespace
			if test.missing {
				w.remote.RemoveCredentials()
				ours := &session{}
				if test.joining {
					ours.offer, ours.joining = &offer{}, waits("for the peer")
				}
				w.states["hamburg"] = &state{peer: w.peer().UID, contact: contact{session: ours}}
			}
			w.reconcile()
			w.expect(v1alpha1.ConditionReady, test.status, test.reason)
			ready := meta.FindStatusCondition(w.peer().Status.Conditions, v1alpha1.ConditionReady)
			if !strings.Contains(ready.Message, test.message) {
				t.Errorf("%q does not say %q", ready.Message, test.message)
			}
			w.expectNoWrites()
		})
	}
}

func TestConsumerOfAnotherVersionIsNoticed(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleConsumer))
	w.reconcile()
	answer := w.joins()
	answer.Spec.Version = "v0.9.0"
	w.update(answer)
	w.reconcile()
	w.expect(v1alpha1.ConditionCompatible, no, v1alpha1.ReasonIncompatibleVersion)
	w.expect(v1alpha1.ConditionReady, no, v1alpha1.ReasonIncompatibleVersion)
	if got := w.peer().Status.Version; got != "v0.9.0" {
		t.Errorf("version %q", got)
	}
	w.expectNoWrites()
}

func TestClaimOfAStrangerSaysNothing(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleConsumer))
	w.reconcile()
	answer := w.joins()
	answer.Status.Conditions = nil
	answer.Spec.Version, answer.Spec.Phase = "v0.9.0", v1alpha1.ClaimLeaving
	w.update(answer)
	w.reconcile()
	w.expect(v1alpha1.ConditionCompatible, unsure, v1alpha1.ReasonNotConsumed)
	if !w.peer().DeletionTimestamp.IsZero() {
		t.Error("whoever has an invitation can have the Peer deleted")
	}
}

func TestVersionsOfTheAPI(t *testing.T) {
	for name, test := range map[string]struct {
		theirs []string
		want   bool
	}{
		"not told":       {nil, true},
		"the same":       {[]string{"v1alpha1"}, true},
		"one in common":  {[]string{"v1beta1", " v1alpha1"}, true},
		"none in common": {[]string{"v1beta1"}, false},
	} {
		if got := commonAPI(test.theirs); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestNothingIsMadeForAPeerThatWasOnlyDiscovered(t *testing.T) {
	w := newWorld(t, peerOf())
	w.reconcile()
	w.expect(v1alpha1.ConditionReady, no, v1alpha1.ReasonDiscovered)
	if peer := w.peer(); len(peer.Finalizers) > 0 {
		t.Errorf("it has finalizers %v", peer.Finalizers)
	}
	ns := &corev1.Namespace{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "hanse-peer-hamburg"}, ns); !apierrors.IsNotFound(err) {
		t.Errorf("it has a namespace: %v", err)
	}
}

func TestAdvertisedIsWhatTheCopySays(t *testing.T) {
	holds := func(phase v1alpha1.OfferPhase, status metav1.ConditionStatus, reason, message string) *v1alpha1.Advertisement {
		ad := advertisement("")
		ad.Spec.Phase = phase
		ad.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: status, Reason: reason, Message: message}}
		return ad
	}
	for name, test := range map[string]struct {
		offer   *v1alpha1.Advertisement
		id      string
		status  metav1.ConditionStatus
		reason  string
		message string
	}{
		"no copy":                      {nil, "c-hamburg", no, v1alpha1.ReasonNoAdvertisement, "There is no link to the peer: see condition Reachable"},
		"not judged yet":               {advertisement(""), "c-hamburg", no, v1alpha1.ReasonNoAdvertisement, "There is no link to the peer: see condition Reachable"},
		"our own id":                   {nil, "c-lubeck", no, v1alpha1.ReasonClusterIDMismatch, "The peer has the id of this very cluster"},
		"in use":                       {holds("", yes, v1alpha1.ReasonAccepted, ""), "c-hamburg", yes, v1alpha1.ReasonAccepted, "The advertisement is used"},
		"corrected":                    {holds("", yes, v1alpha1.ReasonCorrected, "Less is used"), "c-hamburg", yes, v1alpha1.ReasonCorrected, "Less is used"},
		"cordoned":                     {holds(v1alpha1.OfferCordoned, yes, v1alpha1.ReasonAccepted, ""), "c-hamburg", yes, v1alpha1.ReasonAccepted, "The peer takes no more pods"},
		"draining":                     {holds(v1alpha1.OfferDraining, yes, v1alpha1.ReasonAccepted, ""), "c-hamburg", yes, v1alpha1.ReasonAccepted, "The peer takes no more pods and asks us to move away those that it has"},
		"leaving":                      {holds(v1alpha1.OfferLeaving, yes, v1alpha1.ReasonAccepted, ""), "c-hamburg", yes, v1alpha1.ReasonAccepted, "The peer parts from us"},
		"refused, and cordoned before": {holds(v1alpha1.OfferCordoned, no, v1alpha1.ReasonExpired, "It has ended"), "c-hamburg", no, v1alpha1.ReasonExpired, "It has ended"},
	} {
		t.Run(name, func(t *testing.T) {
			peer := peerOf(v1alpha1.RoleProvider)
			peer.Spec.ClusterID = test.id
			got := advertised(&observation{config: &Config{ClusterID: "c-lubeck"}, peer: peer, offer: test.offer})
			if want := (condition{test.status, test.reason, test.message}); *got != want {
				t.Errorf("got %+v, want %+v", *got, want)
			}
		})
	}
	if got := advertised(&observation{config: &Config{}, peer: peerOf(v1alpha1.RoleConsumer)}); got != nil {
		t.Errorf("a peer that is no provider says %+v", got)
	}
}
