// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
)

func TestNamespaceIsLabelledWhenTheClusterIsKnown(t *testing.T) {
	peer := peerOf(v1alpha1.RoleConsumer)
	peer.Spec.ClusterID, peer.Spec.PublicKey = "", ""
	w := newWorld(t, peer)
	w.reconcile()
	ns := &corev1.Namespace{}
	w.get("", tenant, ns)
	if id, labelled := ns.Labels["hanse.dev/cluster-id"]; labelled {
		t.Errorf("labelled with %q before anybody can know", id)
	}
	w.expectNoWrites()

	peer = w.peer()
	peer.Spec.ClusterID, peer.Generation = "c-hamburg", 2
	w.update(peer)
	w.reconcile()
	w.get("", tenant, ns)
	if got := ns.Labels["hanse.dev/cluster-id"]; got != "c-hamburg" {
		t.Errorf("labelled with %q", got)
	}
	w.expectNoWrites()
}

func TestOnlyItsOwnNamespaceIsAPeers(t *testing.T) {
	const id = "hanse.dev/cluster-id"
	tests := map[string]struct {
		clusterID string // of the Peer
		change    func(*corev1.Namespace)
		want      bool
	}{
		"made for it":                          {"c-hamburg", func(*corev1.Namespace) {}, true},
		"restored from a backup, with a label": {"c-hamburg", func(ns *corev1.Namespace) { ns.Annotations = nil }, true},
		"made for it before its id was known":  {"c-hamburg", func(ns *corev1.Namespace) { delete(ns.Labels, id) }, true},
		"made by hand for a peer without an id": {"", func(ns *corev1.Namespace) {
			delete(ns.Labels, id)
			ns.Annotations = nil
		}, true},
		"a former peer's, which had another id": {"c-hamburg", func(ns *corev1.Namespace) { ns.Labels[id] = "c-former" }, false},
		"a former peer's, whose id was not known": {"c-hamburg", func(ns *corev1.Namespace) {
			delete(ns.Labels, id)
			ns.Annotations[v1alpha1.AnnotationPeerUID] = "former"
		}, false},
		"a former peer's, while ours has no id": {"", func(ns *corev1.Namespace) { ns.Labels[id] = "c-former" }, false},
		"another peer's":                        {"c-hamburg", func(ns *corev1.Namespace) { ns.Labels["hanse.dev/peer"] = "bremen" }, false},
		"a twin":                                {"c-hamburg", func(ns *corev1.Namespace) { ns.Labels["hanse.dev/type"] = "twin" }, false},
		"a user's, who copied our labels":       {"c-hamburg", func(ns *corev1.Namespace) { delete(ns.Labels, "hanse.dev/managed") }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ns := tenantNamespace(peerOf())
			test.change(ns)
			peer := peerOf()
			peer.Spec.ClusterID = test.clusterID
			if got := peer.OwnsTenantNamespace(ns); got != test.want {
				t.Errorf("owned: %v", got)
			}
		})
	}
}

func TestTombstoneMakesRoomForANewPeer(t *testing.T) {
	ns := namespace(tenant, map[string]string{
		"hanse.dev/type": "tombstone", "hanse.dev/peer": "hamburg", "hanse.dev/cluster-id": "c-former", "hanse.dev/managed": "true",
	})
	ns.Finalizers = []string{"example.org/slow"}
	w := newWorld(t, peerOf(v1alpha1.RoleConsumer), ns)
	w.reconcile()
	w.expect(v1alpha1.ConditionReady, no, v1alpha1.ReasonNamespaceTerminating)
	w.get("", tenant, ns)
	if ns.DeletionTimestamp.IsZero() {
		t.Fatal("the tombstone stays")
	}
	w.expectNoWrites()

	ns.Finalizers = nil
	w.update(ns)
	w.reconcile()
	w.get("", tenant, ns)
	if !w.peer().OwnsTenantNamespace(ns) {
		t.Errorf("labels %v", ns.Labels)
	}
}

func (w *world) expectQuota(namespaces string) {
	w.t.Helper()
	quota := &corev1.ResourceQuota{}
	w.get(tenant, "hanse", quota)
	got := map[corev1.ResourceName]string{}
	for name, quantity := range quota.Spec.Hard {
		got[name] = quantity.String()
	}
	want := map[corev1.ResourceName]string{
		"count/namespacemappings.hanse.dev": namespaces, "count/exportedservices.hanse.dev": "1k", "count/requests.hanse.dev": "100",
		"count/quotes.hanse.dev":   "100",
		"count/messages.hanse.dev": "200",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("quota (-want +got):\n%s", diff)
	}
}

func TestNumberOfNamespacesFollowsTheLimits(t *testing.T) {
	peer := peerOf(v1alpha1.RoleConsumer)
	peer.Spec.Limits = &v1alpha1.PeerLimits{Namespaces: ptr.To[int32](3)}
	w := newWorld(t, peer)
	w.reconcile()
	w.expectQuota("3")
	w.expectNoWrites()
}

func TestYoungInstallationMakesNoQuotaYet(t *testing.T) {
	for name, ahead := range map[string]time.Duration{
		"clocks agree": 0, "ours is ahead": 10 * time.Minute, "ours is behind": -10 * time.Minute,
	} {
		t.Run(name, func(t *testing.T) { youngInstallation(t, ahead) })
	}
}

func youngInstallation(t *testing.T, ahead time.Duration) {
	t.Helper()
	w := newWorld(t, peerOf(v1alpha1.RoleConsumer))
	w.ahead = ahead
	w.update(installed(w.clock.Now().Add(-ahead - time.Second)))
	pause := w.reconcile().RequeueAfter
	w.get(tenant, "hanse-cluster", &corev1.ConfigMap{})
	if w.exists(tenant, "hanse", &corev1.ResourceQuota{}) {
		t.Error("there is a quota that Kubernetes cannot count")
	}
	w.joins()
	w.reconcile()
	w.expect(v1alpha1.ConditionReady, yes, v1alpha1.ReasonReady)

	w.clock.Step(local.CountingDelay - 2*time.Second)
	w.expectNoWrites()
	w.clock.Step(pause - local.CountingDelay + 2*time.Second)
	w.reconcile()
	w.expectQuota("100")
	w.expectNoWrites()
}
