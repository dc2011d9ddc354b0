// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// Two pods of lubeck, one at hamburg and one at bremen, reach each other although lubeck is cut off from both, because the two are
// connected. When the two are cut off from each other, or part, the pods reach each other through lubeck. A stream between them outlives
// all of that.
func TestLeafToLeafDirect(t *testing.T) {
	ctx := framework.Begin(t)
	framework.AwaitConnected(t, hamburg, bremen)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	receiver := lubeck.StartNetworkPod(t, ns, "receiver", bremen, framework.WithScript(framework.RunForever,
		"tail -f /dev/null | nc -l -p 9000 | while read n; do read up rest </proc/uptime; echo $up $n; done >/tmp/stream; echo end >>/tmp/stream"))
	atHamburg := hamburg.TranslateFromPeer(ctx, t, lubeck, receiver.Address)
	sender := lubeck.StartNetworkPod(t, ns, "sender", hamburg, framework.WithScript(framework.RunForever,
		fmt.Sprintf("i=0; while sleep 0.05; do i=$((i+1)); echo $i; done | nc %s 9000", atHamburg)))
	atBremen := bremen.TranslateFromPeer(ctx, t, lubeck, sender.Address)
	there, here := guest(ctx, t, receiver, bremen), guest(ctx, t, sender, hamburg)
	s := &framework.Stream{Receiver: there}
	talk := func(how string) {
		t.Helper()
		here.ExpectReaches(t, receiver, atHamburg)
		there.ExpectReaches(t, sender, atBremen)
		s.AwaitMore(t, "the stream flows "+how)
	}

	awaitDirect(t)
	talk("directly")
	healHamburg, healBremen := cut(t, lubeck, hamburg), cut(t, lubeck, bremen)
	talk("while home is cut off")
	healHamburg()
	healBremen()
	framework.AwaitConnected(t, lubeck, hamburg)
	framework.AwaitConnected(t, lubeck, bremen)

	heal := cut(t, hamburg, bremen)
	talk("while the providers are cut off from each other")
	heal()
	framework.AwaitConnected(t, hamburg, bremen)
	awaitDirect(t)
	talk("directly again")

	t.Cleanup(func() {
		if err := framework.PeerBothWays(context.Background(), hamburg, bremen); err != nil {
			t.Error(err)
		}
	})
	for c, peer := range map[*framework.Cluster]*framework.Cluster{hamburg: bremen, bremen: hamburg} {
		if _, err := c.Hanse(ctx, "unpeer", peer.Name, "--force", "--forget"); err != nil {
			t.Fatal(err)
		}
	}
	talk("through home")
}

// cut cuts two clusters off from each other until it is healed, at the story's end at the latest.
func cut(t *testing.T, a, b *framework.Cluster) (heal func()) {
	t.Helper()
	framework.MustTestbed(t, "cut", a.Name, b.Name)
	heal = sync.OnceFunc(func() { framework.MustTestbed(t, "heal", a.Name, b.Name) })
	t.Cleanup(heal)
	return heal
}

// guest returns the pod as the provider has it.
func guest(ctx context.Context, t *testing.T, p *framework.NetworkPod, provider *framework.Cluster) *framework.NetworkPod {
	t.Helper()
	pod, err := p.Home.GetPod(ctx, p.Ns, p.Pod)
	if err != nil {
		t.Fatal(err)
	}
	remote := provider.MustGetRemotePod(t, pod)
	return &framework.NetworkPod{Home: provider, Ns: remote.Namespace, Pod: remote.Name, Address: remote.Status.PodIP}
}

// awaitDirect waits until hamburg and bremen both say that pods of lubeck reach each other through the tunnel between them.
func awaitDirect(t *testing.T) {
	t.Helper()
	for c, peer := range map[*framework.Cluster]*framework.Cluster{hamburg: bremen, bremen: hamburg} {
		framework.Eventually(t, c.Name+" sends directly to "+peer.Name, func(ctx context.Context) error {
			connection, err := c.GetConnection(ctx, peer)
			if err == nil && !slices.Contains(connection.Status.Direct, lubeck.Name) {
				return fmt.Errorf("the Connection says %v; %v and %v", connection.Status.Direct, connection.Spec.TheirDirect, connection.Spec.OurDirect)
			}
			return err
		})
	}
}
