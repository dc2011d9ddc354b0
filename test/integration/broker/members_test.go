// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// begin waits until lubeck uses the offers of its peers. Then it makes lubeck and wismar, which are no peers, members of hamburg until
// the end of the test.
func begin(t *testing.T) {
	t.Helper()
	for _, provider := range []*framework.Cluster{hamburg, bremen} {
		lubeck.AwaitOpen(t, provider)
	}
	t.Cleanup(func() {
		forgetWismar(t)
		for _, broker := range []*framework.Cluster{hamburg, bremen} {
			setRole(t, lubeck, broker, v1alpha1.RoleBroker, false)
			setRole(t, broker, lubeck, v1alpha1.RoleMember, false)
		}
		deleteMembers(t, lubeck)
		deleteMembers(t, wismar)
	})
	addMember(t, hamburg, lubeck)
	joinBroker(t, wismar, hamburg)
	awaitMember(t, lubeck, wismar, hamburg)
	awaitMember(t, wismar, lubeck, hamburg)
}

// joinSecondBroker makes lubeck and wismar, which are members of hamburg, members of bremen as well. It returns lubeck's Member wismar.
func joinSecondBroker(t *testing.T) *v1alpha1.Member {
	t.Helper()
	addMember(t, bremen, lubeck)
	joinBroker(t, wismar, bremen)
	return awaitMember(t, lubeck, wismar, hamburg, bremen)
}

// joinBroker makes a cluster that is no peer of the broker a member of it.
func joinBroker(t *testing.T, c, broker *framework.Cluster) {
	t.Helper()
	token := broker.MustHanse(t, "invite", c.Name, "--member")
	c.MustHanse(t, "join", strings.TrimSpace(token), "--broker")
}

// addMember makes a consumer of the broker a member of it.
func addMember(t *testing.T, broker, c *framework.Cluster) {
	t.Helper()
	setRole(t, broker, c, v1alpha1.RoleMember, true)
	setRole(t, c, broker, v1alpha1.RoleBroker, true)
}

// setRole adds the role to the Peer for the other cluster, or removes it. It may run after the test.
func setRole(t *testing.T, c, other *framework.Cluster, role v1alpha1.PeerRole, wanted bool) {
	t.Helper()
	framework.EventuallyAfter(t, fmt.Sprintf("%s sets role %s of %s to %t", c.Name, role, other.Name, wanted), func(ctx context.Context) error {
		peer, err := c.Peer(ctx, other.Name)
		if err != nil || peer.HasRole(role) == wanted {
			return err
		}
		if wanted {
			peer.Spec.Roles = append(peer.Spec.Roles, role)
		} else {
			peer.Spec.Roles = slices.DeleteFunc(peer.Spec.Roles, func(r v1alpha1.PeerRole) bool { return r == role })
			peer.Spec.AcceptMembers, peer.Spec.AskMembers = nil, nil
		}
		return c.Update(ctx, peer)
	})
}

// forgetWismar ends all peerings of wismar at the same time.
func forgetWismar(t *testing.T) {
	t.Helper()
	var forgetting sync.WaitGroup
	for _, other := range []*framework.Cluster{lubeck, hamburg, bremen} {
		forgetting.Go(func() { wismar.Forget(t, other.Name) })
		forgetting.Go(func() { other.Forget(t, "wismar") })
	}
	forgetting.Wait()
}

// deleteMembers waits until no broker names a member to the cluster, and deletes the Members, which pin keys for a day. It runs after
// the test.
func deleteMembers(t *testing.T, c *framework.Cluster) {
	t.Helper()
	framework.EventuallyAfter(t, "no broker names members to "+c.Name, func(ctx context.Context) error {
		if err := expectNoneHeard(ctx, c); err != nil {
			return err
		}
		return c.DeleteAllOf(ctx, &v1alpha1.Member{})
	})
}

// expectNoneHeard returns an error if a broker names a member to the cluster.
func expectNoneHeard(ctx context.Context, c *framework.Cluster) error {
	members := &v1alpha1.MemberList{}
	err := c.List(ctx, members)
	for i := range members.Items {
		err = errors.Join(err, expectNotHeard(&members.Items[i]))
	}
	return err
}

