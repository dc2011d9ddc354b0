// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestOfTwoPeersForOneClusterTheOlderIsUsed(t *testing.T) {
	for name, test := range map[string]struct {
		older *v1alpha1.Peer
		taken bool
	}{
		"none":                         {},
		"one":                          {older: namesakeOf("altona", "c-hamburg", v1alpha1.RoleConsumer), taken: true},
		"one for another cluster":      {older: namesakeOf("altona", "c-altona", v1alpha1.RoleConsumer)},
		"one that was only discovered": {older: namesakeOf("altona", "c-hamburg")},
		"a newer one": {older: func() *v1alpha1.Peer {
			peer := namesakeOf("altona", "c-hamburg", v1alpha1.RoleConsumer)
			peer.CreationTimestamp = metav1.NewTime(start.Add(time.Hour))
			return peer
		}()},
	} {
		t.Run(name, func(t *testing.T) {
			peer := peerOf(v1alpha1.RoleProvider)
			peer.Spec.ClusterID, peer.CreationTimestamp = "c-hamburg", metav1.NewTime(start)
			objects := []client.Object{peer}
			if test.older != nil {
				objects = append(objects, test.older)
			}
			w := newWorld(t, objects...)
			w.reconcile()
			if !test.taken {
				w.expect(v1alpha1.ConditionAuthenticated, yes, v1alpha1.ReasonReady)
				return
			}
			w.expect(v1alpha1.ConditionAuthenticated, no, v1alpha1.ReasonClusterIDTaken)
			w.expect(v1alpha1.ConditionReady, no, v1alpha1.ReasonClusterIDTaken)
			if !w.peer().IsSecond() {
				t.Error("others do not see it")
			}
			if requests := w.namesakes(t.Context(), test.older); len(requests) != 2 {
				t.Errorf("when the older one goes %v are looked at", requests)
			}
			if err := w.client.Delete(t.Context(), test.older); err != nil {
				t.Fatal(err)
			}
			w.reconcile()
			w.expect(v1alpha1.ConditionAuthenticated, yes, v1alpha1.ReasonReady)
		})
	}
}

func namesakeOf(name, id string, roles ...v1alpha1.PeerRole) *v1alpha1.Peer {
	peer := &v1alpha1.Peer{Spec: v1alpha1.PeerSpec{ClusterID: id, Roles: roles}}
	peer.Name, peer.CreationTimestamp = name, metav1.NewTime(start.Add(-time.Hour))
	return peer
}
