// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// begin waits for the clusters of the story, and makes lubeck and wismar, which are no peers, members of hamburg until the story ends.
func begin(t *testing.T) {
	t.Helper()
	framework.Begin(t)
	t.Cleanup(func() {
		wismar.UnpeerAll(t, lubeck, hamburg)
		setRole(t, lubeck, hamburg.Name, v1alpha1.RoleBroker, false)
		setRole(t, hamburg, lubeck.Name, v1alpha1.RoleMember, false)
		deleteMembers(t, lubeck)
		deleteMembers(t, wismar)
	})
	setRole(t, hamburg, lubeck.Name, v1alpha1.RoleMember, true)
	setRole(t, lubeck, hamburg.Name, v1alpha1.RoleBroker, true)
	joinBroker(t)
	awaitMember(t, lubeck, wismar)
	awaitMember(t, wismar, lubeck)
}

// joinBroker makes wismar, which is no peer of hamburg, a member of it.
func joinBroker(t *testing.T) {
	t.Helper()
	token, err := hamburg.Hanse(t.Context(), "invite", wismar.Name, "--member")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := wismar.Hanse(t.Context(), "join", strings.TrimSpace(token), "--broker"); err != nil {
		t.Fatal(out, err)
	}
}

// deleteMembers waits until no broker names a member to the cluster, and deletes the Members, which pin keys for a day.
func deleteMembers(t *testing.T, c *framework.Cluster) {
	t.Helper()
	framework.EventuallyInCleanup(t, "no broker names members to "+c.Name, func(ctx context.Context) error {
		members := &v1alpha1.MemberList{}
		if err := c.List(ctx, members); err != nil {
			return err
		}
		for i := range members.Items {
			if member := &members.Items[i]; len(member.Status.Brokers) > 0 {
				return fmt.Errorf("the status of Member %s is %+v", member.Name, member.Status)
			}
		}
		return c.DeleteAllOf(ctx, &v1alpha1.Member{})
	})
}

// setRole adds the role to the Peer, or removes it.
func setRole(t *testing.T, c *framework.Cluster, peer string, role v1alpha1.PeerRole, has bool) {
	t.Helper()
	framework.EventuallyInCleanup(t, fmt.Sprintf("the role %s of %s at %s is %t", role, peer, c.Name, has), func(ctx context.Context) error {
		found, err := c.GetPeer(ctx, peer)
		if err != nil || found.HasRole(role) == has {
			return err
		}
		if found.Spec.Roles = slices.DeleteFunc(found.Spec.Roles, func(r v1alpha1.PeerRole) bool { return r == role }); has {
			found.Spec.Roles = append(found.Spec.Roles, role)
		} else {
			found.Spec.AcceptMembers, found.Spec.AskMembers = nil, nil
		}
		return c.Update(ctx, found)
	})
}

// awaitMember waits until hamburg names the other cluster to this one, with an offer that is current.
func awaitMember(t *testing.T, c, other *framework.Cluster) {
	t.Helper()
	framework.Eventually(t, c.Name+" knows the offer of "+other.Name, func(ctx context.Context) error {
		member := &v1alpha1.Member{}
		if err := c.Get(ctx, client.ObjectKey{Name: other.Name}, member); err != nil {
			return err
		}
		if !member.IsKnownThrough("hamburg") || member.Status.Offer == nil || member.Status.Offer.Availability.Cpu().IsZero() ||
			!meta.IsStatusConditionTrue(member.Status.Conditions, v1alpha1.ConditionCurrent) {
			return fmt.Errorf("its status is %+v", member.Status)
		}
		return nil
	})
}

// The table has nothing cheap enough, and no peer offers it for less. A member that is no peer is asked through the broker, offers it at its
// own price for members, and wins. Then the two become peers, and the application runs there.
func TestBrokerRelaysAuction(t *testing.T) {
	begin(t)
	framework.SetCorePrices(t, "0.02", "0.02")
	wismar.SetPrices(t, "0.02")
	wismar.ApplyPolicy(t, "quote", `package hanse.quote

# Who has answered whatever the broker has brought it.
interest := 80 if {
	input.member == "lubeck"
	input.marks.offers == input.marks.quotes
}

prices := {"currency": "EUR", "perHour": {"cpu": 0.005}}
`)
	patchesBroker(t, wismar, `{"spec":{"acceptMembers":["lubeck"]}}`)
	patchesBroker(t, lubeck, `{"spec":{"askMembers":["wis*"]}}`)
	isTold(t, wismar, lubeck, func(*v1alpha1.MemberMarks) bool { return true })
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	app := framework.NewAuctionedApplication(ns, "0.0008", v1alpha1.AuctionIfNeeded)
	lubeck.MustCreate(t, app)
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
	if got := framework.ComponentPeers(app); !slices.Equal(got, []string{"wismar", "wismar"}) || app.Status.Price.Amount.String() != "500u" || app.Status.Auction.Round != 1 {
		t.Errorf("it is at %v: %+v", got, app.Status)
	}
	if own, other := framework.AuctionOfferOf(t, app, "wismar"), framework.AuctionOfferOf(t, app, "hamburg"); own.Broker != "hamburg" || own.Interest != 80 || len(own.Won) != 2 || other.Broker != "" {
		t.Errorf("wismar offers %+v, and the broker %+v", own, other)
	}
	wismar.ExpectPriceKept(t, "500u", app, lubeck)
	lubeck.ExpectOutput(t, []string{"wismar (through hamburg)", "front, back", "80"}, "hanse", "auction", "shop", "-n", ns)
	lubeck.MustCreate(t, framework.NewDeployment(ns, "front", 1, framework.NewShellPodSpec(framework.RunForever)))
	lubeck.ExpectComponentAt(t, app, "front", "wismar")
	isTold(t, lubeck, wismar, func(of *v1alpha1.MemberMarks) bool {
		return of.Offers > 0 && of.Declined < of.Offers && of.OfferTime != nil && of.Invitations > 0
	})
	lubeck.DeleteAndWait(t, app)
}

// patchesBroker changes the Peer for hamburg.
func patchesBroker(t *testing.T, c *framework.Cluster, patch string) {
	t.Helper()
	if out, err := c.Kubectl(t.Context(), "patch", "peer", "hamburg", "--type=merge", "-p", patch); err != nil {
		t.Fatal(out, err)
	}
}

// isTold waits until hamburg says to the cluster of the other one what is expected.
func isTold(t *testing.T, c *framework.Cluster, of *framework.Cluster, expected func(*v1alpha1.MemberMarks) bool) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("%s is told of what hamburg has counted of %s", c.Name, of.Name), func(ctx context.Context) error {
		member := &v1alpha1.Member{}
		if err := c.Get(ctx, client.ObjectKey{Name: of.Name}, member); err != nil {
			return err
		}
		if marks := member.MarksOf("hamburg"); marks == nil || !expected(marks) {
			return fmt.Errorf("it is told %+v", marks)
		}
		return nil
	})
}