// expectNotHeard returns an error unless all that is left of the member is its pinned key.
func expectNotHeard(member *v1alpha1.Member) error {
	current := meta.FindStatusCondition(member.Status.Conditions, v1alpha1.ConditionCurrent)
	if len(member.Status.Brokers) > 0 || current == nil || current.Status != metav1.ConditionFalse || current.Reason != v1alpha1.ReasonNotHeard {
		return fmt.Errorf("the status of Member %s is %+v", member.Name, member.Status)
	}
	return nil
}

// awaitMember waits until exactly these brokers name the member to the cluster, with an offer that is current.
func awaitMember(t *testing.T, c, other *framework.Cluster, brokers ...*framework.Cluster) *v1alpha1.Member {
	t.Helper()
	var want []string
	for _, broker := range brokers {
		want = append(want, broker.Name)
	}
	slices.Sort(want)
	member := &v1alpha1.Member{}
	framework.Eventually(t, fmt.Sprintf("%s knows %s through %v", c.Name, other.Name, want), func(ctx context.Context) error {
		member = &v1alpha1.Member{}
		if err := c.Get(ctx, types.NamespacedName{Name: other.Name}, member); err != nil {
			return err
		}
		var got []string
		for _, broker := range member.Status.Brokers {
			got = append(got, broker.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("%v name it", got)
		}
		if member.Status.Offer == nil || member.Status.Offer.Availability.Cpu().IsZero() ||
			!meta.IsStatusConditionTrue(member.Status.Conditions, v1alpha1.ConditionCurrent) {
			return fmt.Errorf("its status is %+v", member.Status)
		}
		return nil
	})
	return member
}

// awaitNotHeard waits until no broker names the member to the cluster any more. Its key stays pinned.
func awaitNotHeard(t *testing.T, c *framework.Cluster, known *v1alpha1.Member) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("no broker names %s to %s", known.Name, c.Name), func(ctx context.Context) error {
		member := &v1alpha1.Member{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(known), member); err != nil {
			return err
		}
		if member.UID != known.UID || member.Spec != known.Spec {
			return fmt.Errorf("it is another Member: %+v", member)
		}
		return expectNotHeard(member)
	})
}

// expectNoPeer checks that the cluster has no Peer of that name.
func expectNoPeer(t *testing.T, c *framework.Cluster, name string) {
	t.Helper()
	if _, err := c.Peer(t.Context(), name); !apierrors.IsNotFound(err) {
		t.Errorf("%s has a Peer %s (%v)", c.Name, name, err)
	}
}

// memberRows returns the rows of a member that kubectl hanse members prints.
func memberRows(t *testing.T, c, member *framework.Cluster) []string {
	t.Helper()
	return regexp.MustCompile(`(?m)^`+member.Name+` .*$`).FindAllString(c.MustHanse(t, "members"), -1)
}

// TestBrokerMakesMembersKnown: two clusters that have never exchanged messages learn the offers of each other through a broker. Neither
// becomes a peer of the other.
func TestBrokerMakesMembersKnown(t *testing.T) {
	begin(t)
	for _, c := range []*framework.Cluster{lubeck, wismar} {
		framework.Eventually(t, "hamburg has introduced "+c.Name, func(ctx context.Context) error {
			return c.PeerHas(ctx, "hamburg", v1alpha1.ConditionIntroduced)
		})
	}
	expectNoPeer(t, lubeck, "wismar")
	expectNoPeer(t, wismar, "lubeck")
	for c, other := range map[*framework.Cluster]*framework.Cluster{lubeck: wismar, wismar: lubeck} {
		if rows := memberRows(t, c, other); len(rows) != 1 || !strings.Contains(rows[0], "hamburg") {
			t.Errorf("kubectl hanse members of %s prints %q for %s", c.Name, rows, other.Name)
		}
	}
}

