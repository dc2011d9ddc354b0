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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// whenApart are the objects that each cluster had when lubeck and hamburg were no peers, last.
var whenApart map[*framework.Cluster]framework.Inventory

// beginUnpeered begins a story in which lubeck and hamburg become peers. It ends an earlier peering.
func beginUnpeered(t *testing.T) context.Context {
	t.Helper()
	ctx := framework.Begin(t)
	switch here, there := lubeck.Knows(ctx, hamburg), hamburg.Knows(ctx, lubeck); {
	case here && there:
		for _, c := range []*framework.Cluster{lubeck, hamburg} {
			c.AwaitNoRemotePods(t)
		}
		if _, err := lubeck.Hanse(ctx, "unpeer", "hamburg", "--drain", "wait"); err != nil {
			t.Fatal(err)
		}
	case here:
		lubeck.ForgetPeer(t, "hamburg")
	case there:
		hamburg.ForgetPeer(t, "lubeck")
	}
	awaitParted(t)
	whenApart = map[*framework.Cluster]framework.Inventory{}
	for _, c := range []*framework.Cluster{lubeck, hamburg} {
		whenApart[c] = objectsAtRest(t, c)
	}
	return ctx
}

// objectsAtRest are those that there are when Kubernetes has collected what earlier stories left, which it does in its own
// time: their namespaces, and the leases of virtual nodes.
func objectsAtRest(t *testing.T, c *framework.Cluster) framework.Inventory {
	t.Helper()
	var found framework.Inventory
	framework.Eventually(t, c.Name+" has nothing of earlier stories", func(ctx context.Context) error {
		var err error
		if found, err = c.TakeInventory(ctx); err != nil {
			return err
		}
		for name := range found {
			if strings.HasPrefix(name, "leases.coordination.k8s.io kube-node-lease/"+v1alpha1.VirtualNodePrefix) ||
				strings.HasPrefix(name, "namespaces /story-") {
				return errors.New(name)
			}
		}
		return nil
	})
	return found
}

// awaitParted waits until neither cluster knows the other.
func awaitParted(t *testing.T) {
	t.Helper()
	for here, there := range map[*framework.Cluster]*framework.Cluster{lubeck: hamburg, hamburg: lubeck} {
		framework.Eventually(t, here.Name+" has parted from "+there.Name, func(ctx context.Context) error {
			return errors.Join(
				here.CheckGone(ctx, &v1alpha1.Peer{ObjectMeta: framework.ObjectMeta(there.Name)}),
				here.CheckGone(ctx, &corev1.Namespace{ObjectMeta: framework.ObjectMeta(v1alpha1.TenantNamespace(there.Name))}),
				here.CheckGone(ctx, &corev1.Node{ObjectMeta: framework.ObjectMeta(v1alpha1.VirtualNodeName(there.Name))}),
			)
		})
	}
}

// expectSameObjects waits until a cluster has exactly the objects that it had, as they were.
func expectSameObjects(t *testing.T, before map[*framework.Cluster]framework.Inventory) {
	t.Helper()
	for c, objects := range before {
		framework.Eventually(t, c.Name+" has the objects it had before", func(ctx context.Context) error { return c.CheckInventory(ctx, objects) })
	}
}

// It is told well before the other story in which hamburg disappears: clients of an API server that is away again within two
// minutes wait for up to a minute, and Kubernetes' own do not delete namespaces meanwhile.
func TestPeerReturnsAfterForce(t *testing.T) {
	ctx := beginUnpeered(t)
	if err := framework.PeerBothWays(ctx, lubeck, hamburg); err != nil {
		t.Fatal(err)
	}
	// hamburg runs a pod at lubeck, and lubeck one at hamburg, when hamburg disappears.
	_, orphan := lubeck.RunPodAt(t, hamburg)
	restarts := hamburg.CountRestarts(t)
	disappears(t, hamburg)
	if _, err := lubeck.Hanse(ctx, "unpeer", "hamburg", "--force"); err != nil {
		t.Fatal(err)
	}
	// All that is left is one namespace with the record.
	left := &corev1.Namespace{}
	if err := lubeck.Get(ctx, types.NamespacedName{Name: v1alpha1.TenantNamespace("hamburg")}, left); err != nil {
		t.Fatal(err)
	}
	if left.Labels[v1alpha1.LabelType] != v1alpha1.TypeTombstone || left.Annotations[v1alpha1.AnnotationExpires] == "" {
		t.Errorf("what is left: %v %v", left.Labels, left.Annotations)
	}

	hamburg.StartAPIServer(t)
	framework.Eventually(t, "hamburg, back again, parts as well", func(ctx context.Context) error {
		return errors.Join(hamburg.CheckGone(ctx, &v1alpha1.Peer{ObjectMeta: framework.ObjectMeta("lubeck")}), hamburg.CheckGone(ctx, orphan))
	})
	if now := hamburg.CountRestarts(t); now != restarts {
		t.Errorf("Hanse does not outlive an outage of its API server: its containers were started again %d times", now-restarts)
	}
	dropTombstone(t, lubeck, "hamburg")
	deleteStories(t, lubeck)
	expectSameObjects(t, whenApart)
}

