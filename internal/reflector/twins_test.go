// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/testkit"
)

var secretsOfShop = request{Peer: "turin", place: place{Namespace: "shop", Kind: reflection.Secret}}

func (w *world) twin() *peers.Mirror {
	w.Helper()
	_, found, err := w.copier.twinOf(w.Context(), secretsOfShop, true)
	if err != nil {
		w.Fatal(err)
	}
	return found
}

func TestANewTwinTakesTheOldOnesPlace(t *testing.T) {
	w := newWorld(t)
	if w.twin() != nil {
		t.Error("a twin at a peer without a link")
	}
	w.connect()
	if got := w.twin(); got == nil || got.Namespace() != twinName {
		t.Fatalf("got %v", got)
	}
	moved := testkit.Get[v1alpha1.NamespaceMapping](w.Away, tenant, "shop")
	moved.Status.Twin = "shop-elsewhere"
	if err := w.turin.Client.Status().Update(t.Context(), moved); err != nil {
		t.Fatal(err)
	}
	if got := w.twin(); got == nil || got.Namespace() != "shop-elsewhere" || w.follows("Secret") {
		t.Errorf("got %v, want the new twin alone", got)
	}
}

func TestNewLinkAsksForAllThatMayBeThere(t *testing.T) {
	w := newWorld(t).connect()
	if w.queue.Len() != len(w.copier.kinds()) {
		t.Errorf("%d requests", w.queue.Len())
	}
	w.peers.Links.Close("turin")
	if got := w.twin(); got != nil {
		t.Errorf("got %v over a link that is closed", got)
	}
}

func TestMappingsThatAreNotOursAreNotFollowed(t *testing.T) {
	w := newWorld(t, testkit.Namespace("private", nil)).connect()
	w.settle(func() bool { return w.queue.Len() == 0 })
	for _, name := range []string{"private", "invented"} {
		w.put(mapping(name, name+"-twin"))
		if w.queue.Len() > 0 {
			t.Errorf("namespace %s is looked at", name)
		}
		req := request{Peer: "turin", place: place{Namespace: name, Kind: reflection.Secret}}
		if _, found, err := w.copier.twinOf(t.Context(), req, false); found != nil || err != nil {
			t.Errorf("the twin of %s is followed: %v, %v", name, found, err)
		}
	}
}

func TestLinksThatAreNotFollowed(t *testing.T) {
	for name, spec := range map[string]v1alpha1.PeerSpec{
		"to a consumer":         {Roles: []v1alpha1.PeerRole{v1alpha1.RoleConsumer}},
		"to one without agents": {Roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider}, Mode: v1alpha1.ModeAgentless},
	} {
		t.Run(name, func(t *testing.T) {
			milan := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: spec}
			w := newWorld(t, milan)
			there := w.peers.Add("milan", tenant, testkit.NewCluster(t, w.Clock).Client)
			w.peers.Link(milan)
			if got := there.Follows(); len(got) > 0 {
				t.Errorf("follows %v", got)
			}
		})
	}
}
