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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/trust"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// TestHostileBroker: a broker changes, replays, forges and withholds Messages of members. The members refuse each one, and count it by
// its reason. Their Members stay as they were.
func TestHostileBroker(t *testing.T) {
	begin(t)
	old := publicMessage(t, "wismar")
	awaitNewOffer(t, awaitMember(t, lubeck, wismar, hamburg))
	hamburg.PauseServer(t, "manager")
	newest := publicMessage(t, "wismar")
	known := awaitHeard(t, newest)
	if old.Spec == newest.Spec {
		t.Fatal("the new introduction of wismar is the old one")
	}
	changed := newest.Spec
	changed.Statement = strings.Replace(changed.Statement, `"cpu":"`, `"cpu":"9`, 1)
	if changed.Statement == newest.Spec.Statement {
		t.Fatalf("the introduction has no cpu: %s", changed.Statement)
	}
	swapped := publicMessage(t, "lubeck").Spec
	swapped.Signature = newest.Spec.Signature
	nonsense := newest.Spec
	nonsense.Statement = "{}{"
	for _, lie := range []struct {
		name, reason string
		spec         v1alpha1.MessageSpec
	}{
		{"changed", v1alpha1.ReasonForged, changed},
		{"signature of another member", v1alpha1.ReasonForged, swapped},
		{"replayed", v1alpha1.ReasonStale, old.Spec},
		{"malformed", v1alpha1.ReasonMalformed, nonsense},
	} {
		t.Run(lie.name, func(t *testing.T) {
			expectRefused(t, lie.reason, func() { publish(t, "wismar", lie.spec) })
			expectUnchanged(t, known)
		})
	}
	expectNoPeer(t, lubeck, "wismar")

	// The broker withholds the introduction. Then it publishes one that another key has signed, as if lubeck had never known wismar.
	if err := hamburg.Delete(t.Context(), newest); err != nil {
		t.Fatal(err)
	}
	awaitNotHeard(t, lubeck, known)
	impostor := forgedMessage(t, "wismar", trust.Statement{Type: trust.Introduction, From: "wismar"}, v1alpha1.MemberOffer{})
	expectRefused(t, v1alpha1.ReasonForged, func() { hamburg.MustCreate(t, impostor) })
	awaitNotHeard(t, lubeck, known)
	if err := hamburg.Delete(t.Context(), impostor); err != nil {
		t.Fatal(err)
	}
	// Somebody else signs the statistics of the broker.
	marks := forgedMessage(t, "marks.64", trust.Statement{Type: trust.Marks, From: "hamburg"}, exchange.Marks{
		Members: map[string]v1alpha1.MemberMarks{"wismar": {Since: metav1.Now(), Quotes: 1}},
	})
	expectRefused(t, v1alpha1.ReasonForged, func() { hamburg.MustCreate(t, marks) })

	if err := hamburg.StartServer(t.Context(), "manager"); err != nil {
		t.Fatal(err)
	}
	awaitMember(t, lubeck, wismar, hamburg)
}

// awaitNewOffer gives wismar less to offer, and waits until lubeck has the new offer.
func awaitNewOffer(t *testing.T, known *v1alpha1.Member) {
	t.Helper()
	pod := framework.Pod(wismar.MustNamespace(t), "holder")
	pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("16")
	wismar.MustCreate(t, pod)
	framework.Eventually(t, "lubeck has a smaller offer of wismar", func(ctx context.Context) error {
		member := &v1alpha1.Member{}
		err := lubeck.Get(ctx, client.ObjectKeyFromObject(known), member)
		if err == nil && (member.Status.Sequence == known.Status.Sequence || member.Status.Offer == nil ||
			member.Status.Offer.Availability.Cpu().Cmp(*known.Status.Offer.Availability.Cpu()) >= 0) {
			err = fmt.Errorf("its status is %+v", member.Status)
		}
		return err
	})
}

// awaitHeard waits until the newest statement that lubeck has of wismar is that of the Message.
func awaitHeard(t *testing.T, message *v1alpha1.Message) *v1alpha1.Member {
	t.Helper()
	statement, err := trust.ReadStatement(&message.Spec.SignedStatement, "", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	member := &v1alpha1.Member{}
	framework.Eventually(t, "lubeck has the newest statement of wismar", func(ctx context.Context) error {
		member = &v1alpha1.Member{}
		err := lubeck.Get(ctx, types.NamespacedName{Name: "wismar"}, member)
		if err == nil && member.Status.Sequence != statement.Sequence {
			err = fmt.Errorf("its sequence is %d, not %d", member.Status.Sequence, statement.Sequence)
		}
		return err
	})
	return member
}

// publicMessage returns the Message of a cluster to all members of hamburg.
func publicMessage(t *testing.T, name string) *v1alpha1.Message {
	t.Helper()
	message := &v1alpha1.Message{}
	if err := hamburg.Get(t.Context(), types.NamespacedName{Namespace: v1alpha1.MembersNamespace, Name: name}, message); err != nil {
		t.Fatal(err)
	}
	return message
}

// publish replaces the Message of a cluster to all members of hamburg.
func publish(t *testing.T, name string, spec v1alpha1.MessageSpec) {
	t.Helper()
	framework.Eventually(t, "hamburg replaces the Message of "+name, func(ctx context.Context) error {
		message := publicMessage(t, name)
		message.Spec = spec
		return hamburg.Update(ctx, message)
	})
}

// forgedMessage returns a Message to all members whose statement another key has signed.
func forgedMessage(t *testing.T, name string, statement trust.Statement, body any) *v1alpha1.Message {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	statement.Sequence, statement.Expires = now.UnixNano(), now.Add(10*time.Minute)
	signed, err := trust.SignStatement(key, statement, body)
	if err != nil {
		t.Fatal(err)
	}
	return &v1alpha1.Message{
		ObjectMeta: framework.Named(v1alpha1.MembersNamespace, name), Spec: v1alpha1.MessageSpec{SignedStatement: *signed},
	}
}

// expectRefused waits until lubeck has refused a statement from hamburg for that reason after the broker has lied.
func expectRefused(t *testing.T, reason string, lie func()) {
	t.Helper()
	series := fmt.Sprintf("hanse_statements_refused_total{peer=%q,reason=%q}", "hamburg", reason)
	before := lubeck.Metric(t, series)
	lie()
	framework.Eventually(t, "lubeck refuses the statement: "+reason, func(context.Context) error {
		if lubeck.Metric(t, series) <= before {
			return errors.New("it has refused none since")
		}
		return nil
	})
}

// expectUnchanged checks that lubeck has the key and the offer of the member as before.
func expectUnchanged(t *testing.T, known *v1alpha1.Member) {
	t.Helper()
	member := &v1alpha1.Member{}
	if err := lubeck.Get(t.Context(), client.ObjectKeyFromObject(known), member); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(known.Status.Offer, member.Status.Offer); diff != "" || member.UID != known.UID || member.Spec != known.Spec {
		t.Errorf("lubeck has changed its Member %s: %s", known.Name, diff)
	}
}
