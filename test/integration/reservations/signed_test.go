// SPDX-License-Identifier: Apache-2.0

package reservations

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
	"github.com/hanse-dev/hanse/test/harness"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// TestForgedReplayedReordered: a guest makes Requests that are unsigned, signed by or for another cluster, changed after the signature,
// expired, older than the last one, or replayed. None reserves anything. Each is refused for its reason, and counted. Honest Requests
// are acknowledged meanwhile. At last an administrator of the provider changes the answer to an Application, and the consumer rejects it.
func TestForgedReplayedReordered(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const berth = corev1.ResourceName("example.com/signed")
	hamburg.SetExtendedResource(t, berth, 5)
	g := welcome(t, "visby-signing")
	t.Cleanup(func() { disperse(t, hamburg, []*guest{g}) })
	g.awaitOffered(t, berth, 5)
	g.MustCreate(t, g.request("honest", berth, 1))
	g.awaitPhase(t, "honest", v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)

	for _, lie := range g.lies(t, berth) {
		t.Run(lie.what, func(t *testing.T) {
			g.MustCreate(t, lie.request)
			g.refused(t, lie.request.Name, v1alpha1.RequestRefused, lie.reason)
			g.renews(t, "honest")
		})
	}
	t.Run("reordered", func(t *testing.T) { g.reorders(t, berth) })
	t.Run("replayed", func(t *testing.T) { g.replays(t, berth) })

	reserved := int64(0)
	for _, request := range g.requests(ctx, t) {
		amount := request.Locked()[berth]
		reserved += amount.Value()
	}
	if reserved != 3 {
		t.Errorf("%d are reserved, and 3 were asked for honestly", reserved)
	}
	g.MustCreate(t, g.request("rest", berth, 2)) // nothing else is locked
	g.awaitPhase(t, "rest", v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)
	for reason, least := range map[string]int{
		v1alpha1.ReasonForged: 2, v1alpha1.ReasonUnsigned: 1, v1alpha1.ReasonExpired: 1, v1alpha1.ReasonMisaddressed: 1,
		v1alpha1.ReasonMalformed: 1, v1alpha1.ReasonStale: 2,
	} {
		if count := refusedStatements(t, hamburg, g.ID, reason); count < least {
			t.Errorf("%d are counted as %s, want %d", count, reason, least)
		}
	}
	t.Run("answer forged", lubeckBelievesNoForgery)
}

// A lyingRequest is a Request that the provider must refuse.
type lyingRequest struct {
	what, reason string
	request      *v1alpha1.Request
}

func (g *guest) lies(t *testing.T, of corev1.ResourceName) []lyingRequest {
	t.Helper()
	_, another, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	lie := func(name string, signer harness.Signer, changes ...func(*trust.Statement)) *v1alpha1.Request {
		request := g.request(name, of, 1)
		if err := signer.Sign(request, time.Now(), changes...); err != nil {
			t.Fatal(err)
		}
		return request
	}
	foreign := g.Signer
	foreign.Key = another
	changed, unsigned, nonsense := g.request("changed", of, 1), g.request("unsigned", of, 1), g.request("nonsense", of, 1)
	changed.Spec.Components[0].Replicas = 2
	unsigned.Spec.Signed = nil
	nonsense.Spec.Signed.Statement = "{}{"
	return []lyingRequest{
		{"by another key", v1alpha1.ReasonForged, lie("foreign", foreign)},
		{"changed", v1alpha1.ReasonForged, changed},
		{"unsigned", v1alpha1.ReasonUnsigned, unsigned},
		{"nonsense", v1alpha1.ReasonMalformed, nonsense},
		{"expired", v1alpha1.ReasonExpired, lie("expired", g.Signer, func(s *trust.Statement) { s.Expires = time.Now().Add(-time.Second) })},
		{"for another", v1alpha1.ReasonMisaddressed, lie("misaddressed", g.Signer, func(s *trust.Statement) { s.To = "bremen" })},
	}
}

// refused waits until the Request is refused, and checks that the message names its signature.
func (g *guest) refused(t *testing.T, name string, phase v1alpha1.RequestPhase, reason string) {
	t.Helper()
	got := g.awaitPhase(t, name, phase, reason)
	if said := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionAcknowledged); !strings.Contains(said.Message, "spec.signed") {
		t.Errorf("it says %q", said.Message)
	}
}

