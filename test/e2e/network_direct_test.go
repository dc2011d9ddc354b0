package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Two pods of lubeck, one at hamburg and one at bremen, reach each other although lubeck is cut off from both, because the two are
// connected. When the two are cut off from each other, or part, the pods reach each other through lubeck. A stream between them outlives
// all of that.
func TestLeafToLeafDirect(t *testing.T) {
	ctx := network(t)
	awaitConnected(t, hamburg, bremen)
	ns := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	receiver := lubeck.party(t, ns, "receiver", bremen, script(forever,
		"tail -f /dev/null | nc -l -p 9000 | while read n; do read up rest </proc/uptime; echo $up $n; done >/tmp/stream; echo end >>/tmp/stream"))
	atHamburg := hamburg.seenHere(ctx, t, lubeck, receiver.address)
	sender := lubeck.party(t, ns, "sender", hamburg, script(forever,
		fmt.Sprintf("i=0; while sleep 0.05; do i=$((i+1)); echo $i; done | nc %s 9000", atHamburg)))
	atBremen := bremen.seenHere(ctx, t, lubeck, sender.address)
	there, here := receiver.guest(ctx, t, bremen), sender.guest(ctx, t, hamburg)
	s := &stream{there}
	talk := func(how string) {
		t.Helper()
		here.expectReaches(t, receiver, atHamburg)
		there.expectReaches(t, sender, atBremen)
		s.awaitMore(t, "the stream flows "+how)
	}

	awaitDirect(t)
	talk("directly")
	healHamburg, healBremen := cut(t, lubeck, hamburg), cut(t, lubeck, bremen)
	talk("while home is cut off")
	healHamburg()
	healBremen()
	awaitConnected(t, lubeck, hamburg)
	awaitConnected(t, lubeck, bremen)

	heal := cut(t, hamburg, bremen)
	talk("while the providers are cut off from each other")
	heal()
	awaitConnected(t, hamburg, bremen)
	awaitDirect(t)
	talk("directly again")

	t.Cleanup(func() {
		if err := peerBothWays(context.Background(), hamburg, bremen); err != nil {
			t.Error(err)
		}
	})
	for c, peer := range map[*cluster]*cluster{hamburg: bremen, bremen: hamburg} {
		if _, err := c.Hanse(ctx, "unpeer", peer.Name, "--force", "--forget"); err != nil {
			t.Fatal(err)
		}
	}
	talk("through home")
}

// cut cuts two clusters off from each other until it is healed, at the story's end at the latest.
func cut(t *testing.T, a, b *cluster) (heal func()) {
	t.Helper()
	mustTestbed(t, "cut", a.Name, b.Name)
	heal = sync.OnceFunc(func() { mustTestbed(t, "heal", a.Name, b.Name) })
	t.Cleanup(heal)
	return heal
}

// guest returns the pod as the provider has it.
func (p *party) guest(ctx context.Context, t *testing.T, provider *cluster) *party {
	t.Helper()
	pod, err := p.home.pod(ctx, p.ns, p.pod)
	if err != nil {
		t.Fatal(err)
	}
	remote := provider.mustRemotePod(t, pod)
	return &party{home: provider, ns: remote.Namespace, pod: remote.Name, address: remote.Status.PodIP}
}

// awaitDirect waits until hamburg and bremen both say that pods of lubeck reach each other through the tunnel between them.
func awaitDirect(t *testing.T) {
	t.Helper()
	for c, peer := range map[*cluster]*cluster{hamburg: bremen, bremen: hamburg} {
		eventually(t, c.Name+" sends directly to "+peer.Name, func(ctx context.Context) error {
			connection, err := c.connection(ctx, peer)
			if err == nil && !slices.Contains(connection.Status.Direct, lubeck.Name) {
				return fmt.Errorf("the Connection says %v; %v and %v", connection.Status.Direct, connection.Spec.TheirDirect, connection.Spec.OurDirect)
			}
			return err
		})
	}
}
