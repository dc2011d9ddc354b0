package e2e

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
)

// Nobody can call wismar, and nobody holds credentials of it. It becomes known all the same, by calling the broker, and gets a provider there,
// which it calls as well.
func TestBrokerOutboundOnly(t *testing.T) {
	ctx := market(t)
	for _, other := range []*cluster{lubeck, hamburg, bremen} {
		mustTestbed(t, "cut", other.Name, wismar.Name, "--one-way")
		t.Cleanup(func() { mustTestbed(t, "heal", other.Name, wismar.Name) })
	}
	meet(t)
	for c, other := range map[*cluster]string{lubeck: "wismar", wismar: "lubeck"} {
		if _, err := c.peer(ctx, other); client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("%s has a Peer %s: %v", c.Name, other, err)
		}
	}
	if err := hamburg.isGone(ctx, &corev1.Secret{ObjectMeta: inNamespace(v1alpha1.TenantNamespace("wismar"), v1alpha1.LinkSecret)}); err != nil {
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
	wismar.runsThere(t, lubeck)
}

// A member that has won is asked for room while it is no peer yet. One that refuses becomes none, and the next is asked. What one has
// reserved is locked at once, and is the room of the same Request when the two are peers.
func TestBrokerRelaysRequest(t *testing.T) {
	ctx := members(t)
	charge(t, "0.02", "0.02")
	wismar.prices(t, "0.01")
	closed := wismar.policy(t, "request", "package hanse.request\n\ndeny contains \"closed on Thursdays\" if input.member == \"lubeck\"\n")
	wismar.patchesBroker(t, `{"spec":{"acceptMembers":["lubeck"]}}`)
	lubeck.patchesBroker(t, `{"spec":{"askMembers":["wis*"]}}`)
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	app := auctioned(ns, "1", v1alpha1.AuctionAlways)
	lubeck.create(t, app)
	lubeck.awaitApplication(t, app, v1alpha1.ApplicationPlaced)
	if got := at(app); slices.Contains(got, "wismar") || len(app.Status.Refusals) != 1 || !strings.Contains(app.Status.Refusals[0].Message, "closed on Thursdays") {
		t.Errorf("it is at %v, and refused by %+v", got, app.Status.Refusals)
	}
	if err := lubeck.isGone(ctx, &v1alpha1.Peer{ObjectMeta: named("wismar")}); err != nil {
		t.Errorf("wismar has refused, and is a peer: %v", err)
	}
	lubeck.deleteAndWait(t, app)
	if err := wismar.Delete(ctx, closed); err != nil {
		t.Fatal(err)
	}

	// lubeck can reach wismar through the broker alone.
	mustTestbed(t, "cut", "lubeck", "wismar")
	t.Cleanup(func() { mustTestbed(t, "heal", "lubeck", "wismar") })
	app = auctioned(ns, "1", v1alpha1.AuctionAlways)
	lubeck.create(t, app)
	request := &v1alpha1.Request{}
	eventually(t, "wismar has reserved what lubeck asks for through hamburg, and the two are to be peers", func(ctx context.Context) error {
		key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace("hamburg"), Name: v1alpha1.RelayedName("lubeck", offload.RequestName(app))}
		if err := wismar.Get(ctx, key, request); err != nil {
			return err
		}
		if request.Status.Reserved.Cpu().String() != "100m" || request.Labels[v1alpha1.LabelFrom] != "lubeck" {
			return fmt.Errorf("it says %+v", request.Status)
		}
		_, err := lubeck.peer(ctx, "wismar")
		return err
	})
	mustTestbed(t, "heal", "lubeck", "wismar")
	lubeck.awaitApplication(t, app, v1alpha1.ApplicationPlaced)
	if got := at(app); !slices.Equal(got, []string{"wismar", "wismar"}) {
		t.Errorf("it is at %v", got)
	}
	if own, err := wismar.requestOf(ctx, app, lubeck); err != nil || own.Status.Reserved.Cpu().String() != "100m" {
		t.Errorf("what lubeck has as a peer is %+v (%v)", own.Status, err)
	}
	eventually(t, "lubeck has the room once", func(ctx context.Context) error { return wismar.isGone(ctx, request) })
	lubeck.deleteAndWait(t, app)
}

// meetAgain has lubeck and wismar, which are members of hamburg, be members of bremen too, and returns what lubeck knows of wismar.
func meetAgain(t *testing.T) *v1alpha1.Member {
	t.Helper()
	lubeck.becomesMemberOf(t, bremen)
	wismar.joinsBroker(t, bremen)
	return lubeck.hears(t, wismar, hamburg, bremen)
}

// A member of two brokers is one row, whoever tells of it. When one of them is cut off, what it has to spare is heard through the other.
func TestTwoBrokers(t *testing.T) {
	ctx := members(t)
	known := meetAgain(t)
	out, err := lubeck.Hanse(ctx, "members")
	if rows := regexp.MustCompile(`(?m)^wismar .*$`).FindAllString(out, -1); err != nil || len(rows) != 1 || !regexp.MustCompile(`bremen, *hamburg`).MatchString(rows[0]) {
		t.Errorf("members prints %q: %v", out, err)
	}
	cutOff(t)
	const quay = corev1.ResourceName("example.com/quays")
	wismar.berths(t, string(quay), 7)
	eventually(t, "lubeck hears what wismar has now", func(ctx context.Context) error {
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
