package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// stade and stralsund are clusters of IPv4 and IPv6. They too use the same ranges of both.
var stade, stralsund *cluster

// addresses returns those that home shows, once there is one of each family.
func (p *party) addresses(t *testing.T) []string {
	t.Helper()
	var all []string
	eventually(t, p.pod+" has addresses of both families", func(ctx context.Context) error {
		pod, err := p.home.pod(ctx, p.ns, p.pod)
		if err != nil {
			return err
		}
		all = nil
		for _, ip := range pod.Status.PodIPs {
			all = append(all, ip.IP)
		}
		if len(all) != 2 {
			return fmt.Errorf("its addresses are %v", all)
		}
		return nil
	})
	return all
}

// Pods of two clusters that have IPv4 and IPv6 reach each other over both, and Services of home that
// have one of them alone by their names.
func TestIPv6(t *testing.T) {
	belongs(t, "network", []string{"dual"})
	if err := installAll(t.Context(), stade, stralsund); err != nil {
		t.Fatal(err)
	}
	peerFor(t, stade, stralsund)
	for c, peer := range map[*cluster]*cluster{stade: stralsund, stralsund: stade} {
		eventually(t, c.Name+" leaves nothing out of the connection", func(ctx context.Context) error {
			connection, err := c.connection(ctx, peer)
			if err == nil && !meta.IsStatusConditionTrue(connection.Status.Conditions, v1alpha1.ConditionReady) {
				return fmt.Errorf("%+v", connection.Status.Conditions)
			}
			return err
		})
	}
	ns := stade.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	away := stade.party(t, ns, "away", stralsund)
	here := stade.party(t, ns, "here", nil, atHome(stade.workers(t)[0]))
	for _, address := range away.addresses(t) {
		here.expectReaches(t, away, address)
	}
	for _, address := range here.addresses(t) {
		away.expectReaches(t, here, stade.seenBy(t.Context(), t, stralsund, address))
	}

	for family, name := range map[corev1.IPFamily]string{corev1.IPv4Protocol: "4", corev1.IPv6Protocol: "6"} {
		for from, to := range map[*party]*party{here: away, away: here} {
			svc := stade.service(t, ns, to.pod+name, map[string]string{"app": to.pod}, family)
			eventually(t, from.pod+" reaches Service "+svc.Name, func(ctx context.Context) error {
				answered, err := from.ask(ctx, svc.Name)
				if err == nil && answered != to.pod {
					return fmt.Errorf("%s answers", answered)
				}
				return err
			})
		}
	}
}
