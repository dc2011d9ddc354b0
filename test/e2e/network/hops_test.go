// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/overlay"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// hamburg, whose nodes are closed, sends a pod of lubeck on to bremen. At lubeck it is a pod like any other: it is reached at the
// address that it shows, it reaches pods and Services of lubeck, and answers for one. Nothing else of hamburg or bremen is opened by
// that.
func TestTwoHopsRoute(t *testing.T) {
	ctx := framework.Begin(t)
	framework.AwaitConnected(t, hamburg, bremen)
	others := hamburg.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	own := hamburg.StartNetworkPod(t, others, "own", nil, framework.OnNode(hamburg.WorkerNames(t)[0]))
	theirs := hamburg.StartNetworkPod(t, others, "theirs", bremen)
	stranger := bremen.StartNetworkPod(t, bremen.CreateNamespace(t), "stranger", nil)
	sendsOn(t, hamburg, lubeck, bremen)

	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	here := lubeck.StartNetworkPod(t, ns, "here", nil, framework.OnNode(lubeck.WorkerNames(t)[0]))
	far := lubeck.StartNetworkPod(t, ns, "far", hamburg)
	pod, err := lubeck.GetPod(ctx, ns, "far")
	if err != nil {
		t.Fatal(err)
	}
	between := hamburg.MustGetRemotePod(t, pod)
	if last := bremen.MustGetRemotePod(t, between); framework.IsOnVirtualNode(last) {
		t.Fatalf("the pod is on %s of bremen", last.Spec.NodeName)
	}

	framework.Eventually(t, "its log can be read at home", func(ctx context.Context) error {
		out, err := lubeck.Kubectl(ctx, "logs", "-n", ns, "far", "-c", "main")
		return framework.CheckOutput(out, "started", err)
	})
	token, err := far.Run(ctx, "cat "+tokenPath)
	if err != nil {
		t.Fatal(err)
	}
	if user, err := reviewed(ctx, lubeck, token); err != nil || user != "system:serviceaccount:"+ns+":default" {
		t.Errorf("home knows the pod as %q (%v)", user, err)
	}
	here.ExpectReaches(t, far, far.Address)
	far.ExpectReaches(t, here, hamburg.TranslateToPeer(ctx, t, bremen, lubeck.TranslateToPeer(ctx, t, hamburg, here.Address)))
	lubeck.CreateService(t, ns, "stock", map[string]string{"app": "here"})
	lubeck.CreateService(t, ns, "web", map[string]string{"app": "far"})
	for host, q := range map[string]struct{ from, to *framework.NetworkPod }{"stock": {far, here}, "web": {here, far}} {
		framework.Eventually(t, q.to.Pod+" answers "+q.from.Pod+" at "+host, func(ctx context.Context) error {
			name, err := q.from.Request(ctx, host)
			if err == nil && name != q.to.Pod {
				return fmt.Errorf("%s answers", name)
			}
			return err
		})
	}
	strangerAtHamburg := bremen.TranslateToPeer(ctx, t, hamburg, stranger.Address)
	expectWishes(t, []wish{
		{"hamburg and its own pod at bremen", own, theirs.Address + ":8080", true},
		{"hamburg and a pod that it has sent on", own, between.Status.PodIP + ":8080", false},
		{"lubeck and a pod of hamburg at bremen", here, hamburg.TranslateToPeer(ctx, t, lubeck, theirs.Address) + ":8080", false},
		{"lubeck and a pod of bremen", here, hamburg.TranslateToPeer(ctx, t, lubeck, strangerAtHamburg) + ":8080", false},
		{"a pod that was sent on and a pod of hamburg", far, hamburg.TranslateToPeer(ctx, t, bremen, own.Address) + ":8080", false},
		{"a pod that was sent on and a pod of bremen", far, stranger.Address + ":8080", false},
		{"a pod of bremen and a pod that was sent on", stranger, guestAddress(t, bremen, "far") + ":8080", false},
	})
}

// sendsOn has the cluster, until the story ends, run no pods itself and send those of the consumer on to the provider, and waits
// until all three know the addresses of the others.
func sendsOn(t *testing.T, c *framework.Cluster, consumer, provider *framework.Cluster) {
	t.Helper()
	t.Cleanup(func() {
		if err := framework.Install(context.Background(), c); err != nil {
			t.Error(err)
		}
	})
	if err := framework.Install(t.Context(), c, "advertising.aggregate=true"); err != nil {
		t.Fatal(err)
	}
	for _, node := range c.WorkerNames(t) {
		c.SetCordoned(t, node, true)
		t.Cleanup(func() { c.SetCordoned(t, node, false) })
	}
	ranges := func(of *framework.Cluster) []v1alpha1.CIDR { // of pods and Services, as the cluster sees them
		connection, err := c.GetConnection(t.Context(), of)
		if err != nil {
			t.Fatal(err)
		}
		var seen []v1alpha1.CIDR
		for _, m := range connection.Spec.Theirs {
			if netip.MustParsePrefix(string(m.Own)).Overlaps(netip.MustParsePrefix("10.0.0.0/8")) {
				seen = append(seen, m.Seen)
			}
		}
		return seen
	}
	toProvider, toConsumer := ranges(consumer), ranges(provider)[:1]
	framework.Eventually(t, consumer.Name+" and "+provider.Name+" see each other through "+c.Name, func(ctx context.Context) error {
		for to, wanted := range map[*framework.Cluster][]v1alpha1.CIDR{provider: toProvider, consumer: toConsumer} {
			connection, err := c.GetConnection(ctx, to)
			if err != nil {
				return err
			}
			for _, r := range wanted {
				at := netip.MustParsePrefix(string(r)).Addr()
				if _, ok := overlay.Seen(overlay.Mappings(connection.Spec.Ours), at); !ok {
					return fmt.Errorf("%s does not see %s", to.Name, r)
				}
			}
		}
		return nil
	})
	consumer.AwaitVirtualNode(t, c, "shows what is behind it", func(node *corev1.Node) bool {
		cpu := node.Status.Allocatable[corev1.ResourceCPU]
		return framework.IsOpen(node) && !cpu.IsZero()
	})
}
