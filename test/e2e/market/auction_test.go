// SPDX-License-Identifier: Apache-2.0

package market

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/test/e2e/framework"
	"github.com/hanse-dev/hanse/test/harness"
)

// probe is a Quote of lubeck at the provider, as its manager would make one.
func probe(ctx context.Context, c *framework.Cluster, cpu string) (*v1alpha1.Quote, error) {
	now := time.Now()
	quote := &v1alpha1.Quote{ObjectMeta: framework.NamespacedMeta(v1alpha1.TenantNamespace("lubeck"), fmt.Sprintf("probe-%d", now.UnixNano()))}
	quote.Spec = v1alpha1.QuoteSpec{
		Application: v1alpha1.RequestedApplication{UID: "probe"},
		Components:  applicationParts(framework.NewApplication("", nil, cpu, "web")),
		Deadline:    metav1.NewTime(now.Add(10 * time.Second)), ExpirationTime: metav1.NewTime(now.Add(10 * time.Second)),
	}
	signer, err := harness.NewSigner(ctx, lubeck, lubeck.Name, c.Name)
	if err != nil {
		return nil, err
	}
	return quote, signer.SignQuote(quote, now)
}

func applicationParts(app *v1alpha1.Application) (parts []v1alpha1.RequestedComponent) {
	for _, c := range app.Spec.Components {
		parts = append(parts, v1alpha1.RequestedComponent{Name: c.Name, Replicas: c.Replicas, Resources: c.Resources})
	}
	return parts
}

// bids has the provider offer whatever fits at so much for a core, with this interest, and waits until it does.
func bids(t *testing.T, c *framework.Cluster, interest int32, core string) {
	t.Helper()
	c.ApplyPolicy(t, "quote", fmt.Sprintf("package hanse.quote\n\ninterest := %d\n\nprices := {\"currency\": \"EUR\", \"perHour\": {\"cpu\": %s}}\n", interest, core))
	price := resource.MustParse(core)
	framework.Eventually(t, fmt.Sprintf("%s offers with an interest of %d", c.Name, interest), func(ctx context.Context) error {
		quote, err := probe(ctx, c, "1")
		if err == nil {
			err = c.Create(ctx, quote)
		}
		if err != nil {
			return err
		}
		return awaitOffer(ctx, c, quote, func(whole *v1alpha1.Offer) bool {
			return whole.Interest == interest && (interest == 0 || whole.Price != nil && whole.Price.Amount.Cmp(price) == 0)
		})
	})
}

// awaitOffer waits for a moment for the offer to the Quote, and returns an error if it is another one.
func awaitOffer(ctx context.Context, c *framework.Cluster, quote *v1alpha1.Quote, is func(*v1alpha1.Offer) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	for {
		switch err := c.Get(ctx, client.ObjectKeyFromObject(quote), quote); {
		case err != nil:
			return err
		case quote.Answered() && is(quote.Status.Whole):
			return nil
		case quote.Answered():
			return fmt.Errorf("it offers %+v", quote.Status.Whole)
		}
	}
}

// awaitAuction waits until the auction of the application is over.
func awaitAuction(t *testing.T, c *framework.Cluster, app *v1alpha1.Application) {
	t.Helper()
	framework.Eventually(t, "the auction is over", func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(app), app)
		if err == nil && (app.Status.Auction == nil || app.Status.Auction.Phase != v1alpha1.AuctionClosed || app.Status.ObservedGeneration != app.Generation) {
			err = fmt.Errorf("it says %+v", app.Status)
		}
		return err
	})
}

// bidding has both providers ask 0.02 for a core, and offer it for half of that with so much interest each.
func bidding(t *testing.T, atHamburg, atBremen int32) {
	t.Helper()
	framework.SetCorePrices(t, "0.02", "0.02")
	bids(t, hamburg, atHamburg, "0.01")
	bids(t, bremen, atBremen, "0.01")
}

// Offers are no advertisements: what is advertised stays as it was, although both providers offer the application for half of it.
func TestOffersLeaveTableAlone(t *testing.T) {
	framework.Begin(t)
	bidding(t, 60, 40)
	before := advertised(t)
	app := framework.NewAuctionedApplication(lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote), "0.0001", v1alpha1.AuctionIfNeeded)
	lubeck.MustCreate(t, app)
	awaitAuction(t, lubeck, app)
	for peer, interest := range map[string]int32{"hamburg": 60, "bremen": 40} {
		if o := framework.AuctionOfferOf(t, app, peer); o.Interest != interest || len(o.Won) > 0 {
			t.Errorf("%s offers %+v", peer, o)
		}
	}
	if diff := cmp.Diff(before, advertised(t)); diff != "" {
		t.Errorf("what is advertised has changed (-before +after):\n%s", diff)
	}
	lubeck.DeleteAndWait(t, app)
}

