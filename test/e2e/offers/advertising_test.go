// SPDX-License-Identifier: Apache-2.0

package offers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

func TestHelloExpiry(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreatePlacedNamespace(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Exclude: []string{"bremen"}}, excludes("bremen"))
	pod := lubeck.ExpectPodOn(t, ns, "hanse-hamburg")
	before := hamburg.MustGetRemotePod(t, pod)

	for _, provider := range []string{"hamburg", "bremen"} {
		framework.MustTestbed(t, "cut", "lubeck", provider)
		t.Cleanup(func() { framework.MustTestbed(t, "heal", "lubeck", provider) })
	}
	framework.Eventually(t, "the node without pods has gone", func(ctx context.Context) error {
		return lubeck.CheckGone(ctx, &corev1.Node{ObjectMeta: framework.ObjectMeta("hanse-bremen")})
	})
	lubeck.AwaitVirtualNode(t, hamburg, "is closed and stays", func(node *corev1.Node) bool { return !framework.IsOpen(node) })
	framework.Eventually(t, "the table has neither, and says why", func(ctx context.Context) error { return offersExpired(ctx, lubeck, "hamburg", "bremen") })
	if now, err := lubeck.GetPod(ctx, ns, pod.Name); err != nil || now.UID != pod.UID || !now.DeletionTimestamp.IsZero() {
		t.Errorf("its pod is not what it was: %v %v", now, err)
	}

	for _, provider := range []string{"hamburg", "bremen"} {
		framework.MustTestbed(t, "heal", "lubeck", provider)
	}
	for _, provider := range []*framework.Cluster{hamburg, bremen} {
		lubeck.AwaitOpen(t, provider)
	}
	lubeck.AwaitRunning(t, pod)
	if after := hamburg.MustGetRemotePod(t, pod); after.UID != before.UID {
		t.Error("the pod at hamburg is another one")
	}
	framework.Eventually(t, "the table has both again", func(ctx context.Context) error {
		table, err := lubeck.OfferTable(ctx)
		if err == nil && (table["hamburg"]["ANSWER"] != "Accepted" || table["bremen"]["ANSWER"] != "Accepted") {
			err = fmt.Errorf("it has %v", table)
		}
		return err
	})
	lubeck.ExpectPodsAt(t, []*framework.Cluster{hamburg, bremen})
}

// offersExpired checks that the table has no row for the peers, and says that they were not heard of.
func offersExpired(ctx context.Context, c *framework.Cluster, peers ...string) error {
	table, err := c.OfferTable(ctx)
	if err != nil {
		return err
	}
	out, err := c.Hanse(ctx, "table")
	for _, peer := range peers {
		if row, has := table[peer]; has || err != nil || !strings.Contains(out, peer+": no offer of it is in force: "+v1alpha1.ReasonExpired) {
			return fmt.Errorf("%s has the row %v (%w):\n%s", peer, row, err, out)
		}
	}
	return nil
}

// excludes checks that no pod may run at the peers.
func excludes(peers ...string) func(*v1alpha1.PlacementStatus) error {
	return func(decided *v1alpha1.PlacementStatus) error {
		for _, peer := range peers {
			found := false
			for _, node := range decided.Nodes {
				found = found || node.Name == v1alpha1.VirtualNodeName(peer) && node.Excluded != ""
			}
			if !found {
				return errors.New(peer + " is not excluded")
			}
		}
		return nil
	}
}
