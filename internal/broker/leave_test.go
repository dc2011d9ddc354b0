// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestWhoLeavesABrokerTakesBackWhatItHasSaid(t *testing.T) {
	for name, leave := range map[string]func(w *world){
		"by its role": func(w *world) {
			testkit.Change(w.lubeck.Cluster, "", "hamburg", func(p *v1alpha1.Peer) { p.Spec.Roles = []v1alpha1.PeerRole{v1alpha1.RoleProvider} })
		},
		"by deleting the Peer": func(w *world) { w.lubeck.Remove(testkit.Peer("hamburg")) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newHandOver(t)
			w.looks(w.lubeck)
			theirs := w.says(w.wismar.key, tenantOf(w.wismar), "x", ask(w.wismar, w.lubeck, 1), "hello")
			w.relays()
			ours := func() []string { return w.broker.Names(&v1alpha1.MessageList{}, tenantOf(w.lubeck)) }
			all := []string{request, v1alpha1.MessageIntroduction, "wismar-id." + theirs.Name}
			if diff := cmp.Diff(all, ours()); diff != "" {
				t.Fatalf("before, there is (-want +got):\n%s", diff)
			}
			leave(w)

			w.lubeck.way.Refuse("delete Message", errBroken)
			if err := w.errorOf(w.lubeck); !errors.Is(err, errBroken) {
				t.Errorf("got %v", err)
			}
			w.lubeck.way.Refuse("delete Message", apierrors.NewConflict(ofMessages, "", errBroken))
			if again := w.looks(w.lubeck); again != lookSoon {
				t.Errorf("it is looked at again after %s", again)
			}
			w.lubeck.way.Refuse("delete Message", nil)
			w.looks(w.lubeck)
			if diff := cmp.Diff(all[2:], ours()); diff != "" {
				t.Errorf("there is (-want +got):\n%s", diff)
			}
			w.relays()
			w.Reconcile(w.relay, tenantOf(w.lubeck), v1alpha1.MessageIntroduction)
			w.looks(w.wismar)
			w.expectNotHeard(w.wismar, w.lubeck)
			if again := w.looks(w.lubeck); again != 0 || len(w.lubeck.way.Follows()) > 0 {
				t.Errorf("it is looked at again after %s, and follows %s", again, w.lubeck.way.Follows())
			}
			w.looks(w.lubeck) // nothing is left to do
			w.lubeck.links.Links.Close("hamburg")
			w.Reconcile(w.lubeck.member, "", "hamburg")

			w.lubeck.links.Link(brokerPeer("hamburg"))
			w.lubeck.Put(brokerPeer("hamburg"))
			w.rounds(2)
			w.expectKnown(w.wismar, w.lubeck, "4") // it is a member again
		})
	}
}