// Providers that want nothing of an application say so, and then the auction is over. Nobody is asked for room.
func TestInterestZero(t *testing.T) {
	ctx := framework.Begin(t)
	bidding(t, 0, 0)
	app := framework.NewAuctionedApplication(lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote), "0.0015", v1alpha1.AuctionIfNeeded)
	lubeck.MustCreate(t, app)
	awaitAuction(t, lubeck, app)
	for _, provider := range []*framework.Cluster{hamburg, bremen} {
		if o := framework.AuctionOfferOf(t, app, provider.Name); o.Interest != 0 || len(o.Won) > 0 || !strings.Contains(o.Message, "policies") {
			t.Errorf("%s offers %+v", provider.Name, o)
		}
		if request, err := provider.RequestOf(ctx, app, lubeck); err == nil {
			t.Errorf("%s was asked for room: %+v", provider.Name, request)
		}
	}
	if app.Status.Phase != v1alpha1.ApplicationUnplaced || app.Status.Conditions[0].Reason != v1alpha1.ReasonNoClusterFits || time.Until(app.Status.Auction.Deadline.Time) <= 0 {
		t.Errorf("it did not end when all had offered: %+v", app.Status)
	}
	lubeck.DeleteAndWait(t, app)
}

// The lookup finds no cluster that is cheap enough. The peers are asked, and both offer it for half: the one with more interest wins, and
// keeps to its price.
func TestAuction(t *testing.T) {
	framework.Begin(t)
	bidding(t, 60, 40)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	app := framework.NewAuctionedApplication(ns, "0.0016", v1alpha1.AuctionIfNeeded)
	lubeck.MustCreate(t, app)
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
	if got := framework.ComponentPeers(app); !slices.Equal(got, []string{"hamburg", "hamburg"}) || app.Status.Price.Amount.String() != "1m" || app.Status.Auction.Round != 1 {
		t.Errorf("it is at %v: %+v", got, app.Status)
	}
	if o := framework.AuctionOfferOf(t, app, "bremen"); o.Interest != 40 || o.Price == nil || o.Price.Amount != "1m" {
		t.Errorf("bremen offers %+v", o)
	}
	hamburg.ExpectPriceKept(t, "1m", app, lubeck)
	lubeck.ExpectOutput(t, []string{"front, back", "0.001 EUR", "40"}, "hanse", "auction", "shop", "-n", ns)
	hamburg.ExpectOutput(t, []string{ns + "/shop", "60", "Offered"}, "get", "quotes", "-A")
	lubeck.ExpectOutput(t, []string{v1alpha1.ReasonAuction, v1alpha1.ReasonAuctionEnded}, "get", "events", "-n", ns)
	lubeck.MustCreate(t, framework.NewDeployment(ns, "front", 1, framework.NewShellPodSpec(framework.RunForever)))
	lubeck.ExpectComponentAt(t, app, "front", "hamburg")
	lubeck.DeleteAndWait(t, app)
}

// Of offers for the same price the one with more interest wins, here where no lookup is made.
func TestTiesByInterest(t *testing.T) {
	framework.Begin(t)
	bidding(t, 60, 90)
	app := framework.NewAuctionedApplication(lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote), "1", v1alpha1.AuctionAlways)
	lubeck.MustCreate(t, app)
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
	if got := framework.ComponentPeers(app); !slices.Equal(got, []string{"bremen", "bremen"}) {
		t.Errorf("it is at %v: %+v", got, app.Status.Auction)
	}
	lubeck.DeleteAndWait(t, app)
}

// advertised is what the providers offer lubeck.
func advertised(t *testing.T) map[string][]any {
	t.Helper()
	found := map[string][]any{}
	for _, provider := range []*framework.Cluster{hamburg, bremen} {
		ad, err := provider.OfferFor(t.Context(), lubeck)
		if err != nil {
			t.Fatal(err)
		}
		found[provider.Name] = []any{ad.Spec.Availability.Cpu(), ad.Spec.Availability.Memory(), ad.Spec.Availability.Pods(), ad.Spec.Prices}
	}
	return found
}

// A provider that is silent does no harm: the auction ends at its deadline. What it says later does not count.
func TestAuctionDeadline(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	app := framework.NewApplication(ns, nil, "50m", "front")
	app.Spec.Auction = &v1alpha1.ApplicationAuctionSpec{When: v1alpha1.AuctionAlways, Deadline: &metav1.Duration{Duration: 3 * time.Second}}
	t.Run("silence", func(t *testing.T) {
		bremen.PauseHanse(t, "manager")
		if err := lubeck.Create(ctx, app); err != nil {
			t.Fatal(err)
		}
		lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
		if got := framework.ComponentPeers(app); !slices.Equal(got, []string{"hamburg"}) {
			t.Errorf("it is at %v", got)
		}
		auction := app.Status.Auction
		since := app.Status.Conditions[0].LastTransitionTime.Sub(auction.Deadline.Time)
		t.Logf("placed %s after the deadline, to the second", since)
		if since < 0 || since > 5*time.Second {
			t.Errorf("it was placed %s after the deadline", since)
		}
		if o := framework.AuctionOfferOf(t, app, "bremen"); !strings.Contains(o.Message, "by the deadline") {
			t.Errorf("bremen has offered %+v", o)
		}
	})
	framework.Eventually(t, "bremen has an answer, too late", func(ctx context.Context) error {
		quote := &v1alpha1.Quote{}
		key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace("lubeck"), Name: offload.RequestName(app)}
		err := bremen.Get(ctx, key, quote)
		if err == nil && !quote.Answered() {
			err = fmt.Errorf("it says %+v", quote.Status)
		}
		return err
	})
	now := &v1alpha1.Application{}
	if err := lubeck.Get(ctx, client.ObjectKeyFromObject(app), now); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(app.Status, now.Status); diff != "" {
		t.Errorf("it has counted (-before +after):\n%s", diff)
	}
	lubeck.DeleteAndWait(t, app)
}
