// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// away is a pod of ours that runs at the peer.
func away(peer string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "ours"},
		Spec:       corev1.PodSpec{NodeName: v1alpha1.VirtualNodeName(peer)},
	}
}

func (w *world) unpeer(t *testing.T, ctx context.Context, flags *unpeerFlags) (out, told string, err error) {
	t.Helper()
	command, stdout, stderr := listener()
	flags.wait = true
	err = runUnpeer(ctx, command, w.client, flags, "hamburg")
	return stdout.String(), stderr.String(), err
}

func TestUnpeerIsRefusedWhilePodsRun(t *testing.T) {
	for name, test := range map[string]struct {
		objects []client.Object
		flags   unpeerFlags
		says    []string // none if it is fine
	}{
		"at the peer":            {objects: []client.Object{away("hamburg")}, says: []string{"shop/ours", "--drain=wait", "--drain=now"}},
		"here":                   {objects: guest("hamburg"), says: []string{"shop-hamburg/web", "--drain=wait"}},
		"at the peer, to evict":  {objects: []client.Object{away("hamburg")}, flags: unpeerFlags{drain: "wait"}},
		"at the peer, to delete": {objects: []client.Object{away("hamburg")}, flags: unpeerFlags{drain: "now"}},
		"everywhere, by force":   {objects: append(guest("hamburg"), away("hamburg")), flags: unpeerFlags{force: true}},
		"somewhere else only":    {objects: append(guest("bremen"), away("bremen"))},
		"nowhere, but a twin is": {objects: guest("hamburg")[:1]},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(test.objects, newPeer("hamburg", v1alpha1.RoleProvider, v1alpha1.RoleConsumer))...)
			_, _, err := w.unpeer(t, soon(t), &test.flags)
			if refused := errors.Is(err, errPodsRun); refused != (len(test.says) > 0) {
				t.Fatalf("error %v", err)
			}
			for _, want := range test.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			_, err = readPeer(t.Context(), w.client, "hamburg")
			if there := err == nil; there != (len(test.says) > 0) {
				t.Errorf("the Peer: %v", err)
			}
		})
	}
}

func TestUnpeerSaysHowToPart(t *testing.T) {
	for name, test := range map[string]struct {
		flags unpeerFlags
		want  v1alpha1.PeerParting
	}{
		"as agreed":     {unpeerFlags{}, v1alpha1.PeerParting{Mode: v1alpha1.PartingAgreed, Drain: v1alpha1.DrainWait}},
		"by eviction":   {unpeerFlags{drain: "wait"}, v1alpha1.PeerParting{Mode: v1alpha1.PartingAgreed, Drain: v1alpha1.DrainWait}},
		"by deletion":   {unpeerFlags{drain: "now"}, v1alpha1.PeerParting{Mode: v1alpha1.PartingAgreed, Drain: v1alpha1.DrainNow}},
		"by force":      {unpeerFlags{force: true}, v1alpha1.PeerParting{Mode: v1alpha1.PartingForced, Drain: v1alpha1.DrainNow}},
		"and forgotten": {unpeerFlags{force: true, forget: true}, v1alpha1.PeerParting{Mode: v1alpha1.PartingForgotten, Drain: v1alpha1.DrainNow}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, *test.flags.parting()); diff != "" {
				t.Errorf("parting (-want +got):\n%s", diff)
			}
		})
	}
}

// parted is a Peer that is held until a manager is done with it.
func parted(mode v1alpha1.PartingMode) *v1alpha1.Peer {
	peer := newPeer("hamburg", v1alpha1.RoleProvider)
	peer.Finalizers = []string{v1alpha1.FinalizerPeer}
	peer.DeletionTimestamp = &metav1.Time{Time: now}
	peer.Spec.Parting = &v1alpha1.PeerParting{Mode: mode}
	setCondition(peer, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonParting, "hamburg does not answer")
	return peer
}

func TestAPartingThatTakesTooLongSaysHowToGoOn(t *testing.T) {
	testkit.WithTimeout(t, func(ctx context.Context, t *testing.T) {
		w := newWorld(t, parted(v1alpha1.PartingAgreed), away("hamburg"))
		out, told, err := w.unpeer(t, ctx, &unpeerFlags{})
		for _, want := range []string{"hamburg does not answer", "--force", "goes on"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want one that says %q", err, want)
			}
		}
		if strings.Count(told, "hamburg does not answer") != 1 || out != "" {
			t.Errorf("the user is told %q, %q", told, out)
		}
		if got := w.peer(t, "hamburg").Parting().Mode; got != v1alpha1.PartingAgreed {
			t.Errorf("mode %s", got)
		}
	})
}

func TestAPartingThatGoesOnCanBeForced(t *testing.T) {
	w := newWorld(t, parted(v1alpha1.PartingAgreed),
		&v1alpha1.NamespaceOffloading{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: v1alpha1.NamespaceOffloadingName},
			Status:     v1alpha1.NamespaceOffloadingStatus{Clusters: []v1alpha1.ClusterOffloading{{Peer: "hamburg", Twin: "shop-lubeck"}}},
		},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name:        v1alpha1.TenantNamespace("hamburg"),
			Labels:      map[string]string{v1alpha1.LabelType: v1alpha1.TypeTombstone},
			Annotations: map[string]string{v1alpha1.AnnotationExpires: "2026-03-31T12:00:00Z"},
		}},
	)
	w.manager = func(ctx context.Context, c client.Client, written client.Object) error {
		peer, isPeer := written.(*v1alpha1.Peer)
		if !isPeer || peer.Parting().Mode != v1alpha1.PartingForced {
			return nil
		}
		peer.Finalizers = nil
		return c.Update(ctx, peer)
	}
	out, _, err := w.unpeer(t, soon(t), &unpeerFlags{force: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"no longer a peer", "shop-lubeck", "2026-03-31T12:00:00Z"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q does not say %q", out, want)
		}
	}
}

func TestUnpeerEndsThoughTheClusterIsDiscoveredAtOnce(t *testing.T) {
	w := newWorld(t, parted(v1alpha1.PartingAgreed))
	w.manager = func(ctx context.Context, c client.Client, written client.Object) error {
		peer, isPeer := written.(*v1alpha1.Peer)
		if !isPeer || peer.Parting().Mode != v1alpha1.PartingForgotten {
			return nil
		}
		peer.Finalizers = nil
		discovered := newPeer("hamburg")
		discovered.UID, discovered.Finalizers = "discovered", []string{v1alpha1.FinalizerPeer} // no word of ours ends it
		return errors.Join(c.Update(ctx, peer), c.Create(ctx, discovered))
	}
	if _, _, err := w.unpeer(t, soon(t), &unpeerFlags{force: true, forget: true}); err != nil {
		t.Error(err)
	}
}
