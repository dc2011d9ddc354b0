package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// whenApart are the objects that each cluster had when lubeck and hamburg were no peers, last.
var whenApart map[*cluster]inventory

// separated marks a story that needs lubeck and hamburg for itself, and needs them to be no peers, because it tells how they
// become peers. It ends an earlier peering, and stories that need one make it again: see alone.
func separated(t *testing.T) context.Context {
	t.Helper()
	belongs(t, "alone", nil)
	ctx := t.Context()
	t.Cleanup(func() {
		if t.Failed() {
			lubeck.describe("default")
			hamburg.describe("default")
		}
	})
	switch here, there := lubeck.knows(ctx, hamburg), hamburg.knows(ctx, lubeck); {
	case here && there:
		for _, c := range []*cluster{lubeck, hamburg} {
			c.awaitNoRemotePods(t)
		}
		if _, err := lubeck.Hanse(ctx, "unpeer", "hamburg", "--drain", "wait"); err != nil {
			t.Fatal(err)
		}
	case here:
		lubeck.forget(t, "hamburg")
	case there:
		hamburg.forget(t, "lubeck")
	}
	awaitParted(t)
	whenApart = map[*cluster]inventory{}
	for _, c := range []*cluster{lubeck, hamburg} {
		whenApart[c] = c.objectsAtRest(t)
	}
	return ctx
}

