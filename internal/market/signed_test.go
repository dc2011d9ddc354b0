// SPDX-License-Identifier: Apache-2.0

package market

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/testkit"
	"github.com/hanse-dev/hanse/internal/trust"
)

// nextGeneration counts the versions of specs, as an API server does.
func nextGeneration(write testkit.Write) error {
	if write.Verb == "update" || write.Verb == "patch" {
		write.Object.SetGeneration(write.Object.GetGeneration() + 1)
	}
	return nil
}

// keyOf is the key of the cluster.
func keyOf(name string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(name))
	return ed25519.NewKeyFromSeed(seed[:])
}

func publicOf(key ed25519.PrivateKey) string {
	return trust.PublicKeyOf(key)
}

// signAnswer has the peer sign what the status says, as the answer to what lies there.
func (w *world) signAnswer(peer string, request *v1alpha1.Request) {
	w.Helper()
	request.Status.Signed = w.signs(peer, trust.Acknowledgement, exchange.AnswerToSign(request, w.sequenceOf(peer, request.Spec.Signed)))
}

func (w *world) idOf(peer string) string {
	return testkit.Get[v1alpha1.Peer](w.Home, "", peer).Spec.ClusterID
}

func (w *world) signs(peer string, kind trust.StatementType, body any) *v1alpha1.SignedStatement {
	w.Helper()
	signed, err := trust.SignStatement(keyOf(peer), trust.Statement{
		Type: kind, From: w.idOf(peer), To: "home", Sequence: 1, Expires: w.Clock.Now().Add(time.Hour),
	}, body)
	if err != nil {
		w.Fatal(err)
	}
	return signed
}

// sequenceOf checks that what lies at the peer is signed for it by us, and returns its sequence.
func (w *world) sequenceOf(peer string, signed *v1alpha1.SignedStatement) int64 {
	w.Helper()
	if signed == nil {
		w.Fatalf("what lies at %s is not signed", peer)
	}
	said, err := trust.ReadStatement(signed, w.idOf(peer), w.Clock.Now())
	if err != nil {
		w.Fatal(err)
	}
	if err := said.Judge(publicOf(keyOf("home")), 0); err != nil {
		w.Fatal(err)
	}
	return said.Sequence
}

// refusedSo is how many statements of the peer were refused for the reason so far.
func refusedSo(t *testing.T, peer, reason string) int {
	t.Helper()
	return testkit.Counted(t, peers.StatementsRefused.WithLabelValues(peer, reason))
}

// forges changes what lies at the peer.
func (w *world) forges(peer string, change func(*v1alpha1.Request)) {
	w.Helper()
	request := w.requestAt(peer)
	change(request)
	status := request.Status
	if err := w.there[peer].Client.Update(w.Context(), request); err != nil {
		w.Fatal(err)
	}
	request.Status, request.Status.ObservedGeneration = status, request.Generation
	if err := w.there[peer].Client.Status().Update(w.Context(), request); err != nil {
		w.Fatal(err)
	}
}

func TestAnAnswerThatIsNotBelieved(t *testing.T) {
	for name, test := range map[string]struct {
		forge  func(*world, *v1alpha1.Request)
		reason string
	}{
		"not signed": {func(_ *world, r *v1alpha1.Request) { r.Status.Signed = nil }, v1alpha1.ReasonUnsigned},
		"at another price": {func(_ *world, r *v1alpha1.Request) {
			r.Status.Price = &v1alpha1.Price{Amount: resource.MustParse("9"), Currency: "EUR"}
		}, v1alpha1.ReasonForged},
		"for longer": {func(_ *world, r *v1alpha1.Request) {
			r.Status.ValidUntil = &metav1.Time{Time: r.Spec.ExpirationTime.Add(time.Hour)}
		}, v1alpha1.ReasonForged},
		"for less": {func(_ *world, r *v1alpha1.Request) { r.Status.Reserved = testkit.Quantities("cpu", "1") }, v1alpha1.ReasonForged},
		"a refusal that is none": {func(_ *world, r *v1alpha1.Request) {
			r.Status.Phase = v1alpha1.RequestRefused
			meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionAcknowledged).Status = metav1.ConditionFalse
		}, v1alpha1.ReasonForged},
		"of another cluster": {func(w *world, r *v1alpha1.Request) {
			r.Status.Signed = w.signs("dear", trust.Acknowledgement, exchange.AnswerToSign(r, w.sequenceOf("cheap", r.Spec.Signed)))
		}, v1alpha1.ReasonForged},
		"to another question": {func(w *world, r *v1alpha1.Request) {
			r.Status.Signed = w.signs("cheap", trust.Acknowledgement, exchange.AnswerToSign(r, w.sequenceOf("cheap", r.Spec.Signed)-1))
		}, v1alpha1.ReasonForged},
		"to what was not asked": {func(_ *world, r *v1alpha1.Request) { r.Spec.MaxPrice = &v1alpha1.Price{Currency: "EUR"} }, v1alpha1.ReasonForged},
		"to what we have not signed": {func(w *world, r *v1alpha1.Request) {
			said := trust.Statement{Type: trust.Request, From: "home", To: "cheap-id", Sequence: 7, Expires: w.Clock.Now().Add(time.Hour)}
			var err error
			if r.Spec.Signed, err = trust.SignStatement(keyOf("cheap"), said, exchange.RequestToSign(r)); err != nil {
				w.Fatal(err)
			}
			r.Status.Signed = w.signs("cheap", trust.Acknowledgement, exchange.AnswerToSign(r, said.Sequence))
		}, v1alpha1.ReasonForged},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, map[string]int64{"cheap": 10, "dear": 20})
			w.looks()
			w.answer("cheap", v1alpha1.RequestAcknowledged, "")
			w.expect(w.looks(), "Placed front@cheap! back@cheap!")
			counted := refusedSo(t, "cheap", test.reason)
			w.forges("cheap", func(r *v1alpha1.Request) { test.forge(w, r) })
			app := w.looks()
			w.expect(app, "Requested front@dear back@dear")
			if len(app.Status.Refusals) != 1 || app.Status.Refusals[0].Peer != "cheap" || !strings.Contains(app.Status.Refusals[0].Message, test.reason) {
				t.Errorf("it says %+v", app.Status.Refusals)
			}
			if more := refusedSo(t, "cheap", test.reason) - counted; more != 1 {
				t.Errorf("it is counted %v times", more)
			}
			if w.requestAt("cheap") != nil {
				t.Error("the Request is still there")
			}
		})
	}
}

