// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/peers/peerstest"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// agentless makes turin a peer without Hanse, to which ConfigMaps and Secrets go.
func (w *world) agentless() {
	w.Helper()
	peer := &v1alpha1.Peer{}
	w.Home.Get(peer, "", "turin")
	peer.Spec.Mode, peer.Spec.Namespaces, peer.Spec.Copies = v1alpha1.ModeAgentless, []string{"guests"}, v1alpha1.CopiesConfiguration
	w.Home.Put(peer)
}

func TestNothingButConfigMapsAndSecretsGoesToAPeerWithoutHanse(t *testing.T) {
	w := newWorld(t, podUsing("web"))
	w.agentless()
	w.save(password("a"))
	w.connect()
	for _, kind := range w.copier.kinds() {
		w.look(kind)
	}
	w.settle(w.has("a"))
	want := []string{"ConfigMap in " + twinName, "NamespaceMapping in " + tenant, "Secret in " + twinName}
	if diff := cmp.Diff(want, w.turin.Follows()); diff != "" {
		t.Errorf("follows %s", diff)
	}
}

func TestTokensDoNotGoToAPeerWithoutHanse(t *testing.T) {
	pod := podWithToken()
	pod.Spec.Volumes[0].Name = "vault" // its author asks for the token
	w, tokens := withTokens(t, false, pod)
	w.agentless()
	w.mustLook(tokens)
	if w.tokensThere() != nil {
		t.Error("its tokens are there")
	}
}

// The namespace may be gone, or offloaded no more, while the manager did not run.
func TestNamespacesOfWhichThereIsSomethingAreLookedAt(t *testing.T) {
	w := newWorld(t, testkit.Namespace("shop", map[string]string{v1alpha1.LabelOffloads: "true"}), testkit.Namespace("private", nil))
	w.agentless()
	other := peerstest.New(t, testkit.Scheme(), peers.Config{Adapt: func(link *peers.Link, _ *v1alpha1.Peer) (*peers.Transport, error) {
		return &peers.Transport{
			Client: link.Client(), Leftovers: func() []string { return []string{"gone", "shop"} },
			Feed: func(_ context.Context, feed *peers.Feed) { feed.Replace([]client.Object{}) },
		}, nil
	}})
	other.Add("turin", tenant, w.Away.Client)
	peer := &v1alpha1.Peer{}
	w.Home.Get(peer, "", "turin")
	got := w.copier.namespacesOf(t.Context(), peers.Change{Link: other.Link(peer)})
	slices.Sort(got)
	if diff := cmp.Diff([]string{"gone", "shop"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestWhatAPeerTakes(t *testing.T) {
	hanse, copies := (&v1alpha1.Peer{}).Protocol(), v1alpha1.Protocol{Copies: true}
	for kind, want := range map[reflection.Kind][]bool{
		reflection.Secret: {true, true, false}, reflection.ConfigMap: {true, true, false},
		reflection.Service: {true, false, false}, widgetKind.Name(): {true, false, false},
	} {
		if got := []bool{takes(hanse, kind), takes(copies, kind), takes(v1alpha1.Protocol{}, kind)}; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
}
