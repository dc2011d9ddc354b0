package reflector

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/reflection"
)

var secretsOfShop = request{Peer: "turin", place: place{Namespace: "shop", Kind: reflection.Secret}}

func (w *world) twin() *twin {
	w.t.Helper()
	found, err := w.controller.copier.sites.look(secretsOfShop)
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

// answer has the peer say that the twin of shop is called so.
func (w *world) answer(name string) {
	w.t.Helper()
	mapping := &v1alpha1.NamespaceMapping{}
	if err := w.peer.client.Get(w.t.Context(), client.ObjectKey{Namespace: tenant, Name: "shop"}, mapping); err != nil {
		w.t.Fatal(err)
	}
	mapping.Status.Twin = name
	if err := w.peer.client.Update(w.t.Context(), mapping); err != nil {
		w.t.Fatal(err)
	}
}

func TestTwinsAreFollowed(t *testing.T) {
	w := newWorld(t)
	if w.twin() != nil {
		t.Error("a twin at a peer without a link")
	}
	w.connect()
	first := w.twin()
	if first == nil || first.name != twinName || w.twin() != first {
		t.Fatalf("got %v, and another one later", first)
	}
	w.answer("shop-elsewhere")
	if got := w.twin(); got == nil || got.name != "shop-elsewhere" {
		t.Errorf("got %v, want the new twin", got)
	}
	w.settle(func() bool { return w.peer.watches("Secret") == 0 })
	w.answer("../../kube-system")
	if got := w.twin(); got != nil {
		t.Errorf("followed into %q", got.name)
	}
}

func TestANewLinkTakesTheOldOnesPlace(t *testing.T) {
	w := newWorld(t).connect()
	before := w.twin()
	w.peer = newFakeRemote(t)
	w.connect()
	if after := w.twin(); after == before || after.site.link != w.peer {
		t.Error("the link that was is still used")
	}
	if before.site.ctx.Err() == nil {
		t.Error("what was watched over it is still watched")
	}
}

func TestALinkThatEndsIsAskedForAgain(t *testing.T) {
	w := newWorld(t).connect()
	close(w.peer.done)
	w.settle(func() bool { return w.losses.Len() == 1 })
	if got := w.twin(); got != nil {
		t.Errorf("got %v over a link that is closed", got)
	}
	if w.peer = newFakeRemote(t); w.connect().twin() == nil {
		t.Error("the new link is not used")
	}
}

func TestLinksThatAreNotFollowed(t *testing.T) {
	for name, spec := range map[string]v1alpha1.PeerSpec{
		"to a consumer":         {Roles: []v1alpha1.PeerRole{v1alpha1.RoleConsumer}},
		"to one without agents": {Roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider}, Mode: v1alpha1.ModeAgentless},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: spec})
			req := reconcile.Request{NamespacedName: types.NamespacedName{Name: "milan"}}
			if _, err := w.controller.connector.Reconcile(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			if len(w.controller.copier.sites.open) > 0 {
				t.Error("there is a link")
			}
		})
	}
}
