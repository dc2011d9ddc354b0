package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/overlay"
)

// Both clusters use the same ranges, so each sees the other's pods in another one.
func TestPodToPodBothWays(t *testing.T) {
	ctx := alone(t)
	for _, c := range []*cluster{lubeck, hamburg} {
		if err := installWith(ctx, c, "gateway.enabled=true"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := installWith(context.WithoutCancel(ctx), c); err != nil {
				t.Error(err)
			}
		})
	}
	for c, peer := range map[*cluster]*cluster{lubeck: hamburg, hamburg: lubeck} {
		eventually(t, c.Name+" is connected to "+peer.Name, func(ctx context.Context) error { return c.connectedTo(ctx, peer) })
	}
	away, here := lubeck.offloaded(t, v1alpha1.StrategyRemote), lubeck.namespace(t)
	pods := map[string]*corev1.Pod{}
	for name, ns := range map[string]string{"away": away, "here": here} {
		spec := shellSpec(forever)
		spec.Containers = append(spec.Containers, echoSpec().Containers...)
		lubeck.create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app": name}}, Spec: spec})
		pods[name] = &lubeck.awaitReadyPods(t, ns, name, 1)[0]
	}
	seen := lubeck.seenBy(ctx, t, hamburg, pods["here"].Status.PodIP)
	for _, way := range []struct{ from, to, at string }{{"here", "away", pods["away"].Status.PodIP}, {"away", "here", seen}} {
		eventually(t, fmt.Sprintf("the pod that is %s reaches the one that is %s", way.from, way.to), func(ctx context.Context) error {
			script := fmt.Sprintf("ping -c 1 -W 1 -s 3000 %s && wget -qO- http://%s:8080/", way.at, way.at)
			_, err := lubeck.Kubectl(ctx, "exec", "-n", pods[way.from].Namespace, way.from, "-c", "main", "--", "/bin/sh", "-c", script)
			return err
		})
	}
}

// connectedTo reports what keeps pods of the two clusters apart.
func (c *cluster) connectedTo(ctx context.Context, peer *cluster) error {
	p, err := c.peer(ctx, peer.Name)
	if err != nil {
		return err
	}
	if !p.Connected() {
		return fmt.Errorf("%s", conditionsOf(p))
	}
	return nil
}

// seenBy returns the address by which pods of ours that run at the peer know an address here.
func (c *cluster) seenBy(ctx context.Context, t *testing.T, peer *cluster, own string) string {
	t.Helper()
	connection := &v1alpha1.Connection{}
	connection.Namespace, connection.Name = v1alpha1.TenantNamespace(peer.Name), v1alpha1.ConnectionName
	if err := c.Get(ctx, client.ObjectKeyFromObject(connection), connection); err != nil {
		t.Fatal(err)
	}
	seen, ok := overlay.Seen(overlay.Mappings(connection.Spec.Ours), netip.MustParseAddr(own))
	if !ok {
		t.Fatalf("%s is not told how it sees %s", peer.Name, own)
	}
	return seen.String()
}
