// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

// stone returns the tombstone, after it was checked that nothing else is left.
func (w *world) stone(kept ...string) map[string]string {
	w.t.Helper()
	ns := &corev1.Namespace{}
	w.get("", tenant, ns)
	want := map[string]string{
		"hanse.dev/type": "tombstone", "hanse.dev/peer": "hamburg", "hanse.dev/cluster-id": "c-hamburg", "hanse.dev/managed": "true",
	}
	if diff := cmp.Diff(want, ns.Labels); diff != "" {
		w.t.Errorf("labels (-want +got):\n%s", diff)
	}
	expires := w.clock.Now().Add(30 * 24 * time.Hour).UTC().Format(time.RFC3339)
	if got := ns.Annotations["hanse.dev/expires"]; got != expires {
		w.t.Errorf("expires %s, want %s", got, expires)
	}
	var left []string
	for kind, list := range map[string]client.ObjectList{
		"ServiceAccount": &corev1.ServiceAccountList{}, "Secret": &corev1.SecretList{}, "ConfigMap": &corev1.ConfigMapList{},
		"PeeringClaim": &v1alpha1.PeeringClaimList{}, "Advertisement": &v1alpha1.AdvertisementList{},
		"ResourceQuota": &corev1.ResourceQuotaList{}, "Connection": &v1alpha1.ConnectionList{},
	} {
		if err := w.client.List(w.t.Context(), list, client.InNamespace(tenant)); err != nil {
			w.t.Fatal(err)
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, item := range items {
			left = append(left, kind+" "+item.(client.Object).GetName())
		}
	}
	slices.Sort(left)
	if diff := cmp.Diff(slices.Sorted(slices.Values(kept)), left); diff != "" {
		w.t.Errorf("what is left (-want +got):\n%s", diff)
	}
	stone := configMap(tenant, v1alpha1.Tombstone)
	w.exists(tenant, stone.Name, stone)
	return stone.Data
}

func TestForcedPartingLeavesATombstone(t *testing.T) {
	const provider, consumer = v1alpha1.RoleProvider, v1alpha1.RoleConsumer
	for name, test := range map[string]struct {
		roles      []v1alpha1.PeerRole
		kept       []string
		statements map[string]string // key → invitation that it speaks of
	}{
		"of a consumer": {
			roles:      []v1alpha1.PeerRole{consumer},
			kept:       []string{"ServiceAccount hanse-peer", "Secret hanse-session", "ConfigMap hanse-tombstone"},
			statements: map[string]string{"statement": "our-invitation"},
		},
		"of a provider": {
			roles: []v1alpha1.PeerRole{provider},
			kept:  []string{"Secret hanse-link"},
		},
		"of both": {
			roles: []v1alpha1.PeerRole{provider, consumer},
			kept: []string{
				"ServiceAccount hanse-peer", "Secret hanse-session", "Secret hanse-link", "ConfigMap hanse-tombstone",
			},
			statements: map[string]string{"statement": "our-invitation"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, peerOf(test.roles...), advertisement("10.0.0.0/16"), connectionTo(tenant))
			w.reconcile()
			peer := w.peer()
			if peer.HasRole(consumer) {
				w.joins()
			}
			if peer.HasRole(provider) {
				w.linked()
			}
			w.remote.Refuse("", noAnswer)
			w.partBy(v1alpha1.PartingForced)
			w.finish()

			expectStatements(t, w.stone(test.kept...), test.statements)
			w.expectNobodyHas(kubelet)
			if peer.HasRole(consumer) {
				w.expectNobodyHas(v1alpha1.ClusterRolePeerTenant, v1alpha1.ClusterRolePeerInvitation)
				binding := &rbacv1.RoleBinding{}
				w.get(tenant, v1alpha1.ClusterRolePeerTombstone, binding)
				if len(binding.Subjects) != 1 || binding.Subjects[0].Name != "hanse-peer" {
					t.Errorf("the tombstone can be read by %v", binding.Subjects)
				}
			}
		})
	}
}

func TestForcedPartingOfAStrangerLeavesNothing(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleProvider, v1alpha1.RoleConsumer))
	w.remote.RemoveCredentials()
	w.reconcile()
	w.partBy(v1alpha1.PartingForced)
	w.finish()
	if w.exists("", tenant, &corev1.Namespace{}) {
		t.Error("there is a tombstone for nobody")
	}
}

func TestForgottenPeerLeavesNothing(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleProvider, v1alpha1.RoleConsumer))
	w.reconcile()
	w.joins()
	w.linked()
	w.remote.Refuse("", noAnswer)
	w.partBy(v1alpha1.PartingForgotten)
	w.finish()
	if w.exists("", tenant, &corev1.Namespace{}) {
		t.Error("the tenant namespace is left")
	}
}

func TestForcedPartingWaitsForTheVirtualNode(t *testing.T) {
	node := virtualNode()
	w := newWorld(t, peerOf(v1alpha1.RoleProvider), node)
	w.reconcile()
	w.partBy(v1alpha1.PartingForced)
	w.expectWait("virtual node hanse-hamburg")
	w.remove(node)
	w.finish()
}

// expectStatements sees that the peer can verify each statement, which speaks of that invitation.
func expectStatements(t *testing.T, got, invitations map[string]string) {
	t.Helper()
	if len(got) != len(invitations) {
		t.Errorf("statements %v", got)
	}
	they, us := Config{ClusterID: "c-hamburg"}, peerOf()
	us.Spec.ClusterID, us.Spec.PublicKey = "c-lubeck", trust.PublicKeyOf(ourKey)
	for key, invitation := range invitations {
		if err := they.verify(us, got[key], invitation); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}
