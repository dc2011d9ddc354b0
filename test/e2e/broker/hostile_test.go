// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/trust"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// A broker that changes what members say, says something in their name, says again what they have said before, or keeps it to itself, is
// believed in nothing: what was heard stands, and what was refused is counted by its reason. So does a member that writes in another's name.
func TestHostileBroker(t *testing.T) {
	ctx := members(t)
	key := client.ObjectKey{Namespace: v1alpha1.MembersNamespace, Name: "wismar"}
	old := &v1alpha1.Message{}
	if err := hamburg.Get(ctx, key, old); err != nil {
		t.Fatal(err)
	}
	heard := hears(t, lubeck, wismar, hamburg)
	// wismar has less to spare from now on, which makes a newer statement; the broker's manager then stands still.
	ns := wismar.CreateNamespace(t)
	holder := framework.NewShellPod(ns, "holder", framework.RunForever)
	holder.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("700m")
	wismar.MustCreate(t, holder)
	framework.Eventually(t, "lubeck hears that wismar has less to spare", func(ctx context.Context) error {
		now := &v1alpha1.Member{}
		err := lubeck.Get(ctx, client.ObjectKeyFromObject(heard), now)
		if err == nil && now.Status.Sequence == heard.Status.Sequence {
			err = errors.New("nothing new was heard")
		}
		if err == nil {
			heard = now
		}
		return err
	})
	hamburg.PauseHanse(t, "manager")
	heard = hears(t, lubeck, wismar, hamburg)

	newest := &v1alpha1.Message{}
	if err := hamburg.Get(ctx, key, newest); err != nil {
		t.Fatal(err)
	}
	changed := newest.Spec
	changed.Statement = strings.Replace(changed.Statement, `"cpu":"`, `"cpu":"9`, 1)
	foreign := &v1alpha1.Message{}
	if err := hamburg.Get(ctx, client.ObjectKey{Namespace: v1alpha1.MembersNamespace, Name: "lubeck"}, foreign); err != nil {
		t.Fatal(err)
	}
	swapped := foreign.Spec
	swapped.Signature = newest.Spec.Signature
	for _, lie := range []lie{
		{"changes it", v1alpha1.ReasonForged, changed},
		{"signs it with another's signature", v1alpha1.ReasonForged, swapped},
		{"says again what was said before", v1alpha1.ReasonStale, old.Spec},
		{"says nonsense", v1alpha1.ReasonMalformed, v1alpha1.MessageSpec{SignedStatement: v1alpha1.SignedStatement{Statement: "{}{", Signature: newest.Spec.Signature}}},
	} {
		t.Run(lie.what, func(t *testing.T) { doesNotBelieve(t, lubeck, lie, heard) })
	}
	// What it invents is known, and no more than that: no pod goes there, and nobody is let in.
	if _, err := lubeck.GetPeer(ctx, "wismar"); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("wismar has become a peer: %v", err)
	}
	// It keeps to itself what the member says, and then has it say something by another key, as if it were heard for the first time.
	if err := hamburg.Delete(ctx, newest); err != nil {
		t.Fatal(err)
	}
	hearsNoMore(t, lubeck, heard)
	impostor := impostorOf(t, wismar)
	refuses(t, lubeck, v1alpha1.ReasonForged, func() { hamburg.MustCreate(t, impostor) })
	hearsNoMore(t, lubeck, heard)
	if err := hamburg.Delete(ctx, impostor); err != nil {
		t.Fatal(err)
	}
	// Marks that somebody else has signed in the broker's name.
	marks := statementOf(t, trust.Statement{Type: trust.Marks, From: hamburg.Name}, exchange.Marks{
		Members: map[string]v1alpha1.MemberMarks{wismar.Name: {Since: metav1.Now(), Quotes: 1}},
	})
	marks.Name = "marks.64"
	refuses(t, lubeck, v1alpha1.ReasonForged, func() { hamburg.MustCreate(t, marks) })
	hamburg.ScaleHanse(ctx, t, "manager", "1")
	hears(t, lubeck, wismar, hamburg)
}

// hearsNoMore waits until no broker names the member to the cluster, which knows it by the key that it knew.
func hearsNoMore(t *testing.T, c *framework.Cluster, heard *v1alpha1.Member) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("%s hears no more of %s", c.Name, heard.Name), func(ctx context.Context) error {
		now := &v1alpha1.Member{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(heard), now); err != nil {
			return err
		}
		if now.UID != heard.UID || now.Spec != heard.Spec {
			return fmt.Errorf("it is another: %+v", now)
		}
		return notHeard(now)
	})
}

// impostorOf is an introduction of a cluster that has the id of another one.
func impostorOf(t *testing.T, other *framework.Cluster) *v1alpha1.Message {
	t.Helper()
	return statementOf(t, trust.Statement{Type: trust.Introduction, From: other.Name}, v1alpha1.MemberOffer{})
}

// statementOf is a statement to all by a key that nobody has.
func statementOf(t *testing.T, said trust.Statement, body any) *v1alpha1.Message {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	said.Sequence, said.Expires = now.UnixNano(), now.Add(10*time.Minute)
	signed, err := trust.SignStatement(key, said, body)
	if err != nil {
		t.Fatal(err)
	}
	return &v1alpha1.Message{ObjectMeta: framework.NamespacedMeta(v1alpha1.MembersNamespace, said.From), Spec: v1alpha1.MessageSpec{SignedStatement: *signed}}
}

// A lie is what a broker has in the place of what wismar has said, and why that is refused.
type lie struct {
	what, reason string
	spec         v1alpha1.MessageSpec
}

// doesNotBelieve has hamburg lie, and expects that the cluster counts that, and knows what it knew.
func doesNotBelieve(t *testing.T, c *framework.Cluster, lie lie, heard *v1alpha1.Member) {
	t.Helper()
	ctx := t.Context()
	refuses(t, c, lie.reason, func() {
		framework.Eventually(t, "the broker "+lie.what, func(ctx context.Context) error {
			now := &v1alpha1.Message{}
			if err := hamburg.Get(ctx, client.ObjectKey{Namespace: v1alpha1.MembersNamespace, Name: heard.Name}, now); err != nil {
				return err
			}
			now.Spec = lie.spec
			return hamburg.Update(ctx, now)
		})
	})
	now := &v1alpha1.Member{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(heard), now); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(heard.Status.Offer, now.Status.Offer); diff != "" || now.Spec != heard.Spec {
		t.Errorf("a broker that %s has changed what is known: %s", lie.what, diff)
	}
}

// refuses expects that the cluster refuses for the reason what is said to it.
func refuses(t *testing.T, c *framework.Cluster, reason string, say func()) {
	t.Helper()
	before := c.RefusedStatements(t.Context(), t, "hamburg", reason)
	say()
	framework.Eventually(t, c.Name+" refuses that as "+reason, func(ctx context.Context) error {
		if now := c.RefusedStatements(ctx, t, "hamburg", reason); now <= before {
			return fmt.Errorf("%d statements were refused, as before", now)
		}
		return nil
	})
}