// renews extends the Request, and waits until that is acknowledged.
func (g *guest) renews(t *testing.T, name string) {
	t.Helper()
	got := &v1alpha1.Request{}
	if err := g.Get(t.Context(), types.NamespacedName{Namespace: g.Invitation.Namespace, Name: name}, got); err != nil {
		t.Fatal(err)
	}
	before := client.MergeFrom(got.DeepCopy())
	got.Spec.ExpirationTime = metav1.NewTime(got.Spec.ExpirationTime.Add(time.Second))
	began := time.Now()
	if err := g.Patch(t.Context(), g.sign(got), before); err != nil {
		t.Fatal(err)
	}
	g.awaitPhase(t, name, v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)
	t.Logf("renewed after %s, as a reader who polls sees it", time.Since(began).Round(time.Millisecond))
}

// reorders replaces a newer version by an older one. The acknowledged reservation stays.
func (g *guest) reorders(t *testing.T, of corev1.ResourceName) {
	t.Helper()
	older := g.request("order", of, 1)
	newer := g.request("order", of, 2)
	put := func(next *v1alpha1.Request) {
		now := &v1alpha1.Request{}
		if err := g.Get(t.Context(), client.ObjectKeyFromObject(next), now); err != nil {
			t.Fatal(err)
		}
		before := client.MergeFrom(now.DeepCopy())
		now.Spec = next.Spec
		if err := g.Patch(t.Context(), now, before); err != nil {
			t.Fatal(err)
		}
	}
	g.MustCreate(t, older.DeepCopy())
	g.awaitPhase(t, "order", v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)
	put(newer)
	g.awaitPhase(t, "order", v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)
	put(older)
	g.refused(t, "order", v1alpha1.RequestAcknowledged, v1alpha1.ReasonStale)
	g.renews(t, "honest")
}

// replays deletes a Request, and creates it again with the old signature.
func (g *guest) replays(t *testing.T, of corev1.ResourceName) {
	t.Helper()
	request := g.request("released", of, 1)
	g.MustCreate(t, request.DeepCopy())
	g.awaitPhase(t, "released", v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)
	if err := g.Delete(t.Context(), request.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	g.MustCreate(t, request)
	g.refused(t, "released", v1alpha1.RequestRefused, v1alpha1.ReasonStale)
	g.renews(t, "honest")
}

// lubeckBelievesNoForgery changes the answer of hamburg to an Application of lubeck, as an administrator of hamburg.
func lubeckBelievesNoForgery(t *testing.T) {
	ctx := t.Context()
	ns := lubeck.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote})
	app := framework.Application(ns, &v1alpha1.ApplicationPlacement{Clusters: []string{"hamburg"}}, "10m", "web")
	lubeck.MustCreate(t, app)
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
	request, err := hamburg.RequestOf(ctx, app, lubeck)
	if err != nil {
		t.Fatal(err)
	}
	counted := refusedStatements(t, lubeck, "hamburg", v1alpha1.ReasonForged)
	before := client.MergeFrom(request.DeepCopy())
	request.Status.Price = &v1alpha1.Price{Amount: resource.MustParse("100"), Currency: "EUR"}
	if err := hamburg.Status().Patch(ctx, request, before); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "lubeck does not believe the answer", func(ctx context.Context) error {
		if err := lubeck.Get(ctx, client.ObjectKeyFromObject(app), app); err != nil {
			return err
		}
		if !slices.ContainsFunc(app.Status.Refusals, func(r v1alpha1.ApplicationRefusal) bool {
			return r.Peer == "hamburg" && strings.Contains(r.Message, "not believed") && strings.Contains(r.Message, v1alpha1.ReasonForged)
		}) || len(app.Status.Components) > 0 {
			return fmt.Errorf("it says %+v", app.Status)
		}
		return nil
	})
	t.Logf("it says: %s", app.Status.Refusals[0].Message)
	framework.Eventually(t, "the forgery is counted", func(context.Context) error { // which the manager does after it has written the status
		if now := refusedStatements(t, lubeck, "hamburg", v1alpha1.ReasonForged); now <= counted {
			return fmt.Errorf("%d are counted, and %d were before", now, counted)
		}
		return nil
	})
	lubeck.DeleteAndWait(t, app)
}
