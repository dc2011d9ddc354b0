package market

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
	"github.com/hanse-dev/hanse/test/e2e/framework"
	"github.com/hanse-dev/hanse/test/harness"
)

// A Guest asks in ways in which nobody may ask: what is not signed, what is signed by another or for another, what was changed after it
// was signed, what holds no more, what is older than what was said last, and what was given back. None of it reserves anything, each is
// refused for its reason and counted, and what the guest asks honestly is acknowledged all the while. Then somebody at the provider
// changes the answer to an Application, and the consumer does not believe it.
func TestForgedReplayedReordered(t *testing.T) {
	ctx := framework.Begin(t)
	const berth = corev1.ResourceName("example.com/signed")
	hamburg.AddExtendedResource(t, string(berth), 5)
	g := hamburg.PeerWithGuest(t, "visby-signing")
	t.Cleanup(func() { hamburg.ForgetGuests(t, []*framework.Guest{g}) })
	g.AwaitOffered(t, berth, 5)
	g.MustCreate(t, g.NewRequest("honest", berth, 1))
	g.AwaitRequestPhase(t, "honest", v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)

	for _, lie := range lies(t, g, berth) {
		t.Run(lie.what, func(t *testing.T) {
			g.MustCreate(t, lie.request)
			refused(t, g, lie.request.Name, v1alpha1.RequestRefused, lie.reason)
			renews(t, g, "honest")
		})
	}
	t.Run("reordered", func(t *testing.T) { reorders(t, g, berth) })
	t.Run("replayed", func(t *testing.T) { replays(t, g, berth) })

	reserved := int64(0)
	for _, request := range requests(ctx, t, g) {
		amount := request.Locked()[berth]
		reserved += amount.Value()
	}
	if reserved != 3 {
		t.Errorf("%d are reserved, and 3 were asked for honestly", reserved)
	}
	g.MustCreate(t, g.NewRequest("rest", berth, 2)) // nothing else is locked
	g.AwaitRequestPhase(t, "rest", v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)
	for reason, least := range map[string]int{
		v1alpha1.ReasonForged: 2, v1alpha1.ReasonUnsigned: 1, v1alpha1.ReasonExpired: 1, v1alpha1.ReasonMisaddressed: 1,
		v1alpha1.ReasonMalformed: 1, v1alpha1.ReasonStale: 2,
	} {
		if count := hamburg.RefusedStatements(ctx, t, g.ID, reason); count < least {
			t.Errorf("%d are counted as %s, want %d", count, reason, least)
		}
	}
	t.Run("answer forged", lubeckBelievesNoForgery)
}

// A lyingRequest is one that is to be refused.
type lyingRequest struct {
	what, reason string
	request      *v1alpha1.Request
}

func lies(t *testing.T, g *framework.Guest, of corev1.ResourceName) []lyingRequest {
	t.Helper()
	_, another, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	lie := func(name string, signer harness.Signer, changes ...func(*trust.Statement)) *v1alpha1.Request {
		request := g.NewRequest(name, of, 1)
		if err := signer.Sign(request, time.Now(), changes...); err != nil {
			t.Fatal(err)
		}
		return request
	}
	foreign := g.Signer
	foreign.Key = another
	changed, unsigned, nonsense := g.NewRequest("changed", of, 1), g.NewRequest("unsigned", of, 1), g.NewRequest("nonsense", of, 1)
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

// refused waits until the Request is refused, and checks that it says what is wrong with its signature.
func refused(t *testing.T, g *framework.Guest, name string, phase v1alpha1.RequestPhase, reason string) {
	t.Helper()
	got := g.AwaitRequestPhase(t, name, phase, reason)
	if said := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionAcknowledged); !strings.Contains(said.Message, "spec.signed") {
		t.Errorf("it says %q", said.Message)
	}
}

// renews moves the end of the Request on, and waits until that is acknowledged.
func renews(t *testing.T, g *framework.Guest, name string) {
	t.Helper()
	got := &v1alpha1.Request{}
	if err := g.Get(t.Context(), types.NamespacedName{Namespace: g.Invitation.Namespace, Name: name}, got); err != nil {
		t.Fatal(err)
	}
	before := client.MergeFrom(got.DeepCopy())
	got.Spec.ExpirationTime = metav1.NewTime(got.Spec.ExpirationTime.Add(time.Second))
	began := time.Now()
	if err := g.Patch(t.Context(), g.Sign(got), before); err != nil {
		t.Fatal(err)
	}
	g.AwaitRequestPhase(t, name, v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)
	t.Logf("renewed after %s, as a reader who polls sees it", time.Since(began).Round(time.Millisecond))
}

// reorders puts an older version in the place of a newer one. What was acknowledged stays.
func reorders(t *testing.T, g *framework.Guest, of corev1.ResourceName) {
	t.Helper()
	older := g.NewRequest("order", of, 1)
	newer := g.NewRequest("order", of, 2)
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
	g.AwaitRequestPhase(t, "order", v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)
	put(newer)
	g.AwaitRequestPhase(t, "order", v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)
	put(older)
	refused(t, g, "order", v1alpha1.RequestAcknowledged, v1alpha1.ReasonStale)
	renews(t, g, "honest")
}

// replays gives a Request back, and makes it again by the old text.
func replays(t *testing.T, g *framework.Guest, of corev1.ResourceName) {
	t.Helper()
	request := g.NewRequest("released", of, 1)
	g.MustCreate(t, request.DeepCopy())
	g.AwaitRequestPhase(t, "released", v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)
	if err := g.Delete(t.Context(), request.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	g.MustCreate(t, request)
	refused(t, g, "released", v1alpha1.RequestRefused, v1alpha1.ReasonStale)
	renews(t, g, "honest")
}

// lubeckBelievesNoForgery has an administrator of hamburg change what hamburg has answered to an Application of lubeck.
func lubeckBelievesNoForgery(t *testing.T) {
	ctx := t.Context()
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	app := framework.NewApplication(ns, &v1alpha1.ApplicationPlacement{Clusters: []string{"hamburg"}}, "10m", "web")
	lubeck.MustCreate(t, app)
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
	request, err := hamburg.RequestOf(ctx, app, lubeck)
	if err != nil {
		t.Fatal(err)
	}
	counted := lubeck.RefusedStatements(ctx, t, "hamburg", v1alpha1.ReasonForged)
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
	if now := lubeck.RefusedStatements(ctx, t, "hamburg", v1alpha1.ReasonForged); now <= counted {
		t.Errorf("%d are counted, and %d were before", now, counted)
	}
	lubeck.DeleteAndWait(t, app)
}
