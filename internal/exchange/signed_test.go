// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit/cputime"
)

const (
	relayedQuote = `{"name":"app-1","quote":{"application":{"uid":"1"},"components":[{"name":"web","replicas":2,"resources":{"cpu":"1"}}],` +
		`"deadline":"2026-01-01T00:00:00Z","expirationTime":"2026-01-01T00:02:00Z"}}`
	relayedRequest = `{"name":"app-1","request":{"application":{"uid":"1"},"components":[{"name":"web","replicas":2,"resources":{"cpu":"1"}}],` +
		`"maxPrice":{"amount":"0.1","currency":"EUR"},"expirationTime":"2026-01-01T00:10:00Z"}}`
	relayedAnswer = `{"name":"app-1","request":7,"acknowledged":true,"reason":"Reserved","phase":"Acknowledged","reserved":{"cpu":"2"},` +
		`"price":{"amount":"0.1","currency":"EUR"},"validUntil":"2026-01-01T00:10:00Z"}`
	relayedOffer = `{"quote":7,"whole":{"interest":50,"price":{"amount":"0.1","currency":"EUR"}},"components":[{"name":"web","interest":50}]}`
)

func TestRelayedQuotes(t *testing.T) {
	parts := strings.Repeat(`{"name":"web","replicas":1},`, maxOfQuote) + `{"name":"web","replicas":1}`
	for name, test := range map[string]struct{ body, want string }{
		"a Quote":              {relayedQuote, ""},
		"a huge exponent":      {strings.Replace(relayedQuote, `"cpu":"1"`, `"cpu":"1e999999999"`, 1), "resources[cpu]"},
		"a negative amount":    {strings.Replace(relayedQuote, `"cpu":"1"`, `"cpu":"-1"`, 1), "components[0].resources[cpu]"},
		"no resource":          {strings.Replace(relayedQuote, `"cpu":"1"`, `"a b":"1"`, 1), "components[0].resources"},
		"too many components":  {`{"name":"app-1","quote":{"components":[` + parts + `]}}`, "body.quote.components"},
		"a name that is none":  {strings.Replace(relayedQuote, "app-1", "../x", 1), "body.name"},
		"no name":              {strings.Replace(relayedQuote, "app-1", "", 1), "body.name"},
		"a name that is long":  {strings.Replace(relayedQuote, "app-1", strings.Repeat("a", 64), 1), "body.name"},
		"a list":               {`[]`, "body"},
		"nothing":              {``, "body"},
		"a deadline of no day": {strings.Replace(relayedQuote, "2026-01-01T00:00:00Z", "never", 1), "body"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadSignedQuote([]byte(test.body))
			expectSays(t, err, test.want)
		})
	}
}

func TestRelayedOffers(t *testing.T) {
	for name, test := range map[string]struct{ body, want string }{
		"an offer":            {relayedOffer, ""},
		"a huge exponent":     {strings.Replace(relayedOffer, "0.1", "1e999999999", 1), "whole.price.amount"},
		"none for the whole":  {`{"quote":7}`, "body"},
		"too many components": {`{"whole":{},"components":[` + strings.Repeat(`{"name":"a"},`, maxOfQuote) + `{"name":"a"}]}`, "components"},
		"a number":            {`7`, "body"},
		"cut off":             {relayedOffer[:40], "body"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadSignedOffer([]byte(test.body))
			expectSays(t, err, test.want)
		})
	}
}

func TestRelayedRequests(t *testing.T) {
	parts := strings.Repeat(`{"name":"web","replicas":1},`, maxOfRequest) + `{"name":"web","replicas":1}`
	for name, test := range map[string]struct{ body, want string }{
		"a Request":             {relayedRequest, ""},
		"a huge exponent":       {strings.Replace(relayedRequest, `"0.1"`, `"1e999999999"`, 1), "maxPrice.amount"},
		"a negative amount":     {strings.Replace(relayedRequest, `"cpu":"1"`, `"cpu":"-1"`, 1), "body.request.components[0].resources[cpu]"},
		"too many components":   {`{"name":"app-1","request":{"components":[` + parts + `]}}`, "body.request.components"},
		"a name that is none":   {strings.Replace(relayedRequest, "app-1", "lubeck.x", 1), "body.name"},
		"an end that is no day": {strings.Replace(relayedRequest, "2026-01-01T00:10:00Z", "never", 1), "body"},
		"a list":                {`[]`, "body"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadSignedRequest([]byte(test.body))
			expectSays(t, err, test.want)
		})
	}
}

