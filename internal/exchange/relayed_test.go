package exchange

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	relayedQuote = `{"name":"app-1","quote":{"application":{"uid":"1"},"components":[{"name":"web","replicas":2,"resources":{"cpu":"1"}}],` +
		`"deadline":"2026-01-01T00:00:00Z","expirationTime":"2026-01-01T00:02:00Z"}}`
	relayedOffer = `{"quote":7,"whole":{"interest":50,"price":{"amount":"0.1","currency":"EUR"}},"components":[{"name":"web","interest":50}]}`
)

func TestRelayedQuotes(t *testing.T) {
	parts := strings.Repeat(`{"name":"web","replicas":1},`, maxRelayed) + `{"name":"web","replicas":1}`
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
			_, err := ReadRelayedQuote([]byte(test.body))
			expectSays(t, err, test.want)
		})
	}
}

func TestRelayedOffers(t *testing.T) {
	for name, test := range map[string]struct{ body, want string }{
		"an offer":            {relayedOffer, ""},
		"a huge exponent":     {strings.Replace(relayedOffer, "0.1", "1e999999999", 1), "whole.price.amount"},
		"none for the whole":  {`{"quote":7}`, "body"},
		"too many components": {`{"whole":{},"components":[` + strings.Repeat(`{"name":"a"},`, maxRelayed) + `{"name":"a"}]}`, "components"},
		"a number":            {`7`, "body"},
		"cut off":             {relayedOffer[:40], "body"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadRelayedOffer([]byte(test.body))
			expectSays(t, err, test.want)
		})
	}
}

func expectSays(t *testing.T, err error, want string) {
	t.Helper()
	if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// Whatever a member says, it is read or refused soon, and what is read is bounded, and counts or not by itself.
func FuzzReadRelayed(f *testing.F) {
	f.Add([]byte(relayedQuote), []byte(relayedOffer))
	f.Add([]byte(`{"name":"a","Quote":{"components":[{"resources":{"cpu":"1e999999999"}}]}}`), []byte(`{"whole":{"price":{"amount":"-1"}}}`))
	f.Fuzz(func(t *testing.T, quote, offer []byte) {
		start := time.Now()
		asked, err := ReadRelayedQuote(quote)
		if err != nil {
			asked = &RelayedQuote{}
		}
		if len(asked.Quote.Components) > maxRelayed || len(asked.Name) > maxQuoteName {
			t.Errorf("took %+v", asked)
		}
		if _, err := json.Marshal(asked); err != nil {
			t.Error(err)
		}
		if offered, err := ReadRelayedOffer(offer); err == nil {
			got := CheckOffer(&asked.Quote, &v1alpha1.Quote{Spec: asked.Quote, Status: v1alpha1.QuoteStatus{Whole: offered.Whole, Components: offered.Components}})
			if got.Interest < 0 || got.Interest > v1alpha1.MaxInterest || len(got.Components) > len(asked.Quote.Components) {
				t.Errorf("took %+v", got)
			}
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}
