// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// members marks a story in which lubeck and wismar, which are no peers, are members of hamburg. wismar has joined it for that alone.
func members(t *testing.T) context.Context {
	t.Helper()
	ctx := framework.Begin(t)
	meet(t)
	return ctx
}

// meet has lubeck and wismar be members of hamburg until the story ends.
func meet(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		wismar.UnpeerAll(t, lubeck, hamburg, bremen)
		isMemberNoMore(t, lubeck)
		knowsNobody(t, wismar)
	})
	becomesMemberOf(t, lubeck, hamburg)
	joinsBroker(t, wismar, hamburg)
	hears(t, lubeck, wismar, hamburg)
	hears(t, wismar, lubeck, hamburg)
}

// joinsBroker has a cluster that is no peer of the broker become a member of it.
func joinsBroker(t *testing.T, c *framework.Cluster, broker *framework.Cluster) {
	t.Helper()
	token, err := broker.Hanse(t.Context(), "invite", c.Name, "--member")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := c.Hanse(t.Context(), "join", strings.TrimSpace(token), "--broker"); err != nil {
		t.Fatal(out, err)
	}
}

// becomesMemberOf has a consumer of the broker be one of its members too.
func becomesMemberOf(t *testing.T, c *framework.Cluster, broker *framework.Cluster) {
	t.Helper()
	hasRole(t, broker, c.Name, v1alpha1.RoleMember, true)
	hasRole(t, c, broker.Name, v1alpha1.RoleBroker, true)
}

// isMemberNoMore has lubeck be a peer of its brokers as before.
func isMemberNoMore(t *testing.T, c *framework.Cluster) {
	t.Helper()
	for _, broker := range []*framework.Cluster{hamburg, bremen} {
		hasRole(t, c, broker.Name, v1alpha1.RoleBroker, false)
		hasRole(t, broker, c.Name, v1alpha1.RoleMember, false)
	}
	knowsNobody(t, c)
}

// knowsNobody has a cluster without brokers know no members. Of those that it knew it keeps the keys, which are deleted here.
func knowsNobody(t *testing.T, c *framework.Cluster) {
	t.Helper()
	framework.EventuallyInCleanup(t, c.Name+" knows members by their keys alone", func(ctx context.Context) error {
		all := &v1alpha1.MemberList{}
		if err := c.List(ctx, all); err != nil {
			return err
		}
		for i := range all.Items {
			if err := notHeard(&all.Items[i]); err != nil {
				return err
			}
		}
		return c.DeleteAllOf(ctx, &v1alpha1.Member{})
	})
}

// notHeard says what is wrong if the member is not known by its key alone.
func notHeard(member *v1alpha1.Member) error {
	current := meta.FindStatusCondition(member.Status.Conditions, v1alpha1.ConditionCurrent)
	if len(member.Status.Brokers) > 0 || current == nil || current.Status != metav1.ConditionFalse || current.Reason != v1alpha1.ReasonNotHeard {
		return fmt.Errorf("what is known of %s is %+v", member.Name, member.Status)
	}
	return nil
}

// hasRole gives the Peer the role, or takes it away.
func hasRole(t *testing.T, c *framework.Cluster, peer string, role v1alpha1.PeerRole, has bool) {
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

// hears waits until the cluster knows the other one through these brokers, with what it has to spare, and returns what it knows.
func hears(t *testing.T, c *framework.Cluster, other *framework.Cluster, brokers ...*framework.Cluster) *v1alpha1.Member {
	t.Helper()
	member := &v1alpha1.Member{}
	framework.Eventually(t, fmt.Sprintf("%s knows %s through %d brokers", c.Name, other.Name, len(brokers)), func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKey{Name: other.Name}, member); err != nil {
			return err
		}
		through := map[string]bool{}
		for _, b := range member.Status.Brokers {
			through[b.Name] = true
		}
		for _, b := range brokers {
			if !through[b.Name] || len(through) != len(brokers) {
				return fmt.Errorf("it is known through %v", member.Status.Brokers)
			}
		}
		if member.Status.Offer == nil || member.Status.Offer.Availability.Cpu().IsZero() ||
			!meta.IsStatusConditionTrue(member.Status.Conditions, v1alpha1.ConditionCurrent) {
			return fmt.Errorf("what is known is %+v", member.Status)
		}
		return nil
	})
	return member
}

// Two clusters that have never spoken know of each other, and what each has to spare.
func TestBrokerMakesMembersKnown(t *testing.T) {
	ctx := members(t)
	for _, c := range []*framework.Cluster{lubeck, wismar} {
		if err := c.CheckPeerHas(ctx, "hamburg", v1alpha1.ConditionIntroduced); err != nil {
			t.Error(err)
		}
	}
	out, err := lubeck.Hanse(ctx, "members")
	if err != nil || !regexp.MustCompile(`(?m)^wismar +.*hamburg`).MatchString(out) {
		t.Errorf("members prints %q: %v", out, err)
	}
}