func TestRelayedAnswers(t *testing.T) {
	for name, test := range map[string]struct{ body, want string }{
		"an answer":       {relayedAnswer, ""},
		"a huge exponent": {strings.Replace(relayedAnswer, `"cpu":"2"`, `"cpu":"1e999999999"`, 1), "reserved"},
		"a number":        {`7`, "body"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadSignedAnswer([]byte(test.body))
			expectSays(t, err, test.want)
		})
	}
	if _, err := ReadSignedRelease([]byte(`{"name":"app-1"}`)); err != nil {
		t.Error(err)
	}
	for _, body := range []string{`{"name":"a/b"}`, `{}`, `7`} {
		if _, err := ReadSignedRelease([]byte(body)); err == nil {
			t.Errorf("%s releases something", body)
		}
	}
}

// Two Requests have the same room only if they are the same: those of a peer, and those of members through it.
func TestReservationsOf(t *testing.T) {
	seen := map[[2]string]string{}
	for _, asked := range [][3]string{
		{"hub", "app", ""}, {"hub", "m.app", ""}, {"hub", "m.app", "m"}, {"m", "app", ""}, {"m", "m.app", ""}, {"other", "m.app", "m"}, {"hub", "n.app", "n"},
	} {
		of, called := ReservationOf(asked[0], asked[1], asked[2])
		if before := seen[[2]string{of, called}]; before != "" {
			t.Errorf("%v has the room of %s", asked, before)
		}
		seen[[2]string{of, called}] = strings.Join(asked[:], " ")
	}
}

func expectSays(t *testing.T, err error, want string) {
	t.Helper()
	if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// Whatever a member says, it is read or refused soon, and what is read is bounded, and counts or not by itself.
func FuzzReadSigned(f *testing.F) {
	f.Add([]byte(relayedQuote), []byte(relayedOffer), []byte(relayedRequest), []byte(relayedAnswer))
	f.Add([]byte(`{"name":"a","Quote":{"components":[{"resources":{"cpu":"1e999999999"}}]}}`), []byte(`{"whole":{"price":{"amount":"-1"}}}`),
		[]byte(`{"name":"a","request":{"maxPrice":{"amount":"1e999999999"}}}`), []byte(`{"reserved":{"cpu":"-1"}}`))
	f.Fuzz(func(t *testing.T, quote, offer, request, answer []byte) {
		took := cputime.Of(func() {
			fuzzRoom(t, request, answer)
			asked, err := ReadSignedQuote(quote)
			if err != nil {
				asked = &SignedQuote{}
			}
			if len(asked.Quote.Components) > maxOfQuote {
				t.Errorf("took %+v", asked)
			}
			if _, err := json.Marshal(asked); err != nil {
				t.Error(err)
			}
			if offered, err := ReadSignedOffer(offer); err == nil {
				got := CheckOffer(&asked.Quote, &v1alpha1.Quote{Spec: asked.Quote, Status: v1alpha1.QuoteStatus{Whole: offered.Whole, Components: offered.Components}})
				if got.Interest < 0 || got.Interest > v1alpha1.MaxInterest || len(got.Components) > len(asked.Quote.Components) {
					t.Errorf("took %+v", got)
				}
			}
		})
		if took > 2*time.Second {
			t.Errorf("it took %s of CPU time", took)
		}
	})
}

func fuzzRoom(t *testing.T, request, answer []byte) {
	t.Helper()
	wanted, err := ReadSignedRequest(request)
	if err != nil {
		wanted = &SignedRequest{}
	}
	if len(wanted.Request.Components) > maxOfRequest {
		t.Errorf("took %+v", wanted)
	}
	if answered, err := ReadSignedAnswer(answer); err == nil {
		if _, err := json.Marshal(answered.AsRequest(&wanted.Request)); err != nil {
			t.Error(err)
		}
	}
}

func requestToSign() *v1alpha1.Request {
	request := &v1alpha1.Request{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: v1alpha1.RequestSpec{
		Application: v1alpha1.RequestedApplication{UID: "app", Name: "shop/shop"},
		Components: []v1alpha1.RequestedComponent{
			{Name: "web", Replicas: 2, Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}}, {Name: "db", Replicas: 1},
		},
		MaxPrice:       &v1alpha1.Price{Amount: resource.MustParse("0.25"), Currency: "EUR"},
		ExpirationTime: metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)),
		Signed:         &v1alpha1.SignedStatement{Statement: "{}"},
	}}
	request.Status = v1alpha1.RequestStatus{
		Phase: v1alpha1.RequestAcknowledged, Reserved: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")},
		Price: &v1alpha1.Price{Amount: resource.MustParse("30m"), Currency: "EUR"}, ValidUntil: request.Spec.ExpirationTime.DeepCopy(),
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionAcknowledged, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReserved}},
	}
	return request
}

