package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// separated parts lubeck and hamburg, as they were before they became peers, for a story of how they do. At the story's
// end they are peers again as all other stories expect.
func separated(t *testing.T) map[*cluster][]string {
	t.Helper()
	for _, c := range []*cluster{lubeck, hamburg} {
		c.awaitNoRemotePods(t)
	}
	if _, err := lubeck.Hanse(t.Context(), "unpeer", "hamburg", "--drain", "wait"); err != nil {
		t.Fatal(err)
	}
	awaitParted(t)
	before := map[*cluster][]string{}
	for _, c := range []*cluster{lubeck, hamburg} {
		before[c] = c.objectsAtRest(t)
	}
	t.Cleanup(func() {
		if t.Failed() {
			lubeck.describe("default")
			hamburg.describe("default")
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := peerBothWays(ctx, lubeck, hamburg); err != nil {
			t.Errorf("make them peers again: %v", err)
		}
	})
	return before
}

// objectsAtRest are those that there are when Kubernetes has collected the leases of virtual nodes, which it does in its
// own time.
func (c *cluster) objectsAtRest(t *testing.T) []string {
	t.Helper()
	var names []string
	eventually(t, c.Name+" has no leases of virtual nodes", func(ctx context.Context) error {
		var err error
		if names, err = c.objects(ctx); err != nil {
			return err
		}
		lease := func(name string) bool {
			return strings.HasPrefix(name, "leases.coordination.k8s.io kube-node-lease/"+v1alpha1.VirtualNodePrefix)
		}
		if i := slices.IndexFunc(names, lease); i >= 0 {
			return errors.New(names[i])
		}
		return nil
	})
	return names
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

// expectSameObjects waits until a cluster has exactly the objects that it had.
func expectSameObjects(t *testing.T, before map[*cluster][]string) {
	t.Helper()
	for c, names := range before {
		eventually(t, c.Name+" has the objects it had before", func(ctx context.Context) error {
			after, err := c.objects(ctx)
			if err != nil {
				return err
			}
			if diff := cmp.Diff(names, after); diff != "" {
				return errors.New(onlyChanges(diff))
			}
			return nil
		})
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

func TestInviteJoinOneSided(t *testing.T) {
	ctx := alone(t)
	separated(t)
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
	ctx := alone(t)
	separated(t)
	if err := peer(ctx, lubeck, hamburg); err != nil {
		t.Fatal(err)
	}
	lubeck.runsAt(t, hamburg)
	hamburg.runsAt(t, lubeck)
}

func TestPeeringByObjectsOnly(t *testing.T) {
	ctx := alone(t)
	separated(t)
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

func TestTokenRenewal(t *testing.T) {
	ctx := alone(t)
	home, remote := lubeck.runsAt(t, hamburg)
	ready := func() metav1.Condition {
		peer, err := lubeck.peer(ctx, "hamburg")
		if err != nil {
			t.Fatal(err)
		}
		return *meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionReady)
	}
	if err := installWith(ctx, lubeck, "renewalPeriod=3s"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := installWith(context.Background(), lubeck); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "hamburg is Ready", func(ctx context.Context) error { return lubeck.peerReady(ctx, "hamburg") })
	stable := ready()
	seen := map[string]bool{}
	eventually(t, "four tokens, one after the other", func(ctx context.Context) error {
		link := &corev1.Secret{}
		key := types.NamespacedName{Namespace: v1alpha1.TenantNamespace("hamburg"), Name: v1alpha1.LinkSecret}
		if err := lubeck.Get(ctx, key, link); err != nil {
			return err
		}
		seen[string(link.Data[v1alpha1.LinkSecretKey])] = true
		if len(seen) < 4 {
			return fmt.Errorf("%d so far", len(seen))
		}
		return nil
	})
	if now := ready(); now.LastTransitionTime != stable.LastTransitionTime || now.Status != metav1.ConditionTrue {
		t.Errorf("the peer was disturbed: %+v, then %+v", stable, now)
	}
	if err := lubeck.runsCommands(ctx, home); err != nil {
		t.Error(err)
	}
	expectSamePod(t, home, hamburg.mustRemotePod(t, home))
	if now := hamburg.mustRemotePod(t, home); now.UID != remote.UID {
		t.Errorf("the remote pod was replaced")
	}
}

func TestRenewAfterOutage(t *testing.T) {
	ctx := alone(t)
	home, remote := lubeck.runsAt(t, hamburg)
	// The tokens end as they do when an outage was longer than their life.
	session := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace("lubeck"), Name: v1alpha1.SessionSecret}}
	if err := hamburg.Delete(ctx, session); err != nil {
		t.Fatal(err)
	}
	eventually(t, "lubeck is told that its session has ended", func(ctx context.Context) error {
		return lubeck.peerSays(ctx, "hamburg", v1alpha1.ConditionAuthenticated, v1alpha1.ReasonUnauthorized)
	})
	token, err := hamburg.Hanse(ctx, "invite", "lubeck", "--renew")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lubeck.Hanse(ctx, "join", strings.TrimSpace(token), "--as", "hamburg"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "hamburg is Ready again", func(ctx context.Context) error { return lubeck.peerReady(ctx, "hamburg") })
	eventually(t, "the pod is Ready and the same", func(ctx context.Context) error {
		now, err := lubeck.pod(ctx, home.Namespace, home.Name)
		if err != nil {
			return err
		}
		if now.UID != home.UID || !podReady(now) {
			return fmt.Errorf("uid %s, ready %v", now.UID, podReady(now))
		}
		return nil
	})
	now := hamburg.mustRemotePod(t, home)
	if diff := cmp.Diff(containerIDs(remote), containerIDs(now)); diff != "" || now.UID != remote.UID {
		t.Errorf("the remote pod was replaced: %s", diff)
	}
	// The kubelet learns of a new session, and of what runs over it, in its own time: that the Peer is Ready is what the
	// manager found.
	eventually(t, "commands run again", func(ctx context.Context) error { return lubeck.runsCommands(ctx, home) })
}

// runsCommands checks that a command runs in the pod.
func (c *cluster) runsCommands(ctx context.Context, home *corev1.Pod) error {
	out, err := c.Kubectl(ctx, "exec", "-n", home.Namespace, home.Name, "--", "echo", "still here")
	if err == nil && !strings.Contains(out, "still here") {
		err = fmt.Errorf("exec says %q", out)
	}
	return err
}