// A member that is asked for it becomes a provider, by its own policy alone, and stays one when the broker is gone for ever. Until it
// accepts that, the one that asks is told why not.
func TestHandOverOutlivesBroker(t *testing.T) {
	ctx := members(t)
	lubeck.MustCreate(t, &v1alpha1.Peer{ObjectMeta: framework.ObjectMeta("wismar"), Spec: v1alpha1.PeerSpec{
		ClusterID: "wismar", Roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider}, Introducer: "hamburg",
	}})
	framework.Eventually(t, "lubeck is told that wismar does not accept it", func(ctx context.Context) error {
		return lubeck.CheckPeerCondition(ctx, "wismar", v1alpha1.ConditionIntroduced, v1alpha1.ReasonNotAccepted)
	})
	if _, err := lubeck.Hanse(ctx, "unpeer", "wismar"); err != nil {
		t.Fatal(err)
	}
	patchesBroker(t, wismar, `{"spec":{"acceptMembers":["lub*"]}}`)
	if out, err := lubeck.Hanse(ctx, "join", "--member", "wismar"); err != nil {
		t.Fatal(out, err)
	}
	if err := lubeck.CheckPeerReady(ctx, "wismar"); err != nil {
		t.Error(err)
	}
	home, _ := runsThere(t, lubeck, wismar)

	// The broker is gone, and parted from.
	hamburg.PauseHanse(t, "manager")
	if _, err := wismar.Hanse(ctx, "unpeer", "hamburg", "--force", "--forget"); err != nil {
		t.Fatal(err)
	}
	framework.MustTestbed(t, "cut", "lubeck", "hamburg")
	t.Cleanup(func() { framework.MustTestbed(t, "heal", "lubeck", "hamburg") })
	runsThere(t, lubeck, wismar)
	if now, err := lubeck.GetPod(ctx, home.Namespace, home.Name); err != nil || now.UID != home.UID || !framework.IsPodReady(now) {
		t.Errorf("the pod from before is %s: %v", framework.Summarize([]corev1.Pod{*now}), err)
	}
}

// runsThere has the cluster run a pod at this provider and no other.
func runsThere(t *testing.T, c *framework.Cluster, provider *framework.Cluster) (home, remote *corev1.Pod) {
	t.Helper()
	ns := c.CreateOffloadedNamespaceWith(t, v1alpha1.NamespaceOffloadingSpec{
		Strategy:        v1alpha1.StrategyRemote,
		ClusterSelector: &v1alpha1.ClusterSelector{MatchLabels: map[string]v1alpha1.LabelValue{v1alpha1.LabelPeer: v1alpha1.LabelValue(provider.Name)}},
	})
	c.MustCreate(t, framework.NewShellPod(ns, "guest", framework.RunForever))
	home = &c.AwaitReadyPods(t, ns, "guest", 1)[0]
	return home, provider.MustGetRemotePod(t, home)
}

// The table has nothing cheap enough, and no peer offers it for less. A member that is no peer is asked through the broker, offers it at its
// own price for members, and wins. Then the two become peers, and the application runs there.
func TestBrokerRelaysAuction(t *testing.T) {
	members(t)
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

// A member that writes in another's name, or to nobody, is told on its own Message, and nobody else hears of it. One that leaves a
// broker is known through the other, and then by its key alone; neither broker keeps anything of it.
func TestLeaveBroker(t *testing.T) {
	ctx := members(t)
	known := meetAgain(t)
	refusesMessage(t, hamburg, v1alpha1.ReasonForged)

	if _, err := wismar.Hanse(ctx, "unpeer", "hamburg"); err != nil {
		t.Fatal(err)
	}
	hears(t, lubeck, wismar, bremen)
	framework.Eventually(t, "hamburg has nothing of wismar", func(ctx context.Context) error {
		return errors.Join(
			hamburg.CheckGone(ctx, &v1alpha1.Message{ObjectMeta: framework.NamespacedMeta(v1alpha1.MembersNamespace, "wismar")}),
			hamburg.CheckGone(ctx, &corev1.Namespace{ObjectMeta: framework.ObjectMeta(v1alpha1.TenantNamespace("wismar"))}),
			hamburg.CheckGone(ctx, &rbacv1.RoleBinding{ObjectMeta: framework.NamespacedMeta(v1alpha1.MembersNamespace, v1alpha1.TenantNamespace("wismar"))}),
		)
	})
	if _, err := wismar.Hanse(ctx, "unpeer", "bremen"); err != nil {
		t.Fatal(err)
	}
	hearsNoMore(t, lubeck, known)
	framework.Eventually(t, "wismar hears of nobody any more", func(ctx context.Context) error {
		all := &v1alpha1.MemberList{}
		err := wismar.List(ctx, all)
		for i := range all.Items {
			err = errors.Join(err, notHeard(&all.Items[i]))
		}
		return err
	})
	hasRole(t, lubeck, "hamburg", v1alpha1.RoleBroker, false) // and stays a consumer
	framework.Eventually(t, "hamburg tells nobody of lubeck", func(ctx context.Context) error {
		said := framework.NamespacedMeta(v1alpha1.TenantNamespace("lubeck"), v1alpha1.MessageIntroduction)
		return errors.Join(
			hamburg.CheckGone(ctx, &v1alpha1.Message{ObjectMeta: said}),
			hamburg.CheckGone(ctx, &v1alpha1.Message{ObjectMeta: framework.NamespacedMeta(v1alpha1.MembersNamespace, "lubeck")}),
		)
	})
}

// refusesMessage writes, as wismar, what lubeck has said.
func refusesMessage(t *testing.T, c *framework.Cluster, reason string) {
	t.Helper()
	theirs := &v1alpha1.Message{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.MembersNamespace, Name: "lubeck"}, theirs); err != nil {
		t.Fatal(err)
	}
	// To one member: the introduction of wismar is made again by wismar.
	forged := &v1alpha1.Message{ObjectMeta: framework.NamespacedMeta(v1alpha1.TenantNamespace("wismar"), "forged"), Spec: theirs.Spec}
	c.MustCreate(t, forged)
	framework.Eventually(t, "hamburg does not relay it: "+reason, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(forged), forged); err != nil {
			return err
		}
		relayed := meta.FindStatusCondition(forged.Status.Conditions, v1alpha1.ConditionRelayed)
		if relayed == nil || relayed.Status != metav1.ConditionFalse || relayed.Reason != reason {
			return fmt.Errorf("it says %+v", relayed)
		}
		return nil
	})
}