// asStored is what an API server gives back of the object: times in another zone, and amounts written in another way.
func asStored(t testing.TB, request *v1alpha1.Request) *v1alpha1.Request {
	t.Helper()
	text, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	stored := &v1alpha1.Request{}
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), `"1500m"`, `"1.5"`)), stored); err != nil {
		t.Fatal(err)
	}
	stored.Spec.ExpirationTime.Time = stored.Spec.ExpirationTime.In(time.FixedZone("far", 3600))
	return stored
}

func TestWhatWasSignedIsWhatTheRequestSays(t *testing.T) {
	body, err := json.Marshal(RequestToSign(requestToSign()))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(*v1alpha1.Request)
		reason string
	}{
		"the same":            {func(*v1alpha1.Request) {}, ""},
		"signed by somebody":  {func(r *v1alpha1.Request) { r.Spec.Signed = nil }, ""},
		"the same amount":     {func(r *v1alpha1.Request) { r.Spec.MaxPrice.Amount = resource.MustParse("250m") }, ""},
		"another status":      {func(r *v1alpha1.Request) { r.Status = v1alpha1.RequestStatus{} }, ""},
		"another name":        {func(r *v1alpha1.Request) { r.Name = "stock" }, v1alpha1.ReasonForged},
		"another application": {func(r *v1alpha1.Request) { r.Spec.Application.UID = "other" }, v1alpha1.ReasonForged},
		"more of it":          {func(r *v1alpha1.Request) { r.Spec.Components[1].Replicas++ }, v1alpha1.ReasonForged},
		"less of it":          {func(r *v1alpha1.Request) { r.Spec.Components = r.Spec.Components[:1] }, v1alpha1.ReasonForged},
		"another amount":      {func(r *v1alpha1.Request) { r.Spec.Components[0].Resources["cpu"] = resource.MustParse("2") }, v1alpha1.ReasonForged},
		"any price":           {func(r *v1alpha1.Request) { r.Spec.MaxPrice = nil }, v1alpha1.ReasonForged},
		"for longer":          {func(r *v1alpha1.Request) { r.Spec.ExpirationTime.Time = r.Spec.ExpirationTime.Add(time.Second) }, v1alpha1.ReasonForged},
	} {
		t.Run(name, func(t *testing.T) {
			lies := asStored(t, requestToSign())
			test.change(lies)
			if reason, message := RequestSigned(body, lies); reason != test.reason || (message == "") != (reason == "") {
				t.Errorf("got %s: %s, want %s", reason, message, test.reason)
			}
		})
	}
}