// objectsAtRest are those that there are when Kubernetes has collected what earlier stories left, which it does in its own
// time: their namespaces, and the leases of virtual nodes.
func (c *cluster) objectsAtRest(t *testing.T) inventory {
	t.Helper()
	var found inventory
	eventually(t, c.Name+" has nothing of earlier stories", func(ctx context.Context) error {
		var err error
		if found, err = c.inventory(ctx); err != nil {
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
	for here, there := range map[*cluster]*cluster{lubeck: hamburg, hamburg: lubeck} {
		eventually(t, here.Name+" has parted from "+there.Name, func(ctx context.Context) error {
			return errors.Join(
				here.isGone(ctx, &v1alpha1.Peer{ObjectMeta: named(there.Name)}),
				here.isGone(ctx, &corev1.Namespace{ObjectMeta: named(v1alpha1.TenantNamespace(there.Name))}),
				here.isGone(ctx, &corev1.Node{ObjectMeta: named(v1alpha1.VirtualNodeName(there.Name))}),
			)
		})
	}
}

// expectSameObjects waits until a cluster has exactly the objects that it had, as they were.
func expectSameObjects(t *testing.T, before map[*cluster]inventory) {
	t.Helper()
	for c, objects := range before {
		eventually(t, c.Name+" has the objects it had before", func(ctx context.Context) error { return c.hasAgain(ctx, objects) })
	}
}

// runsAt has the consumer run a pod at the provider.
func (c *cluster) runsAt(t *testing.T, provider *cluster) (home, remote *corev1.Pod) {
	t.Helper()
	ns := c.offloaded(t, v1alpha1.StrategyRemote)
	c.create(t, shellPod(ns, "guest", forever))
	home = &c.awaitReadyPods(t, ns, "guest", 1)[0]
	remote = provider.mustRemotePod(t, home)
	expectSamePod(t, home, remote)
	return home, remote
}

// It is told well before the other story in which hamburg disappears: clients of an API server that is away again within two
// minutes wait for up to a minute, and Kubernetes' own do not delete namespaces meanwhile.
func TestPeerReturnsAfterForce(t *testing.T) {
	ctx := separated(t)
	if err := peerBothWays(ctx, lubeck, hamburg); err != nil {
		t.Fatal(err)
	}
	// hamburg runs a pod at lubeck, and lubeck one at hamburg, when hamburg disappears.
	_, orphan := lubeck.runsAt(t, hamburg)
	restarts := hamburg.restarts(t)
	hamburg.disappears(t)
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

	hamburg.returns(t)
	eventually(t, "hamburg, back again, parts as well", func(ctx context.Context) error {
		return errors.Join(hamburg.isGone(ctx, &v1alpha1.Peer{ObjectMeta: named("lubeck")}), hamburg.isGone(ctx, orphan))
	})
	if now := hamburg.restarts(t); now != restarts {
		t.Errorf("Hanse does not outlive an outage of its API server: its containers were started again %d times", now-restarts)
	}
	lubeck.dropTombstone(t, "hamburg")
	lubeck.deleteStories(t)
	expectSameObjects(t, whenApart)
}

func TestPeeringByObjectsOnly(t *testing.T) {
	ctx := separated(t)
	folder := t.TempDir()
	apply := func(c *cluster, text string) {
		t.Helper()
		file := filepath.Join(folder, "objects.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the objects are applied in "+c.Name, func(ctx context.Context) error {
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
	eventually(t, "hamburg puts an invitation into a Secret", func(ctx context.Context) error {
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
	lubeck.runsAt(t, hamburg)
	peer, err := lubeck.peer(ctx, "hamburg")
	if err != nil || peer.Spec.ClusterID != "hamburg" || peer.Spec.PublicKey == "" {
		t.Errorf("lubeck has not pinned who hamburg is: %+v, %v", peer.Spec, err)
	}
}

func TestInviteJoinOneSided(t *testing.T) {
	ctx := separated(t)
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
	lubeck.runsAt(t, hamburg)
	if _, err := hamburg.node(ctx, v1alpha1.VirtualNodeName("lubeck")); !apierrors.IsNotFound(err) {
		t.Errorf("hamburg has a node for lubeck, which did not invite it: %v", err)
	}
	for here, there := range map[*cluster]string{lubeck: "hamburg", hamburg: "lubeck"} {
		eventually(t, here.Name+" finds its peer Ready", func(ctx context.Context) error { return here.peerReady(ctx, there) })
	}
}

func (c *cluster) peerReady(ctx context.Context, name string) error {
	return c.peerHas(ctx, name, v1alpha1.ConditionReady)
}

// peerHas checks that the condition of the Peer is True.
func (c *cluster) peerHas(ctx context.Context, name, condition string) error {
	peer, err := c.peer(ctx, name)
	if err != nil {
		return err
	}
	if !meta.IsStatusConditionTrue(peer.Status.Conditions, condition) {
		return fmt.Errorf("conditions: %+v", peer.Status.Conditions)
	}
	return nil
}

func TestInviteJoinMutual(t *testing.T) {
	ctx := separated(t)
	if err := peer(ctx, lubeck, hamburg); err != nil {
		t.Fatal(err)
	}
	lubeck.runsAt(t, hamburg)
	hamburg.runsAt(t, lubeck)
}

func TestUnpeerLeavesNothing(t *testing.T) {
	if whenApart == nil {
		separated(t)
	}
	ctx := alone(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	pinned := deployment(ns, "away", 2, shellSpec(forever))
	pinned.Spec.Template.Spec.NodeSelector = map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}
	lubeck.create(t, pinned)
	lubeck.awaitReadyPods(t, ns, "away", 2)

	// Pods run: nothing happens before somebody says what becomes of them.
	if _, err := lubeck.Hanse(ctx, "unpeer", "hamburg", "--timeout", "5s"); err == nil || !strings.Contains(err.Error(), "away") {
		t.Errorf("unpeer with running pods says %v", err)
	}
	// One side parts, and the other follows.
	if _, err := lubeck.Hanse(ctx, "unpeer", "hamburg", "--drain", "wait"); err != nil {
		t.Fatal(err)
	}
	awaitParted(t)
	lubeck.deleteAndWait(t, pinned)
	lubeck.deleteAndWait(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	expectSameObjects(t, whenApart)
}

func TestUnpeerDeadPeer(t *testing.T) {
	ctx := separated(t)
	if err := peerBothWays(ctx, lubeck, hamburg); err != nil {
		t.Fatal(err)
	}
	hamburg.disappears(t)

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
	expectSameObjects(t, map[*cluster]inventory{lubeck: whenApart[lubeck]})
}

// restarts counts how often Kubernetes has started Hanse's containers again.
func (c *cluster) restarts(t *testing.T) int {
	t.Helper()
	pods := &corev1.PodList{}
	if err := c.List(t.Context(), pods, client.InNamespace(v1alpha1.SystemNamespace)); err != nil {
		t.Fatal(err)
	}
	count := 0
	for i := range pods.Items {
		for _, container := range pods.Items[i].Status.ContainerStatuses {
			count += int(container.RestartCount)
		}
	}
	return count
}

// disappears stops the cluster's API server until it returns, at the story's end at the latest.
func (c *cluster) disappears(t *testing.T) {
	t.Helper()
	mustTestbed(t, "stop", c.Name, "apiserver")
	t.Cleanup(func() { c.returns(t) })
}

func (c *cluster) returns(t *testing.T) {
	t.Helper()
	mustTestbed(t, "start", c.Name, "apiserver")
	eventuallyAfter(t, c.Name+" answers", func(ctx context.Context) error {
		return c.List(ctx, &v1alpha1.PeerList{})
	})
}

// dropTombstone deletes the record as an administrator would who does not want to wait 30 days.
func (c *cluster) dropTombstone(t *testing.T, peer string) {
	t.Helper()
	c.deleteAndWait(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TenantNamespace(peer)}})
}

// deleteStories deletes the namespaces of this story before its end, to count what is left.
func (c *cluster) deleteStories(t *testing.T) {
	t.Helper()
	list := &corev1.NamespaceList{}
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, "story-") {
			c.deleteAndWait(t, &list.Items[i])
		}
	}
}
