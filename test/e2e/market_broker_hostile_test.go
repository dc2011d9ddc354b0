package e2e

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
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
	heard := lubeck.hears(t, wismar, hamburg)
	// wismar has less to spare from now on, which makes a newer statement; the broker's manager then stands still.
	ns := wismar.namespace(t)
	holder := shellPod(ns, "holder", forever)
	holder.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("700m")
	wismar.create(t, holder)
	eventually(t, "lubeck hears that wismar has less to spare", func(ctx context.Context) error {
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
	hamburg.pause(t, "manager")
	heard = lubeck.hears(t, wismar, hamburg)

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
		t.Run(lie.what, func(t *testing.T) { lubeck.doesNotBelieve(t, lie, heard) })
	}
	// What it invents is known, and no more than that: no pod goes there, and nobody is let in.
	if _, err := lubeck.peer(ctx, "wismar"); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("wismar has become a peer: %v", err)
	}
	// It keeps to itself what the member says, and then has it say something by another key, as if it were heard for the first time.
	if err := hamburg.Delete(ctx, newest); err != nil {
		t.Fatal(err)
	}
	lubeck.hearsNoMore(t, heard)
	impostor := impostorOf(t, wismar)
	lubeck.refuses(t, v1alpha1.ReasonForged, func() { hamburg.create(t, impostor) })
	lubeck.hearsNoMore(t, heard)
	if err := hamburg.Delete(ctx, impostor); err != nil {
		t.Fatal(err)
	}
	// Marks that somebody else has signed in the broker's name.
	marks := statementOf(t, trust.Statement{Type: trust.Marks, From: hamburg.Name}, exchange.Marks{
		Members: map[string]v1alpha1.MemberMarks{wismar.Name: {Since: metav1.Now(), Quotes: 1}},
	})
	marks.Name = "marks.64"
	lubeck.refuses(t, v1alpha1.ReasonForged, func() { hamburg.create(t, marks) })
	hamburg.scale(ctx, t, "manager", "1")
	lubeck.hears(t, wismar, hamburg)
}

// hearsNoMore waits until no broker names the member to the cluster, which knows it by the key that it knew.
func (c *cluster) hearsNoMore(t *testing.T, heard *v1alpha1.Member) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s hears no more of %s", c.Name, heard.Name), func(ctx context.Context) error {
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
func impostorOf(t *testing.T, other *cluster) *v1alpha1.Message {
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
	return &v1alpha1.Message{ObjectMeta: inNamespace(v1alpha1.MembersNamespace, said.From), Spec: v1alpha1.MessageSpec{SignedStatement: *signed}}
}

// A lie is what a broker has in the place of what wismar has said, and why that is refused.
type lie struct {
	what, reason string
	spec         v1alpha1.MessageSpec
}

// doesNotBelieve has hamburg lie, and expects that the cluster counts that, and knows what it knew.
func (c *cluster) doesNotBelieve(t *testing.T, lie lie, heard *v1alpha1.Member) {
	t.Helper()
	ctx := t.Context()
	c.refuses(t, lie.reason, func() {
		eventually(t, "the broker "+lie.what, func(ctx context.Context) error {
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
func (c *cluster) refuses(t *testing.T, reason string, say func()) {
	t.Helper()
	before := c.refusedStatements(t.Context(), t, "hamburg", reason)
	say()
	eventually(t, c.Name+" refuses that as "+reason, func(ctx context.Context) error {
		if now := c.refusedStatements(ctx, t, "hamburg", reason); now <= before {
			return fmt.Errorf("%d statements were refused, as before", now)
		}
		return nil
	})
}

// refusedStatements is how many statements the manager has refused for the reason, of those from the peer or through it.
func (c *cluster) refusedStatements(ctx context.Context, t *testing.T, peer, reason string) (count int) {
	t.Helper()
	out, err := c.metrics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	metric := regexp.MustCompile(fmt.Sprintf(`(?m)^hanse_statements_refused_total\{peer=%q,reason=%q\} (\d+)`, peer, reason))
	if found := metric.FindStringSubmatch(out); found != nil {
		if err := json.Unmarshal([]byte(found[1]), &count); err != nil {
			t.Fatal(err)
		}
	}
	return count
}