// What a peer refuses, and has signed, is told in its words.
func TestASignedRefusalIsBelieved(t *testing.T) {
	w := newWorld(t, map[string]int64{"cheap": 10, "dear": 20})
	w.looks()
	w.answer("cheap", v1alpha1.RequestRefused, "no room at all")
	app := w.looks()
	w.expect(app, "Requested front@dear back@dear")
	if said := app.Status.Refusals[0].Message; !strings.Contains(said, "no room at all") {
		t.Errorf("it says %q", said)
	}
}

// Each version is signed anew, with a higher sequence, also if our clock has gone back.
func TestEachVersionIsSignedAnew(t *testing.T) {
	w := newWorld(t, map[string]int64{"cheap": 10})
	w.looks()
	first := w.sequenceOf("cheap", w.requestAt("cheap").Spec.Signed)
	w.looks()
	if again := w.sequenceOf("cheap", w.requestAt("cheap").Spec.Signed); again != first {
		t.Errorf("the same was signed as %d and %d", first, again)
	}
	w.answer("cheap", v1alpha1.RequestAcknowledged, "")
	app := w.looks()
	w.Clock.SetTime(w.Clock.Now().Add(-time.Second))
	app.Spec.Components[0].Replicas, app.Generation = 3, 1
	if err := w.Home.Client.Update(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	w.looks()
	request := w.requestAt("cheap")
	if next := w.sequenceOf("cheap", request.Spec.Signed); next != first+1 || request.Spec.Components[0].Replicas != 3 {
		t.Errorf("it was signed as %d after %d, for %d replicas", next, first, request.Spec.Components[0].Replicas)
	}
}

// large has more, and longer, resources than a statement has room for.
func large(app *v1alpha1.Application) {
	app.Spec.Components = nil
	for i := range 24 {
		c := v1alpha1.ApplicationComponent{Name: fmt.Sprint("c-", i), PodLabels: map[string]v1alpha1.LabelValue{"app": v1alpha1.LabelValue(fmt.Sprint(i))}, Replicas: 1}
		c.Resources = testkit.Quantities("cpu", "1m")
		for j := range 9 {
			c.Resources[corev1.ResourceName(fmt.Sprintf("%s.example.com/%d-%d", strings.Repeat("x", 60), i, j))] = resource.MustParse("1")
		}
		app.Spec.Components = append(app.Spec.Components, c)
	}
}

func TestWhatIsTooLargeToBeSignedIsSaid(t *testing.T) {
	w := newWorld(t, map[string]int64{"cheap": 10}, large, always)
	app := w.looks()
	w.expect(app, "Unplaced")
	if said := app.Status.Conditions[0].Message; !strings.Contains(said, "16 KiB") {
		t.Errorf("it says %q", said)
	}
}

func TestARequestThatIsTooLargeToBeSignedIsSaid(t *testing.T) {
	w := newWorld(t, map[string]int64{"cheap": 10})
	app := &v1alpha1.Application{}
	large(app)
	seen := &scene{refused: map[string]string{}}
	wanted := &v1alpha1.Request{}
	for i := range app.Spec.Components {
		wanted.Spec.Components = append(wanted.Spec.Components, requested(&app.Spec.Components[i], 1))
	}
	if err := w.market.send(t.Context(), seen, "cheap", wanted); err != nil || !strings.Contains(seen.refused["cheap"], "too large to be signed") {
		t.Errorf("it says %v, %v", seen.refused, err)
	}
	if w.requestAt("cheap") != nil {
		t.Error("it was made all the same")
	}
}

func TestAnOfferThatIsNotBelieved(t *testing.T) {
	for name, test := range map[string]struct {
		forge  func(*v1alpha1.Quote)
		reason string
	}{
		"not signed": {func(q *v1alpha1.Quote) { q.Status.Signed = nil }, v1alpha1.ReasonUnsigned},
		"cheaper":    {func(q *v1alpha1.Quote) { q.Status.Whole.Price.Amount = resource.MustParse("1n") }, v1alpha1.ReasonForged},
		"for a part": {func(q *v1alpha1.Quote) { q.Status.Components[0].Interest = 99 }, v1alpha1.ReasonForged},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, map[string]int64{"a": 10, "b": 20}, always)
			w.looks()
			counted := refusedSo(t, "a", test.reason)
			w.offers("a", cents(5, 50))
			quote := w.quoteAt("a")
			test.forge(quote)
			if err := w.there["a"].Client.Status().Update(t.Context(), quote); err != nil {
				t.Fatal(err)
			}
			w.offers("b", cents(8, 50))
			app := w.looks()
			w.expect(app, "Requested front@b back@b")
			if said := app.Status.Auction.Offers[0]; said.Interest != 0 || !strings.Contains(said.Message, test.reason) {
				t.Errorf("it says %+v", said)
			}
			if more := refusedSo(t, "a", test.reason) - counted; more != 1 {
				t.Errorf("it is counted %v times", more)
			}
		})
	}
}