func TestPeeringByObjectsOnly(t *testing.T) {
	ctx := beginUnpeered(t)
	folder := t.TempDir()
	apply := func(c *framework.Cluster, text string) {
		t.Helper()
		file := filepath.Join(folder, "objects.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "the objects are applied in "+c.Name, func(ctx context.Context) error {
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
	// Whoever carries Secrets carries this one. The tenant namespace may come with it.
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
	lubeck.RunPodAt(t, hamburg)
	peer, err := lubeck.GetPeer(ctx, "hamburg")
	if err != nil || peer.Spec.ClusterID != "hamburg" || peer.Spec.PublicKey == "" {
		t.Errorf("lubeck has not pinned who hamburg is: %+v, %v", peer.Spec, err)
	}
}

func TestInviteJoinOneSided(t *testing.T) {
	ctx := beginUnpeered(t)
	token, err := hamburg.Hanse(ctx, "invite", "lubeck")
	if err != nil {
		t.Fatal(err)
	}
	out, err := lubeck.Hanse(ctx, "join", strings.TrimSpace(token), "--mutual")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "one direction") {
		t.Errorf("join --mutual of an invitation that is not mutual says %q", out)
	}
	lubeck.RunPodAt(t, hamburg)
	if _, err := hamburg.GetNode(ctx, v1alpha1.VirtualNodeName("lubeck")); !apierrors.IsNotFound(err) {
		t.Errorf("hamburg has a node for lubeck, which did not invite it: %v", err)
	}
	for here, there := range map[*framework.Cluster]string{lubeck: "hamburg", hamburg: "lubeck"} {
		framework.Eventually(t, here.Name+" finds its peer Ready", func(ctx context.Context) error { return here.CheckPeerReady(ctx, there) })
	}
}

func TestInviteJoinMutual(t *testing.T) {
	ctx := beginUnpeered(t)
	if err := framework.Peer(ctx, lubeck, hamburg); err != nil {
		t.Fatal(err)
	}
	lubeck.RunPodAt(t, hamburg)
	hamburg.RunPodAt(t, lubeck)
}

func TestUnpeerLeavesNothing(t *testing.T) {
	if whenApart == nil {
		beginUnpeered(t)
	}
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	pinned := framework.NewDeployment(ns, "away", 2, framework.NewShellPodSpec(framework.RunForever))
	pinned.Spec.Template.Spec.NodeSelector = map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}
	lubeck.MustCreate(t, pinned)
	lubeck.AwaitReadyPods(t, ns, "away", 2)

	// Pods run: nothing happens before somebody says what becomes of them.
	if _, err := lubeck.Hanse(ctx, "unpeer", "hamburg", "--timeout", "5s"); err == nil || !strings.Contains(err.Error(), "away") {
		t.Errorf("unpeer with running pods says %v", err)
	}
	// One side parts, and the other follows.
	if _, err := lubeck.Hanse(ctx, "unpeer", "hamburg", "--drain", "wait"); err != nil {
		t.Fatal(err)
	}
	awaitParted(t)
	lubeck.DeleteAndWait(t, pinned)
	lubeck.DeleteAndWait(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	expectSameObjects(t, whenApart)
}

func TestUnpeerDeadPeer(t *testing.T) {
	ctx := beginUnpeered(t)
	if err := framework.PeerBothWays(ctx, lubeck, hamburg); err != nil {
		t.Fatal(err)
	}
	disappears(t, hamburg)

	// Agreed parting has nobody to agree with, and says what to do.
	_, err := lubeck.Hanse(ctx, "unpeer", "hamburg", "--timeout", "5s")
	if err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("unpeer of a dead peer says %v", err)
	}
	out, err := lubeck.Hanse(ctx, "unpeer", "hamburg", "--force", "--forget")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("unpeer --force --forget says: %s", out)
	expectSameObjects(t, map[*framework.Cluster]framework.Inventory{lubeck: whenApart[lubeck]})
}

// disappears stops the cluster's API server until it returns, at the story's end at the latest.
func disappears(t *testing.T, c *framework.Cluster) {
	t.Helper()
	framework.MustTestbed(t, "stop", c.Name, "apiserver")
	t.Cleanup(func() { c.StartAPIServer(t) })
}

// dropTombstone deletes the record as an administrator would who does not want to wait 30 days.
func dropTombstone(t *testing.T, c *framework.Cluster, peer string) {
	t.Helper()
	c.DeleteAndWait(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TenantNamespace(peer)}})
}

// deleteStories deletes the namespaces of this story before its end, to count what is left.
func deleteStories(t *testing.T, c *framework.Cluster) {
	t.Helper()
	list := &corev1.NamespaceList{}
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, "story-") {
			c.DeleteAndWait(t, &list.Items[i])
		}
	}
}
