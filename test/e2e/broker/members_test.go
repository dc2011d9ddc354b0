// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// Nobody can call wismar, and nobody holds credentials of it. It becomes known all the same, by calling the broker, and gets a provider there,
// which it calls as well.
func TestBrokerOutboundOnly(t *testing.T) {
	ctx := framework.Begin(t)
	for _, other := range []*framework.Cluster{lubeck, hamburg, bremen} {
		framework.MustTestbed(t, "cut", other.Name, wismar.Name, "--one-way")
		t.Cleanup(func() { framework.MustTestbed(t, "heal", other.Name, wismar.Name) })
	}
	meet(t)
	for c, other := range map[*framework.Cluster]string{lubeck: "wismar", wismar: "lubeck"} {
		if _, err := c.GetPeer(ctx, other); client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("%s has a Peer %s: %v", c.Name, other, err)
		}
	}
	if err := hamburg.CheckGone(ctx, &corev1.Secret{ObjectMeta: framework.NamespacedMeta(v1alpha1.TenantNamespace("wismar"), v1alpha1.LinkSecret)}); err != nil {
		t.Errorf("hamburg holds credentials of wismar: %v", err)
	}
	accounts := &corev1.ServiceAccountList{}
	if err := wismar.List(ctx, accounts, client.InNamespace(v1alpha1.TenantNamespace("hamburg"))); err != nil {
		t.Fatal(err)
	}
	for _, account := range accounts.Items {
		if account.Name == v1alpha1.PeerServiceAccount {
			t.Error("wismar has an account for hamburg")
		}
	}
	if out, err := lubeck.Kubectl(ctx, "patch", "peer", "hamburg", "--type=merge", "-p", `{"spec":{"acceptMembers":["wismar"]}}`); err != nil {
		t.Fatal(out, err)
	}
	if out, err := wismar.Hanse(ctx, "join", "--member", "lubeck"); err != nil {
		t.Fatal(out, err)
	}
	runsThere(t, wismar, lubeck)
}

// A member that has won is asked for room while it is no peer yet. One that refuses becomes none, and the next is asked. What one has
// reserved is locked at once, and is the room of the same Request when the two are peers.
func TestBrokerRelaysRequest(t *testing.T) {
	ctx := members(t)
	framework.SetCorePrices(t, "0.02", "0.02")
	wismar.SetPrices(t, "0.01")
	closed := wismar.ApplyPolicy(t, "request", "package hanse.request\n\ndeny contains \"closed on Thursdays\" if input.member == \"lubeck\"\n")
	patchesBroker(t, wismar, `{"spec":{"acceptMembers":["lubeck"]}}`)
	patchesBroker(t, lubeck, `{"spec":{"askMembers":["wis*"]}}`)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	app := framework.NewAuctionedApplication(ns, "1", v1alpha1.AuctionAlways)
	lubeck.MustCreate(t, app)
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
	if got := framework.ComponentPeers(app); slices.Contains(got, "wismar") || len(app.Status.Refusals) != 1 || !strings.Contains(app.Status.Refusals[0].Message, "closed on Thursdays") {
		t.Errorf("it is at %v, and refused by %+v", got, app.Status.Refusals)
	}
	if err := lubeck.CheckGone(ctx, &v1alpha1.Peer{ObjectMeta: framework.ObjectMeta("wismar")}); err != nil {
		t.Errorf("wismar has refused, and is a peer: %v", err)
	}
	lubeck.DeleteAndWait(t, app)
	if err := wismar.Delete(ctx, closed); err != nil {
		t.Fatal(err)
	}

	// lubeck can reach wismar through the broker alone.
	framework.MustTestbed(t, "cut", "lubeck", "wismar")
	t.Cleanup(func() { framework.MustTestbed(t, "heal", "lubeck", "wismar") })
	app = framework.NewAuctionedApplication(ns, "1", v1alpha1.AuctionAlways)
	lubeck.MustCreate(t, app)
	request := &v1alpha1.Request{}
	framework.Eventually(t, "wismar has reserved what lubeck asks for through hamburg, and the two are to be peers", func(ctx context.Context) error {
		key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace("hamburg"), Name: v1alpha1.RelayedName("lubeck", offload.RequestName(app))}
		if err := wismar.Get(ctx, key, request); err != nil {
			return err
		}
		if request.Status.Reserved.Cpu().String() != "100m" || request.Labels[v1alpha1.LabelFrom] != "lubeck" {
			return fmt.Errorf("it says %+v", request.Status)
		}
		_, err := lubeck.GetPeer(ctx, "wismar")
		return err
	})
	framework.MustTestbed(t, "heal", "lubeck", "wismar")
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
	if got := framework.ComponentPeers(app); !slices.Equal(got, []string{"wismar", "wismar"}) {
		t.Errorf("it is at %v", got)
	}
	if own, err := wismar.RequestOf(ctx, app, lubeck); err != nil || own.Status.Reserved.Cpu().String() != "100m" {
		t.Errorf("what lubeck has as a peer is %+v (%v)", own.Status, err)
	}
	framework.Eventually(t, "lubeck has the room once", func(ctx context.Context) error { return wismar.CheckGone(ctx, request) })
	lubeck.DeleteAndWait(t, app)
}

// meetAgain has lubeck and wismar, which are members of hamburg, be members of bremen too, and returns what lubeck knows of wismar.
func meetAgain(t *testing.T) *v1alpha1.Member {
	t.Helper()
	becomesMemberOf(t, lubeck, bremen)
	joinsBroker(t, wismar, bremen)
	return hears(t, lubeck, wismar, hamburg, bremen)
}

// A member of two brokers is one row, whoever tells of it. When one of them is cut off, what it has to spare is heard through the other.
func TestTwoBrokers(t *testing.T) {
	ctx := members(t)
	known := meetAgain(t)
	out, err := lubeck.Hanse(ctx, "members")
	if rows := regexp.MustCompile(`(?m)^wismar .*$`).FindAllString(out, -1); err != nil || len(rows) != 1 || !regexp.MustCompile(`bremen, *hamburg`).MatchString(rows[0]) {
		t.Errorf("members prints %q: %v", out, err)
	}
	framework.CutOff(t)
	const quay = corev1.ResourceName("example.com/quays")
	wismar.AddExtendedResource(t, string(quay), 7)
	framework.Eventually(t, "lubeck hears what wismar has now", func(ctx context.Context) error {
		now := &v1alpha1.Member{}
		if err := lubeck.Get(ctx, client.ObjectKeyFromObject(known), now); err != nil {
			return err
		}
		if has := now.Status.Offer.Availability[quay]; has.Value() != 7 || now.UID != known.UID {
			return fmt.Errorf("what is known is %+v", now.Status)
		}
		return nil
	})
}
