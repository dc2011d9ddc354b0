// SPDX-License-Identifier: Apache-2.0

package market

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
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

// The lookup finds no cluster that is cheap enough. The peers are asked, and both offer it for half: the one with more interest wins, and
// keeps to its price.
func TestAuction(t *testing.T) {
	framework.Begin(t)
	framework.SetCorePrices(t, "0.02", "0.02")
	bids(t, hamburg, 60, "0.01")
	bids(t, bremen, 40, "0.01")
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