// TestTwoBrokers: a member of two brokers is one row. When one broker is down, the other one brings a new offer of the member.
func TestTwoBrokers(t *testing.T) {
	begin(t)
	known := joinSecondBroker(t)
	if rows := memberRows(t, lubeck, wismar); len(rows) != 1 || !regexp.MustCompile(`bremen, *hamburg`).MatchString(rows[0]) {
		t.Errorf("kubectl hanse members prints %q for wismar", rows)
	}
	hamburg.StopAPIServer(t)
	const quay = corev1.ResourceName("example.com/quays")
	wismar.SetExtendedResource(t, quay, 7)
	framework.Eventually(t, "lubeck has the new offer of wismar", func(ctx context.Context) error {
		member := &v1alpha1.Member{}
		if err := lubeck.Get(ctx, client.ObjectKeyFromObject(known), member); err != nil {
			return err
		}
		if offered := member.Status.Offer.Availability[quay]; offered.Value() != 7 || member.UID != known.UID {
			return fmt.Errorf("the Member is %+v", member)
		}
		return nil
	})
}

// TestLeaveBroker: a broker does not relay a Message that a member writes in the name of another, and the condition of the Message says
// why. When a member leaves one of two brokers, the other one still names it. When it has left both, its key alone stays known. The
// brokers keep nothing of it.
func TestLeaveBroker(t *testing.T) {
	begin(t)
	known := joinSecondBroker(t)
	expectForgedMessageRefused(t)

	wismar.MustHanse(t, "unpeer", "hamburg")
	awaitMember(t, lubeck, wismar, bremen)
	framework.Eventually(t, "hamburg has no objects of wismar", func(ctx context.Context) error {
		tenant := v1alpha1.TenantNamespace("wismar")
		return errors.Join(
			hamburg.Gone(ctx, &v1alpha1.Message{ObjectMeta: framework.Named(v1alpha1.MembersNamespace, "wismar")}),
			hamburg.Gone(ctx, &corev1.Namespace{ObjectMeta: framework.Named("", tenant)}),
			hamburg.Gone(ctx, &rbacv1.RoleBinding{ObjectMeta: framework.Named(v1alpha1.MembersNamespace, tenant)}),
		)
	})
	wismar.MustHanse(t, "unpeer", "bremen")
	awaitNotHeard(t, lubeck, known)
	framework.Eventually(t, "no broker names members to wismar", func(ctx context.Context) error { return expectNoneHeard(ctx, wismar) })

	setRole(t, lubeck, hamburg, v1alpha1.RoleBroker, false) // lubeck stays a consumer
	framework.Eventually(t, "hamburg has no Message of lubeck", func(ctx context.Context) error {
		return errors.Join(
			hamburg.Gone(ctx, &v1alpha1.Message{ObjectMeta: framework.Named(v1alpha1.TenantNamespace("lubeck"), v1alpha1.MessageIntroduction)}),
			hamburg.Gone(ctx, &v1alpha1.Message{ObjectMeta: framework.Named(v1alpha1.MembersNamespace, "lubeck")}),
		)
	})
	lubeck.AwaitOpen(t, hamburg)
}

// expectForgedMessageRefused writes the introduction of lubeck as wismar, and waits until hamburg refuses to relay it.
func expectForgedMessageRefused(t *testing.T) {
	t.Helper()
	introduction := &v1alpha1.Message{}
	if err := hamburg.Get(t.Context(), types.NamespacedName{Namespace: v1alpha1.MembersNamespace, Name: "lubeck"}, introduction); err != nil {
		t.Fatal(err)
	}
	wismar.PauseServer(t, "manager") // it deletes Messages in its tenant namespace that it has not signed
	forged := &v1alpha1.Message{ObjectMeta: framework.Named(v1alpha1.TenantNamespace("wismar"), "forged"), Spec: introduction.Spec}
	hamburg.MustCreate(t, forged)
	framework.Eventually(t, "hamburg does not relay the forged Message", func(ctx context.Context) error {
		if err := hamburg.Get(ctx, client.ObjectKeyFromObject(forged), forged); err != nil {
			return err
		}
		relayed := meta.FindStatusCondition(forged.Status.Conditions, v1alpha1.ConditionRelayed)
		if relayed == nil || relayed.Status != metav1.ConditionFalse || relayed.Reason != v1alpha1.ReasonForged {
			return fmt.Errorf("its condition is %+v", relayed)
		}
		return nil
	})
	if err := wismar.StartServer(t.Context(), "manager"); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "wismar deletes the forged Message", func(ctx context.Context) error { return hamburg.Gone(ctx, forged) })
}
