package e2e

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
)

// members marks a story in which lubeck and wismar, which are no peers, are members of hamburg. wismar has joined it for that alone.
func members(t *testing.T) context.Context {
	t.Helper()
	ctx := market(t)
	meet(t)
	return ctx
}

// meet has lubeck and wismar be members of hamburg until the story ends.
func meet(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		wismar.parts(t, lubeck, hamburg, bremen)
		lubeck.isMemberNoMore(t)
		wismar.knowsNobody(t)
	})
	lubeck.becomesMemberOf(t, hamburg)
	wismar.joinsBroker(t, hamburg)
	lubeck.hears(t, wismar, hamburg)
	wismar.hears(t, lubeck, hamburg)
}

// joinsBroker has a cluster that is no peer of the broker become a member of it.
func (c *cluster) joinsBroker(t *testing.T, broker *cluster) {
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
func (c *cluster) becomesMemberOf(t *testing.T, broker *cluster) {
	t.Helper()
	broker.hasRole(t, c.Name, v1alpha1.RoleMember, true)
	c.hasRole(t, broker.Name, v1alpha1.RoleBroker, true)
}

// isMemberNoMore has lubeck be a peer of its brokers as before.
func (c *cluster) isMemberNoMore(t *testing.T) {
	t.Helper()
	for _, broker := range []*cluster{hamburg, bremen} {
		c.hasRole(t, broker.Name, v1alpha1.RoleBroker, false)
		broker.hasRole(t, c.Name, v1alpha1.RoleMember, false)
	}
	c.knowsNobody(t)
}

// knowsNobody has a cluster without brokers know no members. Of those that it knew it keeps the keys, which are deleted here.
func (c *cluster) knowsNobody(t *testing.T) {
	t.Helper()
	eventuallyAfter(t, c.Name+" knows members by their keys alone", func(ctx context.Context) error {
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
func (c *cluster) hasRole(t *testing.T, peer string, role v1alpha1.PeerRole, has bool) {
	t.Helper()
	eventuallyAfter(t, fmt.Sprintf("the role %s of %s at %s is %t", role, peer, c.Name, has), func(ctx context.Context) error {
		found, err := c.peer(ctx, peer)
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
func (c *cluster) hears(t *testing.T, other *cluster, brokers ...*cluster) *v1alpha1.Member {
	t.Helper()
	member := &v1alpha1.Member{}
	eventually(t, fmt.Sprintf("%s knows %s through %d brokers", c.Name, other.Name, len(brokers)), func(ctx context.Context) error {
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
	for _, c := range []*cluster{lubeck, wismar} {
		if err := c.peerHas(ctx, "hamburg", v1alpha1.ConditionIntroduced); err != nil {
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
	lubeck.create(t, &v1alpha1.Peer{ObjectMeta: named("wismar"), Spec: v1alpha1.PeerSpec{
		ClusterID: "wismar", Roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider}, Introducer: "hamburg",
	}})
	eventually(t, "lubeck is told that wismar does not accept it", func(ctx context.Context) error {
		return lubeck.peerSays(ctx, "wismar", v1alpha1.ConditionIntroduced, v1alpha1.ReasonNotAccepted)
	})
	if _, err := lubeck.Hanse(ctx, "unpeer", "wismar"); err != nil {
		t.Fatal(err)
	}
	wismar.patchesBroker(t, `{"spec":{"acceptMembers":["lub*"]}}`)
	if out, err := lubeck.Hanse(ctx, "join", "--member", "wismar"); err != nil {
		t.Fatal(out, err)
	}
	if err := lubeck.peerReady(ctx, "wismar"); err != nil {
		t.Error(err)
	}
	home, _ := lubeck.runsThere(t, wismar)

	// The broker is gone, and parted from.
	hamburg.pause(t, "manager")
	if _, err := wismar.Hanse(ctx, "unpeer", "hamburg", "--force", "--forget"); err != nil {
		t.Fatal(err)
	}
	mustTestbed(t, "cut", "lubeck", "hamburg")
	t.Cleanup(func() { mustTestbed(t, "heal", "lubeck", "hamburg") })
	lubeck.runsThere(t, wismar)
	if now, err := lubeck.pod(ctx, home.Namespace, home.Name); err != nil || now.UID != home.UID || !podReady(now) {
		t.Errorf("the pod from before is %s: %v", summary([]corev1.Pod{*now}), err)
	}
}

// runsThere has the cluster run a pod at this provider and no other.
func (c *cluster) runsThere(t *testing.T, provider *cluster) (home, remote *corev1.Pod) {
	t.Helper()
	ns := c.offloadedBy(t, v1alpha1.NamespaceOffloadingSpec{
		Strategy:        v1alpha1.StrategyRemote,
		ClusterSelector: &v1alpha1.ClusterSelector{MatchLabels: map[string]v1alpha1.LabelValue{v1alpha1.LabelPeer: v1alpha1.LabelValue(provider.Name)}},
	})
	c.create(t, shellPod(ns, "guest", forever))
	home = &c.awaitReadyPods(t, ns, "guest", 1)[0]
	return home, provider.mustRemotePod(t, home)
}

// The table has nothing cheap enough, and no peer offers it for less. A member that is no peer is asked through the broker, offers it at its
// own price for members, and wins. Then the two become peers, and the application runs there.
func TestBrokerRelaysAuction(t *testing.T) {
	members(t)
	charge(t, "0.02", "0.02")
	wismar.prices(t, "0.02")
	wismar.policy(t, "quote", `package hanse.quote

# Who has answered whatever the broker has brought it.
interest := 80 if {
	input.member == "lubeck"
	input.marks.offers == input.marks.quotes
}

prices := {"currency": "EUR", "perHour": {"cpu": 0.005}}
`)
	wismar.patchesBroker(t, `{"spec":{"acceptMembers":["lubeck"]}}`)
	lubeck.patchesBroker(t, `{"spec":{"askMembers":["wis*"]}}`)
	wismar.isTold(t, lubeck, func(*v1alpha1.MemberMarks) bool { return true })
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	app := auctioned(ns, "0.0008", v1alpha1.AuctionIfNeeded)
	lubeck.create(t, app)
	lubeck.awaitApplication(t, app, v1alpha1.ApplicationPlaced)
	if got := at(app); !slices.Equal(got, []string{"wismar", "wismar"}) || app.Status.Price.Amount.String() != "500u" || app.Status.Auction.Round != 1 {
		t.Errorf("it is at %v: %+v", got, app.Status)
	}
	if own, other := offerOf(t, app, "wismar"), offerOf(t, app, "hamburg"); own.Broker != "hamburg" || own.Interest != 80 || len(own.Won) != 2 || other.Broker != "" {
		t.Errorf("wismar offers %+v, and the broker %+v", own, other)
	}
	wismar.keepsTo(t, "500u", app, lubeck)
	lubeck.shows(t, []string{"wismar (through hamburg)", "front, back", "80"}, "hanse", "auction", "shop", "-n", ns)
	lubeck.create(t, deployment(ns, "front", 1, shellSpec(forever)))
	lubeck.expectAtComponent(t, app, "front", "wismar")
	lubeck.isTold(t, wismar, func(of *v1alpha1.MemberMarks) bool {
		return of.Offers > 0 && of.Declined < of.Offers && of.OfferTime != nil && of.Invitations > 0
	})
	lubeck.deleteAndWait(t, app)
}

// patchesBroker changes the Peer for hamburg.
func (c *cluster) patchesBroker(t *testing.T, patch string) {
	t.Helper()
	if out, err := c.Kubectl(t.Context(), "patch", "peer", "hamburg", "--type=merge", "-p", patch); err != nil {
		t.Fatal(out, err)
	}
}

// isTold waits until hamburg says to the cluster of the other one what is expected.
func (c *cluster) isTold(t *testing.T, of *cluster, expected func(*v1alpha1.MemberMarks) bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s is told of what hamburg has counted of %s", c.Name, of.Name), func(ctx context.Context) error {
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
	hamburg.refusesMessage(t, v1alpha1.ReasonForged)

	if _, err := wismar.Hanse(ctx, "unpeer", "hamburg"); err != nil {
		t.Fatal(err)
	}
	lubeck.hears(t, wismar, bremen)
	eventually(t, "hamburg has nothing of wismar", func(ctx context.Context) error {
		return errors.Join(
			hamburg.isGone(ctx, &v1alpha1.Message{ObjectMeta: inNamespace(v1alpha1.MembersNamespace, "wismar")}),
			hamburg.isGone(ctx, &corev1.Namespace{ObjectMeta: named(v1alpha1.TenantNamespace("wismar"))}),
			hamburg.isGone(ctx, &rbacv1.RoleBinding{ObjectMeta: inNamespace(v1alpha1.MembersNamespace, v1alpha1.TenantNamespace("wismar"))}),
		)
	})
	if _, err := wismar.Hanse(ctx, "unpeer", "bremen"); err != nil {
		t.Fatal(err)
	}
	lubeck.hearsNoMore(t, known)
	eventually(t, "wismar hears of nobody any more", func(ctx context.Context) error {
		all := &v1alpha1.MemberList{}
		err := wismar.List(ctx, all)
		for i := range all.Items {
			err = errors.Join(err, notHeard(&all.Items[i]))
		}
		return err
	})
	lubeck.hasRole(t, "hamburg", v1alpha1.RoleBroker, false) // and stays a consumer
	eventually(t, "hamburg tells nobody of lubeck", func(ctx context.Context) error {
		said := inNamespace(v1alpha1.TenantNamespace("lubeck"), v1alpha1.MessageIntroduction)
		return errors.Join(
			hamburg.isGone(ctx, &v1alpha1.Message{ObjectMeta: said}),
			hamburg.isGone(ctx, &v1alpha1.Message{ObjectMeta: inNamespace(v1alpha1.MembersNamespace, "lubeck")}),
		)
	})
}

// refusesMessage writes, as wismar, what lubeck has said.
func (c *cluster) refusesMessage(t *testing.T, reason string) {
	t.Helper()
	theirs := &v1alpha1.Message{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.MembersNamespace, Name: "lubeck"}, theirs); err != nil {
		t.Fatal(err)
	}
	// To one member: the introduction of wismar is made again by wismar.
	forged := &v1alpha1.Message{ObjectMeta: inNamespace(v1alpha1.TenantNamespace("wismar"), "forged"), Spec: theirs.Spec}
	c.create(t, forged)
	eventually(t, "hamburg does not relay it: "+reason, func(ctx context.Context) error {
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