func TestWhatWasSignedIsWhatTheAnswerSays(t *testing.T) {
	body, err := json.Marshal(AnswerToSign(requestToSign(), 7))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change   func(*v1alpha1.RequestStatus)
		sequence int64
		reason   string
	}{
		"the same":         {func(*v1alpha1.RequestStatus) {}, 7, ""},
		"in use":           {func(s *v1alpha1.RequestStatus) { s.Used = s.Reserved }, 7, ""},
		"another question": {func(*v1alpha1.RequestStatus) {}, 8, v1alpha1.ReasonForged},
		"dearer":           {func(s *v1alpha1.RequestStatus) { s.Price.Amount = resource.MustParse("1") }, 7, v1alpha1.ReasonForged},
		"for nothing":      {func(s *v1alpha1.RequestStatus) { s.Price = nil }, 7, v1alpha1.ReasonForged},
		"less":             {func(s *v1alpha1.RequestStatus) { s.Reserved = nil }, 7, v1alpha1.ReasonForged},
		"for longer":       {func(s *v1alpha1.RequestStatus) { s.ValidUntil.Time = s.ValidUntil.Add(time.Hour) }, 7, v1alpha1.ReasonForged},
		"refused":          {func(s *v1alpha1.RequestStatus) { s.Phase = v1alpha1.RequestRefused }, 7, v1alpha1.ReasonForged},
		"not now":          {func(s *v1alpha1.RequestStatus) { s.Conditions[0].Status = metav1.ConditionFalse }, 7, v1alpha1.ReasonForged},
		"for a reason":     {func(s *v1alpha1.RequestStatus) { s.Conditions[0].Reason = v1alpha1.ReasonNoRoom }, 7, v1alpha1.ReasonForged},
	} {
		t.Run(name, func(t *testing.T) {
			lies := asStored(t, requestToSign())
			test.change(&lies.Status)
			if reason, message := AnswerSigned(body, lies, test.sequence); reason != test.reason || (message == "") != (reason == "") {
				t.Errorf("got %s: %s, want %s", reason, message, test.reason)
			}
		})
	}
}

// An offer is signed without the messages of components, so that it fits.
func TestTheLargestOfferFits(t *testing.T) {
	quote := &v1alpha1.Quote{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("q", 63)}}
	offer := v1alpha1.Offer{Reason: strings.Repeat("R", 63), Message: strings.Repeat("m", 1024), Interest: 100}
	offer.Price = &v1alpha1.Price{Amount: resource.MustParse("123456789012345678.123"), Currency: "EUR"}
	quote.Status.Whole = &offer
	for range maxOfQuote {
		quote.Status.Components = append(quote.Status.Components, v1alpha1.ComponentOffer{Name: strings.Repeat("c", 63), Offer: offer})
	}
	body, err := json.Marshal(OfferToSign(quote, math.MaxInt64))
	if err != nil || len(body) > 15<<10 {
		t.Errorf("it has %d bytes, %v", len(body), err)
	}
	if reason, message := OfferSigned(body, quote, math.MaxInt64); reason != "" {
		t.Errorf("%s: %s", reason, message)
	}
	if quote.Status.Components[0].Message == "" {
		t.Error("the message is gone from the offer itself")
	}
	quote.Status.Components[7].Price = nil
	if reason, _ := OfferSigned(body, quote, math.MaxInt64); reason != v1alpha1.ReasonForged {
		t.Errorf("another offer is %q", reason)
	}
}

// Whatever is signed beside a Request, it is found to say the same, or not, soon. What says the same is what was to be signed.
func FuzzSigned(f *testing.F) {
	asked := requestToSign()
	for _, body := range []any{RequestToSign(asked), AnswerToSign(asked, 7)} {
		text, err := json.Marshal(body)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"request":{"maxPrice":{"amount":"1e999999999"}}}`))
	f.Add([]byte(`{"reserved":{"cpu":"1e999999999"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		took := cputime.Of(func() {
			for kind, f := range map[string]func() (string, string){
				"Request": func() (string, string) { return RequestSigned(body, asked) },
				"answer":  func() (string, string) { return AnswerSigned(body, asked, 7) },
				"Quote":   func() (string, string) { return QuoteSigned(body, &v1alpha1.Quote{}) },
				"offer":   func() (string, string) { return OfferSigned(body, &v1alpha1.Quote{}, 7) },
			} {
				if reason, message := f(); (reason == "") != (message == "") {
					t.Errorf("%s: %q, %q", kind, reason, message)
				}
			}
		})
		if took > 2*time.Second {
			t.Errorf("it took %s of CPU time", took)
		}
	})
}
