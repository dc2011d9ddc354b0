// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// TestPeeringByObjects makes peers without the client, as GitOps does.
func TestPeeringByObjects(t *testing.T) {
	apart(t)
	ctx := t.Context()
	apply := func(c *framework.Cluster, text string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "objects.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "kubectl applies the objects in "+c.Name, func(ctx context.Context) error {
			_, err := c.Kubectl(ctx, "apply", "-f", file)
			return err
		})
	}
	apply(hamburg, `
apiVersion: hanse.dev/v1alpha1
kind: Peer
metadata: {name: lubeck}
spec:
  roles: [Consumer]
  invitation: {timeToLive: 10m, servers: ["`+hamburg.Config.Host+`"]}
`)
	token := ""
	framework.Eventually(t, "hamburg puts an invitation into a Secret", func(ctx context.Context) error {
		secret := &corev1.Secret{}
		key := types.NamespacedName{Namespace: v1alpha1.TenantNamespace("lubeck"), Name: v1alpha1.InvitationSecret}
		err := hamburg.Get(ctx, key, secret)
		if token = string(secret.Data[v1alpha1.InvitationToken]); err == nil && token == "" {
			return errors.New("it has no token yet")
		}
		return err
	})
	apply(lubeck, `
apiVersion: v1
kind: Namespace
metadata:
  name: hanse-peer-hamburg
  labels: {hanse.dev/type: tenant, hanse.dev/peer: hamburg, hanse.dev/managed: "true"}
---
apiVersion: v1
kind: Secret
metadata: {name: hanse-join, namespace: hanse-peer-hamburg}
stringData: {token: "`+token+`"}
---
apiVersion: hanse.dev/v1alpha1
kind: Peer
metadata: {name: hamburg}
spec: {roles: [Provider]}
`)
	lubeck.RunsAt(t, hamburg)
	peer, err := lubeck.Peer(ctx, "hamburg")
	if err != nil || peer.Spec.ClusterID != "hamburg" || peer.Spec.PublicKey == "" {
		t.Errorf("lubeck has not pinned id and key of hamburg: %+v, %v", peer.Spec, err)
	}
}

func TestInviteAndJoinInOneDirection(t *testing.T) {
	apart(t)
	ctx := t.Context()
	token := strings.TrimSpace(hamburg.MustHanse(t, "invite", "lubeck"))
	if out := lubeck.MustHanse(t, "join", token, "--mutual"); !strings.Contains(out, "one direction") {
		t.Errorf("join --mutual of an invitation that is not mutual says %q", out)
	}
	lubeck.RunsAt(t, hamburg)
	if _, err := hamburg.Node(ctx, v1alpha1.VirtualNodeName("lubeck")); !apierrors.IsNotFound(err) {
		t.Errorf("hamburg has a virtual node of lubeck, which did not invite it: %v", err)
	}
	for here, there := range map[*framework.Cluster]string{lubeck: "hamburg", hamburg: "lubeck"} {
		framework.Eventually(t, here.Name+" says that its peer is Ready", func(ctx context.Context) error {
			return here.PeerHas(ctx, there, v1alpha1.ConditionReady)
		})
	}
}

func TestInviteAndJoinInBothDirections(t *testing.T) {
	apart(t)
	peer(t)
	lubeck.RunsAt(t, hamburg)
	hamburg.RunsAt(t, lubeck)
}

func TestUnpeerLeavesNothing(t *testing.T) {
	before := apart(t)
	peer(t)
	ctx := t.Context()
	ns := lubeck.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyLocalAndRemote})
	away := framework.Deployment(ns, "away", 2, framework.PodSpec())
	away.Spec.Template.Spec.NodeSelector = map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}
	lubeck.MustCreate(t, away)
	lubeck.AwaitReadyPods(t, ns, "away", 2)

	// While pods run there, the user has to say what becomes of them.
	if _, err := lubeck.Hanse(ctx, "unpeer", "hamburg", "--timeout", "5s"); err == nil || !strings.Contains(err.Error(), "away") {
		t.Errorf("unpeer with running pods says %v", err)
	}
	// One side unpeers, and the other follows.
	lubeck.MustHanse(t, "unpeer", "hamburg", "--drain", "wait")
	awaitApart(t)
	lubeck.DeleteAndWait(t, away)
	lubeck.DeleteAndWait(t, &corev1.Namespace{ObjectMeta: framework.Named("", ns)})
	expectSameObjects(t, before)
}

func TestUnpeerOfADeadPeer(t *testing.T) {
	before := apart(t)
	peer(t)
	ctx := t.Context()
	hamburg.StopAPIServer(t)

	// Unpeering by agreement cannot work, and the message says what to do.
	_, err := lubeck.Hanse(ctx, "unpeer", "hamburg", "--timeout", "5s")
	if err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("unpeer of a dead peer says %v", err)
	}
	lubeck.MustHanse(t, "unpeer", "hamburg", "--force", "--forget")
	expectSameObjects(t, map[*framework.Cluster]framework.Inventory{lubeck: before[lubeck]})
}

// TestPeerReturnsAfterForce ends a peering while the peer is down. The peer follows when it is up again.
func TestPeerReturnsAfterForce(t *testing.T) {
	before := apart(t)
	peer(t)
	_, orphan := lubeck.RunsAt(t, hamburg)
	managers := hamburg.ServerPIDs()
	hamburg.StopAPIServer(t)
	lubeck.MustHanse(t, "unpeer", "hamburg", "--force")
	// All that is left is one namespace with the tombstone.
	left := &corev1.Namespace{}
	if err := lubeck.Get(t.Context(), types.NamespacedName{Name: v1alpha1.TenantNamespace("hamburg")}, left); err != nil {
		t.Fatal(err)
	}
	if left.Labels[v1alpha1.LabelType] != v1alpha1.TypeTombstone || left.Annotations[v1alpha1.AnnotationExpires] == "" {
		t.Errorf("what is left has labels %v and annotations %v", left.Labels, left.Annotations)
	}

	hamburg.StartAPIServer(t)
	framework.Eventually(t, "hamburg unpeers as well", func(ctx context.Context) error {
		return errors.Join(hamburg.Gone(ctx, &v1alpha1.Peer{ObjectMeta: framework.Named("", "lubeck")}), hamburg.Gone(ctx, orphan))
	})
	for component, pid := range hamburg.ServerPIDs() {
		if managers[component] != pid {
			t.Errorf("hanse %s did not survive an outage of its API server: process %d, then %d", component, managers[component], pid)
		}
	}
	// An administrator who does not want to wait for 30 days deletes the tombstone.
	lubeck.DeleteAndWait(t, left)
	deleteTestNamespaces(t, lubeck)
	expectSameObjects(t, before)
}

// deleteTestNamespaces deletes the namespaces of this test before its end, to count what is left.
func deleteTestNamespaces(t *testing.T, c *framework.Cluster) {
	t.Helper()
	list := &corev1.NamespaceList{}
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, framework.NamespacePrefix) {
			c.DeleteAndWait(t, &list.Items[i])
		}
	}
}
