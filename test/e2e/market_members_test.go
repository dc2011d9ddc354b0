package e2e

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
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
