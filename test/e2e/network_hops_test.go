package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/overlay"
)

// hamburg, whose nodes are closed, sends a pod of lubeck on to bremen. At lubeck it is a pod like any other: it is reached at the
// address that it shows, it reaches pods and Services of lubeck, and answers for one. Nothing else of hamburg or bremen is opened by
// that.
func TestTwoHopsRoute(t *testing.T) {
	ctx := network(t)
	awaitConnected(t, hamburg, bremen)
	others := hamburg.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	own := hamburg.party(t, others, "own", nil, atHome(hamburg.workers(t)[0]))
	theirs := hamburg.party(t, others, "theirs", bremen)
	stranger := bremen.party(t, bremen.namespace(t), "stranger", nil)
	hamburg.sendsOn(t, lubeck, bremen)

	ns := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	here := lubeck.party(t, ns, "here", nil, atHome(lubeck.workers(t)[0]))
	far := lubeck.party(t, ns, "far", hamburg)
	pod, err := lubeck.pod(ctx, ns, "far")
	if err != nil {
		t.Fatal(err)
	}
	between := hamburg.mustRemotePod(t, pod)
	if last := bremen.mustRemotePod(t, between); isVirtual(last) {
		t.Fatalf("the pod is on %s of bremen", last.Spec.NodeName)
	}

	token, err := far.run(ctx, "cat "+tokenPath)
	if err != nil {
		t.Fatal(err)
	}
	if user, err := lubeck.reviewed(ctx, token); err != nil || user != "system:serviceaccount:"+ns+":default" {
		t.Errorf("home knows the pod as %q (%v)", user, err)
	}
	here.expectReaches(t, far, far.address)
	far.expectReaches(t, here, hamburg.seenBy(ctx, t, bremen, lubeck.seenBy(ctx, t, hamburg, here.address)))
	lubeck.service(t, ns, "stock", map[string]string{"app": "here"})
	lubeck.service(t, ns, "web", map[string]string{"app": "far"})
	for host, q := range map[string]struct{ from, to *party }{"stock": {far, here}, "web": {here, far}} {
		eventually(t, q.to.pod+" answers "+q.from.pod+" at "+host, func(ctx context.Context) error {
			name, err := q.from.ask(ctx, host)
			if err == nil && name != q.to.pod {
				return fmt.Errorf("%s answers", name)
			}
			return err
		})
	}
	strangerAtHamburg := bremen.seenBy(ctx, t, hamburg, stranger.address)
	expectWishes(t, []wish{
		{"hamburg and its own pod at bremen", own, theirs.address + ":8080", true},
		{"hamburg and a pod that it has sent on", own, between.Status.PodIP + ":8080", false},
		{"lubeck and a pod of hamburg at bremen", here, hamburg.seenBy(ctx, t, lubeck, theirs.address) + ":8080", false},
		{"lubeck and a pod of bremen", here, hamburg.seenBy(ctx, t, lubeck, strangerAtHamburg) + ":8080", false},
		{"a pod that was sent on and a pod of hamburg", far, hamburg.seenBy(ctx, t, bremen, own.address) + ":8080", false},
		{"a pod that was sent on and a pod of bremen", far, stranger.address + ":8080", false},
		{"a pod of bremen and a pod that was sent on", stranger, bremen.guestAddress(t, "far") + ":8080", false},
	})
}

// sendsOn has the cluster, until the story ends, run no pods itself and send those of the consumer on to the provider, and waits
// until all three know the addresses of the others.
func (c *cluster) sendsOn(t *testing.T, consumer, provider *cluster) {
	t.Helper()
	t.Cleanup(func() {
		if err := installWith(context.Background(), c); err != nil {
			t.Error(err)
		}
	})
	if err := installWith(t.Context(), c, "advertising.aggregate=true"); err != nil {
		t.Fatal(err)
	}
	for _, node := range c.workers(t) {
		c.cordon(t, node, true)
		t.Cleanup(func() { c.cordon(t, node, false) })
	}
	ranges := func(of *cluster) []v1alpha1.CIDR { // of pods and Services, as the cluster sees them
		connection, err := c.connection(t.Context(), of)
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
	eventually(t, consumer.Name+" and "+provider.Name+" see each other through "+c.Name, func(ctx context.Context) error {
		for to, wanted := range map[*cluster][]v1alpha1.CIDR{provider: toProvider, consumer: toConsumer} {
			connection, err := c.connection(ctx, to)
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
	consumer.awaitVirtual(t, c, "shows what is behind it", func(node *corev1.Node) bool {
		cpu := node.Status.Allocatable[corev1.ResourceCPU]
		return isOpen(node) && !cpu.IsZero()
	})
}
